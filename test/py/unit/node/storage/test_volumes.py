"""Disks that are logical volumes, over LVM's tools in memory."""

import dataclasses
import os
import pathlib
import stat
import types

import msgspec
import pytest

from fakes import nodes
from fakes.lvm_tools import FakeLvm
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX
from ganeti.node import storage
from ganeti.node.calls.disks import storage_units
from ganeti.node.storage import lvm, volumes

PATHS = pathutils.Paths("", "node1")


def disk(tools, name="a.disk0", group="xenvg", **more):
    wire = nodes.disk(dev_type="plain", logical_id=[group, name], **more)
    return storage.device(PATHS, msgspec.convert(wire, DiskX), tools)


@pytest.fixture
def tools():
    return FakeLvm(xenvg=[400, 200], other=[100])


def test_a_volume_is_made_with_its_tag_and_found(tools):
    made = disk(tools, size=50)
    assert not made.exists()
    made.create(50)
    made.set_info("originstname+web1.example.com")
    assert made.exists()
    assert made.path == "/dev/xenvg/a.disk0"
    # Whole extents.
    assert made.size_bytes() == 52 * 1024 * 1024
    assert tools.tags["xenvg/a.disk0"] == ["originstname+web1.example.com"]
    made.set_info("originstname+web2 example")
    assert tools.tags["xenvg/a.disk0"] == ["originstname+web2_example"]
    with pytest.raises(errors.BlockDeviceError, match=r"exists already"):
        made.create(50)
    made.remove()
    made.remove()
    assert tools.volumes == []


def test_stripes_are_used_as_far_as_there_are_physical_volumes(tools):
    striped = disk(tools, size=80, params={"stripes": 8})
    striped.create(80)
    assert [unit.used.get("xenvg/a.disk0", 0) for unit in tools.physical] == [10, 10, 0]
    # Not enough on the smaller one: no stripes, rather than no disk.
    big = disk(tools, "b.disk0", size=480, params={"stripes": 2})
    big.create(480)
    assert tools.size_of("xenvg/b.disk0") == 480


def test_stripes_have_the_wanted_size(tools):
    sized = {"stripes": 2, "stripe_size": 256}
    disk(tools, size=80, params=sized).create(80)
    assert "--stripes 2 --stripesize 256k" in tools.lines[-1]
    # Of one stripe, or of the default size, LVM gets none.
    disk(tools, "b.disk0", "other", size=8, params=sized).create(8)
    disk(tools, "c.disk0", size=8, params=sized | {"stripe_size": 0}).create(8)
    assert not any("--stripesize" in line for line in tools.lines[2:])
    wide = disk(tools, "d.disk0", size=8, params={"stripes": 2, "stripe_size": 8192})
    with pytest.raises(errors.BlockDeviceError, match=r"8192 KiB; .* of 4096 KiB"):
        wide.create(8)


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_volume_that_gets_no_stripes_may_have_any_size_of_them(tools, stripes):
    """The number is of another level than the size, or a node has one physical volume."""
    params = {"stripes": stripes, "stripe_size": 8192}
    disk(tools, "a.disk0", "other", size=8, params=params).create(8)
    with pytest.raises(errors.BlockDeviceError, match=r"needs 4000 MiB .* has 92 MiB"):
        disk(tools, "b.disk0", "other", size=4000, params=params).create(4000)


def test_a_striped_volume_grows_without_stripes_where_space_is_on_one_alone(tools):
    grown = disk(tools, size=360, params={"stripes": 2})
    grown.create(360)
    assert [unit.used.get("xenvg/a.disk0", 0) for unit in tools.physical] == [45, 45, 0]
    grown.grow(100, dryrun=False, backingstore=True)
    assert tools.size_of("xenvg/a.disk0") == 460


