"""Defaults of a new cluster on machines with and without Xen, LVM and bridges."""

import json

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.parameters import hvparams
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.init import machine_defaults
from ganeti.bootstrap.options import InitOptions

ADDRESS = "192.0.2.11"
REAL = Paths(hostname="node1.example.com")


def vgs(**sizes):
    rows = [
        {"vg_name": name, "vg_size": str(size), "vg_free": "0"}
        for name, size in sizes.items()
    ]
    return 0, json.dumps({"report": [{"vg": rows}]}), ""


NO_LVM = (5, "", "no volume groups")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that makes the machine: its bridges and other interfaces."""
    devices = tmp_path / "net"
    devices.mkdir()
    monkeypatch.setattr(machine_defaults, "_DEVICES", str(devices))
    kvm = tmp_path / "kvm"
    kvm.write_text("")
    kvm.chmod(0o755)
    row = hvparams.HYPERVISOR["kvm"]["kvm_path"]
    monkeypatch.setitem(
        hvparams.HYPERVISOR["kvm"], "kvm_path", row._replace(default=str(kvm))
    )

    def make(*, bridges=(), others=("eth0",), owner="eth0"):
        for name in (*others, *bridges):
            (devices / name).mkdir()
        for name in bridges:
            (devices / name / "bridge").mkdir()
        monkeypatch.setattr(
            machine_defaults.netutils,
            "own_addresses",
            lambda: [("lo", "127.0.0.1", 8), (owner, ADDRESS, 24)],
        )
        return kvm

    return make


def resolve(answer=NO_LVM, paths=REAL, **given):
    options = InitOptions(cluster_name="cluster", **given)
    return machine_defaults.resolve(paths, FakeRunner(vgs=answer), options, ADDRESS)


def test_a_plain_machine_with_a_bridge_needs_no_options(machine):
    machine(bridges=["br0"], owner="br0")
    done = resolve()
    assert done.options.enabled_hypervisors == ("kvm",)
    assert done.options.enabled_disk_templates == ("file",)
    assert done.options.master_netdev == "br0"
    assert done.options.nicparams == {"link": "br0"}
    assert done.new_bridge == ""
    assert len(done.notes) == 3
    assert not any("Warning" in note for note in done.notes)


def test_without_a_bridge_the_error_names_the_option(machine):
    machine()
    done = resolve()
    assert done.options.master_netdev == "eth0"
    assert done.options.nicparams == {"link": "br0"}
    warning = done.notes[-1]
    assert warning.startswith("Warning: this machine has no bridge br0")
    assert "--create-bridge" in warning
    assert "xen-br0" not in "".join(done.notes)


def test_a_bridge_is_created_on_request_only_where_it_is_missing(machine):
    machine(bridges=["br1"])
    assert resolve(create_bridge=True).new_bridge == ""  # br1 is the only one
    done = resolve(create_bridge=True, nicparams={"link": "guests"})
    assert done.new_bridge == "guests"
    for given in ({"link": "eth0"}, {"mode": "routed", "link": ""}):
        with pytest.raises(errors.OpPrereqError, match="--create-bridge"):
            resolve(create_bridge=True, nicparams=given)


@pytest.mark.parametrize(
    ("bridges", "owner", "link"),
    [
        (["xen-br0", "br0"], "br0", "xen-br0"),
        (["br0", "br1"], "br1", "br1"),
        (["virbr0"], "eth0", "virbr0"),
        (["br7", "br8"], "eth0", "br0"),
    ],
)
def test_the_bridge_of_guests_is_the_usual_one(machine, bridges, owner, link):
    machine(bridges=bridges, owner=owner)
    assert resolve().options.nicparams["link"] == link


def test_existing_bridges_are_named_where_none_fits(machine):
    machine(bridges=["br7", "br8"])
    assert "-N link=NAME (bridges here: br7, br8)" in resolve().notes[-1]


def test_given_options_stay_as_they_are(machine):
    machine(bridges=["br0"])
    done = resolve(
        enabled_hypervisors=("fake",),
        enabled_disk_templates=("diskless",),
        master_netdev="eth1",
        nicparams={"mode": "routed", "link": "100"},
    )
    assert done.notes == ()
    assert done.options.nicparams == {"mode": "routed", "link": "100"}
    assert done.options.master_netdev == "eth1"


@pytest.mark.parametrize(
    ("answer", "given", "templates"),
    [
        (NO_LVM, {}, ("file",)),
        (vgs(other=90000), {}, ("file",)),
        (vgs(xenvg=1024), {}, ("file",)),
        (vgs(xenvg=90000), {}, None),
        (vgs(xenvg=90000), {"vg_name": ""}, ("file",)),
        (NO_LVM, {"vg_name": "data"}, None),
        (NO_LVM, {"enabled_disk_templates": ("plain",)}, ("plain",)),
    ],
)
def test_disks_are_files_where_no_volume_group_is_given_or_present(
    machine, answer, given, templates, monkeypatch
):
    monkeypatch.setattr(disks, "OFFERED_DISK_TEMPLATES", disks.DISK_TEMPLATES)
    machine(bridges=["br0"])
    done = resolve(answer, **given)
    assert done.options.enabled_disk_templates == templates
    reported = [note for note in done.notes if note.startswith("Disk template: file")]
    assert len(reported) == (templates == ("file",))


def test_lvm_that_is_not_installed_is_no_error(machine):
    machine(bridges=["br0"])

    class Absent(FakeRunner):
        def run(self, argv, **options):
            raise errors.CommandError(f"{argv[0]}: not found")

    done = machine_defaults.resolve(
        REAL, Absent(), InitOptions(cluster_name="c"), ADDRESS
    )
    assert done.options.enabled_disk_templates == ("file",)


def test_a_missing_emulator_is_named(machine):
    machine(bridges=["br0"]).unlink()
    assert "install qemu-system-x86 on every node" in resolve().notes[0]
    done = resolve(enabled_hypervisors=("fake",))
    assert "qemu" not in "".join(done.notes)


def test_a_virtual_node_gets_no_interfaces_of_the_machine(machine, tmp_path):
    machine(bridges=["br0"])
    done = resolve(paths=Paths(root=str(tmp_path / "n1"), hostname="n1"))
    assert done.options.master_netdev is None
    assert done.options.nicparams == {}


def test_disks_are_files_while_the_usual_templates_are_not_offered(
    machine, monkeypatch
):
    monkeypatch.setattr(disks, "OFFERED_DISK_TEMPLATES", ("diskless", "file"))
    machine(bridges=["br0"])
    done = resolve(vgs(xenvg=90000))
    assert done.options.enabled_disk_templates == ("file",)
    (note,) = [note for note in done.notes if note.startswith("Disk template: file")]
    assert "this release does not offer drbd and plain" in note
