"""Guests in operations: what they lack, their agents, displays of helper machines."""

import types

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base.constants.parameters import hvparams
from ganeti.node.hypervisor.kvm import checks
from ganeti.operations.instance.create import helper_machine

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
PARTS = ({"tpm": True}, {"shared_directories": "data=/srv/data"}, {}, {"tpm": True})


def engine(lost):
    """Return four guests, the last one stopped, on two nodes, and their names."""
    guests = [
        clusters.instance(
            number, primary=number % 2 + 1, hypervisor="kvm", hvparams=hvp
        )
        for number, hvp in enumerate(PARTS, 1)
    ]
    names = [guest.name for guest in guests]
    script = {
        **SUCCESSFUL_ACTS,
        "all_instances_info": dict.fromkeys(names[:3], RUNS),
        "blockdev_find": None,
        "node_verify": lost,
    }
    return Engine(clusters.snapshot(instances=0, extra=guests), script), names


def info(eng, **fields):
    return eng.run({"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [], **fields})


def test_what_a_node_has_lost_is_named_with_the_command():
    def lost(_node, args):
        (names,) = args[0].values()
        return {
            "guest-files": {name: ["shares", "tpm", "tpm-process"] for name in names}
        }

    eng, (first, second, third, fourth) = engine(lost)
    answer = info(eng)
    assert {node: args[0] for node, args in eng.rpc.called("node_verify")} == {
        NODE1: {"guest-files": [second]},
        NODE2: {"guest-files": [first, third]},
    }
    shares, file, process = answer[first]["problems"]
    assert shares == {
        "state": "shares",
        "text": "node node2.example.com does not run a process of its shared"
        " directories any more, so the guest has lost a directory",
        "command": f"gnt-instance reboot {first}",
    }
    assert (file["state"], file["command"]) == ("tpm", None)
    assert process["command"] == f"gnt-instance reboot {first}"
    assert len(answer[second]["problems"]) == len(answer[third]["problems"]) == 3
    assert "problems" not in answer[fourth]


@pytest.mark.parametrize(
    "answer",
    [
        failure(),
        {},
        {"guest-files": 7},
        {"guest-files": {"inst1.example.com": ["\x1b[2J"], "other": ["tpm"]}},
    ],
)
def test_a_node_that_says_nothing_of_use_names_none(answer):
    eng, names = engine(answer)
    known = info(eng)
    assert all("problems" not in known[name] for name in names)


def test_a_guest_that_is_stuck_is_a_problem():
    first, third = "inst1.example.com", "inst3.example.com"
    eng, _names = engine({"guest-files": {first: ["tpm", "stuck"], third: ["stuck"]}})
    known = info(eng)
    assert [each["state"] for each in known[first]["problems"]] == ["stuck", "tpm"]
    (stuck,) = known[third]["problems"]
    assert "since its live migration, only busy processors" in stuck["text"]
    assert stuck["command"] is None


def test_static_details_ask_no_node():
    eng, _names = engine({})
    info(eng, static=True)
    assert not eng.rpc.called("node_verify")


# The agent of a guest in operations: addresses in info, freezing for snapshots.

AGENT = {"use_guest_agent": True}


def agent_engine(**script):
    hosts = [
        clusters.instance(1, hypervisor="kvm", hvparams=AGENT),
        clusters.instance(2, hypervisor="kvm"),
        clusters.instance(3, hypervisor="kvm", hvparams=AGENT),
    ]
    names = [host.name for host in hosts]
    script = {
        **SUCCESSFUL_ACTS,
        "all_instances_info": dict.fromkeys(names[:2], RUNS),
        "blockdev_find": None,
        "node_verify": {},
        **script,
    }
    return Engine(clusters.snapshot(instances=0, extra=hosts), script), names


def test_only_running_guests_with_a_channel_are_asked():
    eng, names = agent_engine(guest_addresses={})
    answer = info(eng)
    ((_, args),) = eng.rpc.called("guest_addresses")
    assert args == ("kvm", [names[0]])
    assert all("guest_addresses" not in each for each in answer.values())
    info(eng, static=True)
    assert not eng.rpc.called("guest_addresses")


def test_the_word_of_a_node_is_checked():
    rows = [
        ["eth0", "aa:00:00:00:00:01", ["192.0.2.7/24", "evil"]],
        ["\x1b[2J", "", []],
        "x",
        [1, 2],
    ]
    name = "inst1.example.com"
    eng, _ = agent_engine(guest_addresses={name: rows, "other": rows})
    answer = info(eng)
    assert answer[name]["guest_addresses"] == [
        {"name": "eth0", "mac": "aa:00:00:00:00:01", "addresses": ["192.0.2.7/24"]}
    ]
    eng, _ = agent_engine(guest_addresses=failure())
    assert "guest_addresses" not in info(eng)[name]


# Parameters of helper machines on clusters whose guests have displays.

VNC = {
    "vnc_bind_address": "0.0.0.0",
    "vnc_password_file": "/etc/ganeti/vnc-cluster-password",
    "vnc_tls": True,
    "vnc_x509_path": "/etc/ganeti/vnc",
    "vnc_x509_verify": True,
}
SPICE = {
    "spice_bind": "0.0.0.0",
    "spice_image_compression": "off",
    "spice_ip_version": 4,
    "spice_jpeg_wan_compression": "never",
    "spice_password_file": "/etc/ganeti/spice-cluster-password",
    "spice_streaming_video": "off",
    "spice_use_tls": True,
    "spice_zlib_glz_wan_compression": "never",
}


def filled(hypervisor, own):
    """Return the parameters of a helper machine on a cluster with its own ones."""
    rows = hvparams.HYPERVISOR[hypervisor]
    full = {name: row.default for name, row in rows.items()} | own
    every = clusters.EXAMPLE["cluster"]["hvparams"] | {hypervisor: full}
    snapshot = clusters.snapshot(instances=1, hvparams=every)
    (instance,) = snapshot.instances.values()
    ctx = types.SimpleNamespace(snapshot=snapshot)
    return helper_machine.wire(ctx, instance.replace(hypervisor=hypervisor))["hvparams"]


@pytest.mark.parametrize("display", [VNC, SPICE])
def test_the_emulator_accepts_them_without_the_display_of_other_guests(display):
    hvp = filled("kvm", display)
    checks.check_combinations(hvp)
    # Passwords of displays are set in each emulator, which refuses one without display.
    names = ("vnc_bind_address", "spice_bind", "vnc_password_file")
    assert [hvp[name] for name in names] == ["", "", ""]


def test_a_display_is_no_part_of_it_under_xen():
    assert filled("xen-hvm", {})["vnc_bind_address"] == ""


@pytest.mark.parametrize("hypervisor", ["kvm", "xen-hvm"])
def test_it_can_power_itself_off(hypervisor):
    assert filled(hypervisor, {"acpi": False})["acpi"] is True