def test_space_counts_on_allocatable_present_physical_volumes_alone(tools):
    storage_units.set_allocatable(tools, "/dev/sda", allocatable=False)
    with pytest.raises(
        errors.BlockDeviceError, match=r"needs 300 MiB.*has 200 MiB free"
    ):
        disk(tools).create(300)
    assert tools.volumes == []
    disk(tools).create(100)
    assert "xenvg/a.disk0" not in tools.physical[0].used
    storage_units.set_allocatable(tools, "/dev/sda", allocatable=True)
    tools.physical[1].is_missing = True
    with pytest.raises(
        errors.BlockDeviceError, match=r"needs 500 MiB.*has 400 MiB free"
    ):
        disk(tools, "b.disk0").create(500)


def test_exclusive_disks_get_whole_physical_volumes():
    tools = FakeLvm(xenvg=[100, 100, 100])
    disk(tools, size=40, spindles=2).create(40, exclusive=True)
    free = storage_units.lvm_space(tools, "lvm-vg", "xenvg", exclusive=True)
    assert free == (100, 300)
    assert storage_units.lvm_space(tools, "lvm-pv", "xenvg", exclusive=True) == (1, 3)
    with pytest.raises(
        errors.BlockDeviceError, match=r"needs 2 empty.*found 1 with 100"
    ):
        disk(tools, "b.disk0", spindles=2).create(10, exclusive=True)
    # It grows on what it has, although another one is free.
    grown = disk(tools, size=40)
    with pytest.raises(errors.BlockDeviceError, match=r"has 160 MiB free"):
        grown.grow(200, dryrun=True, backingstore=True, exclusive=True)
    without = disk(tools, "b.disk0")
    with pytest.raises(
        errors.BlockDeviceError, match=r"150 MiB in all, found 1 with 100"
    ):
        without.create(150, exclusive=True)
    without.create(90, exclusive=True)


def test_a_volume_grows_to_the_recorded_size_and_the_amount(tools):
    grown = disk(tools, size=40)
    grown.create(40)
    grown.grow(20, dryrun=True, backingstore=True)
    assert tools.size_of("xenvg/a.disk0") == 40
    grown.grow(20, dryrun=False, backingstore=False)
    assert tools.size_of("xenvg/a.disk0") == 40
    for _again in range(2):
        grown.grow(20, dryrun=False, backingstore=True)
        assert tools.size_of("xenvg/a.disk0") == 60
    with pytest.raises(
        errors.BlockDeviceError, match=r"needs 580 MiB.*has 540 MiB free"
    ):
        grown.grow(600, dryrun=True, backingstore=True)


def test_a_rename_keeps_other_volumes_and_the_group(tools):
    for name in ("a.disk0", "b.disk0"):
        disk(tools, name).create(8)
    with pytest.raises(errors.BlockDeviceError, match=r"already exists"):
        disk(tools).rename(("xenvg", "b.disk0"))
    with pytest.raises(errors.BlockDeviceError, match=r"another volume group, other"):
        disk(tools).rename(("other", "c.disk0"))
    disk(tools).rename(("xenvg", "c.disk0"))
    assert sorted(tools.volumes) == ["xenvg/b.disk0", "xenvg/c.disk0"]


def test_a_snapshot_replaces_its_own_remains_and_nothing_else(tools):
    disk(tools, size=40).create(40)
    disk(tools).set_info("originstname+web1")
    for _again in range(2):
        assert disk(tools).snapshot(None, None) == ("xenvg", "a.disk0.snap")
    assert tools.size_of("xenvg/a.disk0.snap") == 40
    assert tools.tags["xenvg/a.disk0.snap"] == ["originstname+web1"]
    assert disk(tools).snapshot("s", 8) == ("xenvg", "s")
    disk(tools, "b.disk0").create(8)
    with pytest.raises(errors.BlockDeviceError, match=r"b.disk0: that volume exists"):
        disk(tools).snapshot("b.disk0", None)
    with pytest.raises(errors.BlockDeviceError, match=r"needs 900 MiB"):
        disk(tools).snapshot("t", 900)
    assert "xenvg/b.disk0" in tools.volumes


