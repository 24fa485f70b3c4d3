"""The guest that a hostile source of a migration describes."""

import msgspec
import pytest

from fakes import guests, nodes
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import AttachedDisk
from ganeti.node.hypervisor.kvm import runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.moving import layout

DISK = "0c1d2e3f-4a5b-4c6d-8e7f-000000000001"
NIC = "0c1d2e3f-4a5b-4c6d-8e7f-000000000002"
MACHINES = frozenset({"pc", "q35"})


def record(**params):
    beparams = {"maxmem": 512, "minmem": 128, "vcpus": 2}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    nic = {"uuid": NIC, "mac": "aa:00:00:00:00:01", "nicparams": {"mode": "bridged"}}
    return msgspec.convert({**wire, "nics": [nic]}, InstanceX)


def disk():
    wire = nodes.disk(number=1) | {"uuid": DISK}
    return msgspec.convert(wire, DiskX)


def source(*, argv=None, disks=None, nics=None, **params):
    """Return what an honest source sends, with changes."""
    hvp = guests.kvm_params(**params)
    first = devices.DeviceSlots((), 12)
    if disks is None:
        disks = [(DISK, first.for_disk(disk(), hvp["disk_type"]))]
    if nics is None:
        nics = [(NIC, first.for_nic(record().nics[0], hvp["nic_type"]))]
    start = ["/usr/bin/kvm", "-m", "256", "-smp", "1,cores=1", "-machine", "pc,acpi=on"]
    return msgspec.json.encode(
        [
            argv or start,
            [{"uuid": uuid, "hvinfo": place, "link": "evil"} for uuid, place in nics],
            hvp,
            [[{"uuid": uuid, "hvinfo": p}, "/etc/shadow", None] for uuid, p in disks],
        ]
    ).decode()


def read(text, item=None):
    return layout.read(item or record(), text, machines=MACHINES, memory_mib=4096)


def test_sizes_models_and_addresses_are_those_of_the_running_guest():
    read_layout = read(source(disk_type="scsi-hd", cpu_type="host"))
    as_started = read_layout.instance(record())
    assert (as_started.beparams["maxmem"], as_started.beparams["vcpus"]) == (256, 1)
    assert as_started.hvparams["machine_version"] == "pc"
    assert as_started.hvparams["cpu_type"] == "host"
    (row,) = read_layout.plugged_disks([AttachedDisk(disk(), "/here")])
    assert (row[0].hvinfo["scsi-id"], row[1]) == (0, "/here")
    (nic,) = read_layout.plugged_nics(record())
    assert (nic.mac, nic.hvinfo["addr"]) == ("aa:00:00:00:00:01", "0xc")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kvm_path", "/tmp/evil"),
        ("kernel_path", "/tmp/evil"),
        ("security_model", "none"),
        ("security_domain", "root"),
        ("use_chroot", False),
        ("mem_path", "/tmp"),
        ("migration_port", 1),
        ("vnc_password_file", "/etc/shadow"),
    ],
)
def test_other_parameters_of_the_source_are_ignored(key, value):
    mine = record(security_model="pool", use_chroot=True)
    wanted = mine.hvparams[key]
    assert read(source(**{key: value}), mine).hvparams[key] == wanted


PCI = {"driver": "virtio-blk-pci", "id": "disk-0c1d2e3f-4a5b-4c6d", "bus": "pci.0"}
GOOD = ["x", "-m", "1", "-smp", "1", "-machine", "pc"]


def with_option(option, value):
    argv = list(GOOD)
    argv[argv.index(option) + 1] = value
    return argv


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "x" * 2_000_000,
        source(argv=["x"]),
        source(argv=[*GOOD, "-m", "2"]),
        source(argv=with_option("-m", "999999999")),
        source(argv=with_option("-m", "1,slots=4")),
        source(argv=with_option("-m", "1\n")),
        source(argv=with_option("-smp", "99999")),
        source(argv=with_option("-machine", "pc -device evil")),
        source(disks=[(DISK, {**PCI, "addr": "0xc,drive=/etc/shadow"})]),
        source(disks=[(DISK, {**PCI, "addr": "0x99"})]),
        source(disks=[(DISK, {**PCI, "addr": "0xc", "driver": "vfio-pci"})]),
        source(disks=[(DISK, {**PCI, "addr": "0xc", "id": "x"})]),
        source(disks=[(DISK, {**PCI, "addr": "0xc", "romfile": "/etc/shadow"})]),
        source(disks=[(DISK, None)]),
        source(disks=[(DISK, {**PCI, "addr": "0xc"})] * 2),
        source(disk_type="if=none"),
        source(nic_type="vfio-pci,host=01:00"),
        source(cpu_type="host\n-device x"),
        source(cpu_cores=-1),
        source(acpi="yes"),
        source(vga={"a": 1}),
    ],
)
def test_a_guest_that_cannot_be_is_refused(text):
    with pytest.raises(errors.HypervisorError, match="web1: the source node"):
        read(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kvm_extra", "-device evil"),
        ("usb_devices", "evil"),
        ("soundhw", "evil"),
        ("cdrom_image_path", "/etc/shadow"),
        ("floppy_image_path", "/etc/shadow"),
        ("vnc_bind_address", "0.0.0.0"),
    ],
)
def test_devices_that_the_record_lacks_are_refused(key, value):
    with pytest.raises(errors.HypervisorError, match=f"{key} has changed"):
        read(source(**{key: value}))


def test_devices_that_the_guest_lacks_are_left_out():
    mine = record(kvm_extra="-foo", cdrom_image_path="/cd.iso")
    hvp = read(source(), mine).hvparams
    assert (hvp["kvm_extra"], hvp["cdrom_image_path"]) == ("", "")
    hvp = read(source(cdrom_image_path="/etc/shadow"), mine).hvparams
    assert hvp["cdrom_image_path"] == "/cd.iso"


def test_disks_and_nics_must_be_those_of_the_instance():
    read_layout = read(source())
    with pytest.raises(errors.HypervisorError, match="not active on this node"):
        read_layout.plugged_disks([])
    with pytest.raises(errors.HypervisorError, match="not recorded any more"):
        read_layout.plugged_nics(record().replace(nics=()))


@pytest.mark.parametrize("kind", ["paravirtual", "scsi-hd", "ide", "pflash"])
def test_each_assigned_address_is_legal(kind):
    slots = devices.DeviceSlots((), 12)
    for _ in range(4):
        assert slots.for_disk(disk(), kind) in devices.disk_places(DISK, kind)


@pytest.mark.parametrize("kind", ["paravirtual", "e1000", "ne2k_isa"])
def test_each_assigned_address_of_a_nic_is_legal(kind):
    place = devices.DeviceSlots((), 12).for_nic(record().nics[0], kind)
    assert place in devices.nic_places(NIC, kind)


def test_an_honest_export_is_accepted():
    plan = runtime.Runtime(
        tuple(GOOD),
        (runtime.plugged_nic(record().nics[0], None),),
        guests.kvm_params(nic_type="ne2k_isa"),
        (),
    )
    place = devices.DeviceSlots((), 12).for_nic(record().nics[0], "ne2k_isa")
    plan = plan.replace(nics=(runtime.plugged_nic(record().nics[0], place),))
    assert read(msgspec.json.encode(plan).decode()).nics == ((NIC, place),)


def test_a_guest_without_nodefaults_has_the_default_devices():
    # As a guest has that another Ganeti started.
    assert read(source()).has_defaults
    ours = (*msgspec.json.decode(source())[0], "-nodefaults")
    assert not read(source(argv=ours)).has_defaults
