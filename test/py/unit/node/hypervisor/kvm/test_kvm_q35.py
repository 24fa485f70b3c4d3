"""Guests of the machine type q35: their bus, their drives, and moves between nodes."""

import re

import msgspec
import pytest

from fakes import guests, nodes
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.kvm import argv, checks, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import layout

FILES = Files(Paths("/v/n1", "n1"), "web1")
Q35 = {"machine_version": "pc-q35-7.2"}
MACHINES = frozenset({"pc", "pc-q35-7.2"})


def record(**params):
    beparams = {"maxmem": 256, "minmem": 128, "vcpus": 1}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    return msgspec.convert(wire, InstanceX)


def build(machine="pc", **params):
    return argv.build(record(**params), FILES, argv.EmulatorFacts(machine))


def disk(number=1):
    return msgspec.convert(nodes.disk(number), DiskX)


BRIDGE = "pcie-pci-bridge,id=pci.0"


@pytest.mark.parametrize(
    ("params", "machine", "is_q35"),
    [
        (Q35, "pc", True),
        ({"machine_version": "q35"}, "pc", True),
        ({}, "q35", True),
        ({"machine_version": "q35,hpet=off"}, "pc", True),
        ({}, "pc-i440fx-7.2", False),
        ({"machine_version": "pc"}, "q35", False),
    ],
)
def test_q35_has_the_bus_of_other_machines(params, machine, is_q35):
    args = build(machine, **params)
    assert (BRIDGE in args) == is_q35 == argv.has_q35(args)


def test_cd_drives_are_at_ports_that_disks_leave_free():
    params = {"cdrom_image_path": "/a.iso", "cdrom2_image_path": "/b.iso"}
    kind = {"cdrom_disk_type": "ide"}
    text = " ".join(build(**Q35, **params, **kind))
    assert re.findall(r"ide-cd,bus=(ide\.\d),unit=(\d)", text) == [
        ("ide.4", "0"),
        ("ide.5", "0"),
    ]
    text = " ".join(build(**params, **kind))
    assert re.findall(r"ide-cd,bus=(ide\.\d),unit=(\d)", text) == [
        ("ide.1", "0"),
        ("ide.1", "1"),
    ]


def test_sata_ports_have_one_disk_each():
    places = devices.DeviceSlots((), 12, q35=True)
    first, second = (places.for_disk(disk(n), "ide") for n in (1, 2))
    assert [(p["bus"], p["unit"]) for p in (first, second)] == [
        ("ide.0", 0),
        ("ide.1", 0),
    ]
    for place in (first, second):
        known = devices.disk_places(disk().uuid, "ide", q35=True)
        assert place | {"id": ""} in [row | {"id": ""} for row in known]


def test_the_first_slot_is_that_of_the_bridge():
    assert (
        devices.DeviceSlots((), 0, q35=True).for_disk(disk(), "paravirtual")["addr"]
        == "0x1"
    )
    assert devices.DeviceSlots((), 0).for_disk(disk(), "paravirtual")["addr"] == "0x0"


@pytest.mark.parametrize("machine", ["pc", "pc-q35-7.2"])
def test_a_moved_guest_keeps_machine_and_places(machine):
    start = record(machine_version=machine, disk_type="ide")
    places = devices.DeviceSlots((), 12, q35=devices.is_q35(machine))
    plugged = [
        runtime.plugged_disk(disk(n), places.for_disk(disk(n), "ide")) for n in (1, 2)
    ]
    plan = runtime.Runtime(
        tuple(argv.build(start, FILES, argv.EmulatorFacts("pc"))),
        (),
        start.hvparams,
        tuple((each, f"/{index}", None) for index, each in enumerate(plugged)),
    )
    text = runtime.export(FILES, plan)
    now = record(disk_type="ide")
    moved = layout.read(now, text, machines=MACHINES, memory_mib=4096)
    assert [place for _, place in moved.disks] == [each.hvinfo for each in plugged]
    again = argv.build(moved.instance(now), FILES, argv.EmulatorFacts("pc"))
    assert argv.has_q35(again) == (machine != "pc")


def test_q35_has_no_floppy(monkeypatch):
    monkeypatch.setattr(checks.emulator, "version", lambda *_: (7, 2))
    monkeypatch.setattr(checks.emulator, "machines", lambda *_: MACHINES)
    hvp = record(**Q35, floppy_image_path="/a.img").hvparams
    with pytest.raises(errors.HypervisorError, match="has no floppy drive"):
        checks.check_emulator(None, hvp)
    checks.check_emulator(None, record(**Q35).hvparams)
    checks.check_emulator(None, record(floppy_image_path="/a.img").hvparams)