def test_a_volume_on_a_missing_physical_volume_is_faulty(tools):
    disk(tools).create(8)
    assert disk(tools).status().ldisk_status == storage.LocalStatus.OK
    tools.physical[0].is_missing = True
    status = disk(tools).status()
    assert (status.ldisk_status, status.is_degraded) == (
        storage.LocalStatus.FAULTY,
        True,
    )


@pytest.mark.parametrize(
    "name",
    ["-f", "../x", "a b", "", "snapshot1", "pvmove0", "x_rimage_0", "a;b", 5, "."],
)
def test_names_that_lvm_could_misread_never_get_to_it(tools, name):
    assert not lvm.is_name(name)
    with pytest.raises(errors.BlockDeviceError, match=r"names? that LVM can use"):
        disk(tools, name)
    with pytest.raises(errors.BlockDeviceError, match=r"that LVM can use"):
        disk(tools, group=name)
    assert tools.lines == []


def test_a_group_that_is_missing_is_named(tools):
    with pytest.raises(errors.BlockDeviceError, match=r"has no volume group absent"):
        disk(tools, group="absent").create(8)
    with pytest.raises(errors.BlockDeviceError, match=r"no such volume"):
        disk(tools, group="absent").require()


def test_units_have_rows_of_whole_mebibytes(tools):
    disk(tools).create(50)
    fields = ["name", "size", "used", "free", "allocatable"]
    assert storage_units.lvm_rows(tools, "lvm-vg", None, fields) == [
        ["xenvg", 600, 52, 548, True],
        ["other", 100, 0, 100, True],
    ]
    storage_units.set_allocatable(tools, "/dev/sdb", allocatable=False)
    assert storage_units.lvm_rows(tools, "lvm-pv", "/dev/sdb", fields) == [
        ["/dev/sdb", 200, 0, 200, False]
    ]
    with pytest.raises(errors.StorageError, match=r"no unit /dev/sdx"):
        storage_units.lvm_rows(tools, "lvm-pv", "/dev/sdx", fields)


def test_only_known_physical_volumes_are_changed(tools):
    for name in ("/dev/sdx", "--help", "other"):
        with pytest.raises(errors.StorageError, match=f"no unit {name}.*/dev/sda"):
            storage_units.set_allocatable(tools, name, allocatable=False)
    before = len(tools.lines)
    storage_units.set_allocatable(tools, "/dev/sda", allocatable=True)
    assert not any("pvchange" in line for line in tools.lines[before:])


def test_a_repair_takes_out_what_is_missing_with_force_if_it_must(tools):
    disk(tools).create(8)
    tools.physical[0].is_missing = True
    storage_units.repair(tools, "xenvg")
    assert [unit.name for unit in tools.physical] == ["/dev/sdb", "/dev/sdc"]
    assert tools.volumes == []
    calls = [line for line in tools.lines if line.startswith("vgreduce")]
    assert calls[-2:] == [
        "vgreduce --removemissing xenvg",
        "vgreduce --removemissing --force xenvg",
    ]


def test_a_repair_that_does_not_help_shows_both_outputs(tools):
    tools.physical[0].is_missing = True
    tools._vgreduce = lambda _words: (5, "", "  cannot write\n")
    with pytest.raises(
        errors.StorageError, match=r"xenvg: could not.*cannot write.*vgs: "
    ):
        storage_units.repair(tools, "xenvg")
    with pytest.raises(errors.StorageError, match=r"no unit"):
        storage_units.repair(tools, "-x")


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        ("lvm-vg", {"allocatable": True}, "lvm-vg: unit x: cannot change allocatable"),
        ("lvm-pv", {"size": 5}, "cannot change size"),
        ("lvm-pv", {}, "cannot change anything"),
        ("lvm-pv", {"allocatable": "yes"}, "wanted true or false, found 'yes'"),
    ],
)
def test_other_changes_are_refused(kind, changes, text):
    with pytest.raises(errors.StorageError, match=text):
        storage_units.changes_of(changes, kind, "x")


