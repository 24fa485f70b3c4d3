"""Networks of guests of Xen: the files of NICs, and the script that xl calls."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from fakes.processes import FakeRunner
from fakes.xen_guests import NIC, instance
from ganeti.base import clock, errors, pathutils
from ganeti.model.objects.filled import NetInfo
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.xen import files
from ganeti.tools.xen import vif_ganeti

ONLINE = {"XENBUS_PATH": "backend/vif/3/0", "vif": "vif3.0", "type_if": "vif"}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Effects of a node with one guest, and what it joins to its networks."""
    joined = []
    monkeypatch.setattr(
        networks, "join_network", lambda _effects, env: joined.append(env)
    )
    (tmp_path / "br7").write_text("9000\n")
    monkeypatch.setattr(vif_ganeti, "_MTU", f"{tmp_path}/{{}}")
    runner = FakeRunner(
        xenstore_read=(0, "web1\n", ""),
        xenstore_write=FakeRunner.DONE,
        ovs_vsctl=FakeRunner.DONE,
        ip=FakeRunner.DONE,
    )
    paths = pathutils.Paths(str(tmp_path), "n1")
    files.write_nics(paths, instance(nics=[NIC]))
    effects = NodeEffects(paths, runner, clock.SystemClock())
    return types.SimpleNamespace(effects=effects, runner=runner, joined=joined)


