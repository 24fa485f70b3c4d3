"""The cloud-init seed of a guest: a small read-only disk that NoCloud finds.

It is written at each start, from the master's record, and removed with the other files
of the guest. Only root reads it: the emulator opens it before it changes its user.
"""

import io
import os
from collections.abc import Mapping
from typing import Final

import pycdlib

from ganeti.base import errors
from ganeti.base.constants.parameters import cloud_init
from ganeti.base.filesystem import files as file_utils
from ganeti.node.hypervisor.kvm.files import Files

#: Name on the ISO 9660 level; guests read the long names of Rock Ridge or Joliet.
_SHORT_NAMES: Final = {
    cloud_init.USER_DATA: "/USERDATA.;1",
    cloud_init.META_DATA: "/METADATA.;1",
    cloud_init.NETWORK_CONFIG: "/NETCONF.;1",
}


def image(contents: Mapping[str, str]) -> bytes:
    """Return the image of a seed.

    Args:
        contents: file -> content; other files than those of cloud-init are left out.

    Raises:
        HypervisorError: the files are too large.
    """
    iso = pycdlib.PyCdlib()
    iso.new(joliet=3, rock_ridge="1.09", vol_ident=cloud_init.LABEL)
    for name, short_name in _SHORT_NAMES.items():
        if name not in contents:
            continue
        data = contents[name].encode()
        iso.add_fp(
            io.BytesIO(data),
            len(data),
            short_name,
            rr_name=name,
            joliet_path=f"/{name}",
        )
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    data = out.getvalue()
    if len(data) > cloud_init.SEED_BYTES:
        raise errors.HypervisorError(
            f"cloud-init seed: wanted at most {cloud_init.SEED_BYTES} bytes, found"
            f" {len(data)}"
        )
    return data.ljust(cloud_init.SEED_BYTES, b"\0")


def write(guest: Files, contents: Mapping[str, str]) -> None:
    """Write the seed of a guest, readable by root only.

    Raises:
        HypervisorError: the files are too large.
    """
    os.makedirs(os.path.dirname(guest.seed), mode=0o750, exist_ok=True)
    file_utils.write_file(guest.seed, image(contents), mode=0o600)