def test_procedures_use_the_node_s_tools(tmp_path, tools):
    node = dataclasses.replace(nodes.make_node(tmp_path), process=tools)
    wire = nodes.disk(dev_type="plain", logical_id=["xenvg", "a.disk0"])
    nodes.call(node, "blockdev_create", wire, 8, "web1", True, "info", False)
    assert nodes.call(node, "blockdev_snapshot", wire, "s", None) == ["xenvg", "s"]
    rows = nodes.call(node, "storage_list", "lvm-pv", [], None, ["name", "free"])
    assert rows == [["/dev/sda", 384], ["/dev/sdb", 200], ["/dev/sdc", 100]]
    nodes.call(node, "storage_modify", "lvm-pv", [], "/dev/sda", {"allocatable": False})
    units = [
        ["lvm-vg", "xenvg", [False]],
        ["lvm-pv", "xenvg", [True]],
        ["lvm-vg", "no", []],
    ]
    _boot, reports, _hosts = nodes.call(node, "node_info", units, None)
    assert [report and report["storage_free"] for report in reports] == [200, 1, None]
    with pytest.raises(errors.StorageError, match=r"cannot fix-consistency"):
        nodes.call(node, "storage_execute", "lvm-pv", [], "x", "fix-consistency")
    nodes.call(node, "storage_execute", "lvm-vg", [], "xenvg", "fix-consistency")


def test_an_adopted_device_is_below_dev_disk_and_stays(tools, tmp_path):
    wire = nodes.disk(dev_type="blockdev", logical_id=["manual", "/dev/disk/by-id/x"])
    adopted = storage.device(PATHS, msgspec.convert(wire, DiskX), tools)
    assert not adopted.exists()
    adopted.remove()
    for act in (
        lambda: adopted.create(8),
        lambda: adopted.grow(8, dryrun=True, backingstore=True),
        lambda: adopted.rename(("manual", "/dev/disk/by-id/y")),
        adopted.require,
    ):
        with pytest.raises(errors.BlockDeviceError, match=r"/dev/disk/by-id/x"):
            act()
    for path in ("/dev/sda", "/dev/disk/../sda", "dev/disk/x", None):
        wire["logical_id"] = ["manual", path]
        with pytest.raises(errors.BlockDeviceError, match=r"below /dev/disk/"):
            storage.device(PATHS, msgspec.convert(wire, DiskX), tools)


def test_the_driver_is_a_volume_disk(tools):
    assert isinstance(disk(tools), volumes.VolumeDisk)


def test_a_disk_that_lvm_misses_is_named_with_what_takes_it_out():
    tools = FakeLvm(xenvg=[400, 200])
    tools.physical[1].is_missing = True
    with pytest.raises(errors.StorageError) as caught:
        storage_units.set_allocatable(tools, "/dev/sdb", allocatable=False)
    assert str(caught.value) == (
        "storage type lvm-pv: no unit /dev/sdb in a volume group; there are /dev/sda;"
        " LVM misses a physical volume of xenvg, as after the failure of its disk:"
        " nothing new is placed there, and gnt-node repair-storage takes it out of the"
        " group"
    )


# Logical volumes as the kernel shows them.

KNOWN = {"dm/name": "xen--vg-a.disk0\n", "dm/uuid": "LVM-0tYc\n", "size": "131072\n"}


@pytest.fixture
def volume(tmp_path, monkeypatch):
    """Let the kernel show a device at /dev/xen-vg/a.disk0; give what to change."""
    shown = dict(KNOWN)
    device = types.SimpleNamespace(
        st_mode=stat.S_IFBLK | 0o600, st_rdev=os.makedev(253, 7)
    )
    monkeypatch.setattr(volumes, "BLOCK", str(tmp_path))
    monkeypatch.setattr(
        volumes, "os",
        types.SimpleNamespace(
            stat=lambda _path: device, major=os.major, minor=os.minor
        ),
    )  # fmt: skip

    def size():
        for name, text in shown.items():
            path = pathlib.Path(tmp_path, "253:7", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return volumes.size_bytes("/dev/xen-vg/a.disk0", "xen-vg", "a.disk0")

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
    assert volumes.size_bytes("/dev/no-group/none", "no-group", "none") is None
