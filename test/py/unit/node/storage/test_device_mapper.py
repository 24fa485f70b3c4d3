"""Logical volumes as the kernel shows them."""

import os
import pathlib
import stat
import types

import pytest

from ganeti.node.storage import device_mapper

KNOWN = {"dm/name": "xen--vg-a.disk0\n", "dm/uuid": "LVM-0tYc\n", "size": "131072\n"}


@pytest.fixture
def volume(tmp_path, monkeypatch):
    """Let the kernel show a device at /dev/xen-vg/a.disk0; give what to change."""
    shown = dict(KNOWN)
    device = types.SimpleNamespace(
        st_mode=stat.S_IFBLK | 0o600, st_rdev=os.makedev(253, 7)
    )
    monkeypatch.setattr(device_mapper, "BLOCK", str(tmp_path))
    monkeypatch.setattr(
        device_mapper, "os",
        types.SimpleNamespace(
            stat=lambda _path: device, major=os.major, minor=os.minor
        ),
    )  # fmt: skip

    def size():
        for name, text in shown.items():
            path = pathlib.Path(tmp_path, "253:7", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return device_mapper.size_bytes("/dev/xen-vg/a.disk0", "xen-vg", "a.disk0")

    return types.SimpleNamespace(shown=shown, device=device, size=size)


def test_an_active_volume_has_the_size_that_the_kernel_shows(volume):
    assert volume.size() == 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dm/name", "xenvg-a.disk0\n"),
        ("dm/name", "xen--vg-b.disk0\n"),
        ("dm/uuid", "CRYPT-LUKS2-1\n"),
        ("size", "many\n"),
    ],
)
def test_another_device_at_the_path_is_no_volume(volume, name, text):
    volume.shown[name] = text
    assert volume.size() is None


def test_a_file_and_nothing_at_the_path_are_no_volume(volume, monkeypatch):
    volume.device.st_mode = stat.S_IFREG | 0o600
    assert volume.size() is None
    monkeypatch.undo()
    assert device_mapper.size_bytes("/dev/no-group/none", "no-group", "none") is None