def test_a_file_has_all_that_a_script_needs(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    network = NetInfo(name="it's", uuid="u", network="192.0.2.0/24", tags=("a", "b"))
    second = NIC.replace(ip="192.0.2.9", netinfo=network, name="x y")
    files.write_nics(paths, instance(nics=[NIC, second]))
    values = files.read_nic(paths, "web1", 1)
    expected = {
        "INSTANCE": "web1",
        "MAC": NIC.mac,
        "MODE": "bridged",
        "LINK": "br7",
        "BRIDGE": "br7",
        "IP": "192.0.2.9",
        "INTERFACE_INDEX": "1",
        "INTERFACE_NAME": "x y",
        "NETWORK_NAME": "it's",
        "NETWORK_TAGS": "a b",
    }
    assert {key: values.get(key) for key in expected} == expected
    assert not {"PATH", "INTERFACE"} & set(values)
    # Fewer NICs leave no file of an earlier one.
    files.write_nics(paths, instance(nics=[NIC]))
    with pytest.raises(
        errors.HypervisorError, match=r"instance web1: NIC 1: .*No such"
    ):
        files.read_nic(paths, "web1", 1)


def test_a_shell_reads_a_file_without_running_anything(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    files.write_nics(paths, instance(nics=[NIC.replace(name="$(touch x); `y`")]))
    text = pathlib.Path(files.nic_directory(paths, "web1"), "0").read_text()
    assert "INTERFACE_NAME='$(touch x); `y`'\n" in text
    with pytest.raises(errors.HypervisorError, match="INTERFACE_NAME in one line"):
        files.write_nics(paths, instance(nics=[NIC.replace(name="a\nPATH=/x")]))


def test_a_damaged_file_is_an_error(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    files.write_nics(paths, instance(nics=[NIC]))
    pathlib.Path(files.nic_directory(paths, "web1"), "0").write_text("A='")
    with pytest.raises(errors.HypervisorError, match=r"NIC 0: .*No closing quotation"):
        files.read_nic(paths, "web1", 0)


def test_a_new_nic_joins_its_network_and_xen_hears_of_it(node):
    vif_ganeti.act(node.effects, "online", ONLINE)
    assert node.joined == []
    # No address of a bridge comes from its guests, see `networks.tap_address`.
    address = f"fe{NIC.mac[2:]}"
    assert node.runner.lines == [
        "xenstore-read /local/domain/3/name",
        f"ip link set dev vif3.0 address {address} mtu 9000 master br7 up",
        "xenstore-write backend/vif/3/0/hotplug-status connected",
    ]


def test_a_nic_with_a_vlan_needs_more_than_one_call(node):
    tagged = NIC.replace(nicparams={**NIC.nicparams, "vlan": ".5"})
    files.write_nics(node.effects.paths, instance(nics=[tagged]))
    vif_ganeti.act(node.effects, "online", ONLINE)
    (env,) = node.joined
    assert (env["INTERFACE"], env["BRIDGE"], env["VLAN"]) == ("vif3.0", "br7", ".5")
    assert len(node.runner.lines) == 2


def test_a_bridge_that_is_missing_is_named(node, tmp_path):
    (tmp_path / "br7").unlink()
    with pytest.raises(errors.HypervisorError, match=r"vif3\.0: bridge 'br7' does not"):
        vif_ganeti.act(node.effects, "online", ONLINE)
    assert len(node.runner.lines) == 1


def test_the_interface_of_an_emulator_joins_alone(node):
    more = {"type_if": "tap", "INTERFACE": "vif3.0-emu"}
    vif_ganeti.act(node.effects, "add", ONLINE | more)
    assert node.runner.lines[1].startswith("ip link set dev vif3.0-emu ")
    assert len(node.runner.lines) == 2


def test_a_guest_that_arrives_has_another_name_until_then(node):
    node.runner.answers["xenstore-read"] = (0, "web1--incoming\n", "")
    vif_ganeti.act(node.effects, "online", ONLINE)
    assert node.runner.lines[1].startswith("ip link set dev vif3.0 ")


def test_only_a_switch_has_to_be_left(node):
    vif_ganeti.act(node.effects, "offline", ONLINE)
    assert len(node.runner.lines) == 1
    switched = NIC.replace(nicparams={"mode": "openvswitch", "link": "sw0"})
    files.write_nics(node.effects.paths, instance(nics=[switched]))
    # A guest that has left in a migration has another name when its NIC goes.
    for name in ("web1", "web1--migratedaway"):
        node.runner.answers["xenstore-read"] = (0, f"{name}\n", "")
        node.runner.commands.clear()
        vif_ganeti.act(node.effects, "offline", ONLINE)
        assert node.runner.lines[-1] == "ovs-vsctl --if-exists del-port vif3.0"
    assert node.joined == []


@pytest.mark.parametrize(
    "change",
    [
        {"XENBUS_PATH": ""},
        {"XENBUS_PATH": "backend/vif/x/0"},
        {"vif": ""},
        {"vif": "a b"},
        {"vif": "x" * 16},
        {"type_if": "tap"},
    ],
    ids=range(6),
)
def test_calls_of_somebody_else_are_refused(node, change):
    with pytest.raises(errors.HypervisorError, match="wanted the place of a NIC"):
        vif_ganeti.act(node.effects, "online", ONLINE | change)
    assert node.runner.lines == []


def test_a_store_that_fails_is_an_error(node):
    node.runner.answers["xenstore-read"] = (1, "", "no such domain\n")
    text = "xenstore-read /local/domain/3/name: exited with code 1: no such domain"
    with pytest.raises(errors.HypervisorError, match=text):
        vif_ganeti.act(node.effects, "online", ONLINE)


def test_the_program_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(pathutils.ROOTDIR_ENV, f"{tmp_path}/n1")
    monkeypatch.setenv(pathutils.HOSTNAME_ENV, "n1")
    assert vif_ganeti.main(["online", "type_if=vif"]) == 1
    assert capsys.readouterr().err.startswith("vif-ganeti: wanted the place of a NIC")


def test_the_script_of_a_nic_loads_no_driver_and_no_large_library():
    """At each start of a guest, xl waits for it, and ends it after 40 seconds."""
    code = "import ganeti.tools.xen.vif_ganeti, sys; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    large = (
        "asyncio",
        "cryptography",
        "msgspec",
        "pyroute2",
        "ganeti.node.hypervisor.kvm",
    )
    assert not set(large) & set(done.stdout.split())
