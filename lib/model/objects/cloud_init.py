"""The files of a cloud-init seed, from an instance's OS parameters.

A pure function of the record. The format is NoCloud: https://docs.cloud-init.io,
reference of data sources.
"""

import json
from collections.abc import Mapping
from typing import Any

from ganeti.base.constants.parameters import cloud_init

#: Settings for a guest whose instance has no user data.
_NO_USER_DATA = "#cloud-config\n{}\n"


def has_parameters(osparams: Mapping[str, Any]) -> bool:
    """Return whether OS parameters ask for a seed."""
    return any(name in cloud_init.PARAMETERS for name in osparams)


def without_parameters(osparams: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OS parameters that are not about the seed."""
    return {
        name: value
        for name, value in osparams.items()
        if name not in cloud_init.PARAMETERS
    }


def files(name: str, uuid: str, osparams: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of an instance's seed, {} if no parameter asks for one.

    Args:
        name: of the instance; the host name, unless there is own metadata.
        uuid: of the instance. With another one, cloud-init sets the guest up again.
        osparams: public and private OS parameters in force.
    """
    if not has_parameters(osparams):
        return {}
    given = {
        file: str(osparams[f"{cloud_init.PREFIX}{file}"])
        for file in cloud_init.FILES
        if f"{cloud_init.PREFIX}{file}" in osparams
    }
    defaults = {
        cloud_init.USER_DATA: _NO_USER_DATA,
        cloud_init.META_DATA: _meta_data(
            name, uuid, str(osparams.get(cloud_init.SSH_KEY, ""))
        ),
    }
    return defaults | given


def _meta_data(name: str, uuid: str, ssh_keys: str) -> str:
    # JSON is YAML, and escapes whatever a key or a name contains.
    data: dict[str, Any] = {"instance-id": uuid, "local-hostname": name}
    if keys := [line.strip() for line in ssh_keys.splitlines() if line.strip()]:
        data["public-keys"] = keys
    return json.dumps(data, indent=1) + "\n"
