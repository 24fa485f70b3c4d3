"""Disks that are files: this process opens them, and the emulator gets descriptors.

Other nodes write to shared storage, and could put a link in the place of a file while
an emulator is about to open it. The emulator's locks of images are of the kind that
belongs to the open file, so they count for the descriptor, too.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping

from ganeti.base import errors
from ganeti.base.constants import disks as disk_words
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.runtime import PluggedDisk, Runtime


@contextlib.contextmanager
def opened(
    effects: NodeEffects, guest: Files, disk: PluggedDisk, path: str
) -> Iterator[int]:
    """Hold a descriptor of a disk's content.

    Raises:
        HotplugError: it cannot be opened.
    """
    flags = os.O_RDONLY if disk.mode == "ro" else os.O_RDWR
    try:
        fd = effects.open_disk(disk, path, flags)
    except (OSError, errors.GenericError) as err:
        raise errors.HotplugError(
            f"instance {guest.name}: disk {disk.uuid}: {path}:"
            f" {getattr(err, 'strerror', None) or err}"
        ) from err
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def of_start(
    effects: NodeEffects, guest: Files, runtime: Runtime
) -> Iterator[Mapping[str, int]]:
    """Hold a descriptor of each disk that is a file: path -> descriptor.

    Raises:
        HotplugError: one cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        yield {
            path: stack.enter_context(opened(effects, guest, disk, path))
            for disk, path, uri in runtime.disks
            if disk.dev_type in disk_words.DTS_FILEBASED and not uri
        }
