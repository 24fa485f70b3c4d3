"""``gnt-network``: requests, and texts character by character as documented."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

LAN = {
    "name": "blue",
    "uuid": "net-uuid",
    "serial_no": 3,
    "network": "192.0.2.0/28",
    "gateway": "192.0.2.1",
    "network6": (3, None),
    "gateway6": (3, None),
    "mac_prefix": "aa:00:01",
    "free_count": 12,
    "reserved_count": 4,
    "map": "XX.............X",
    "external_reservations": "192.0.2.0, 192.0.2.15",
    "group_list": [["rackB", "bridged", "br7", ""]],
    "inst_list": ["web2"],
    "tags": [],
}
USER = {
    "name": "web2",
    "nic.networks": ["net-uuid", None, "net-uuid"],
    "nic.ips": ["192.0.2.5", None, None],
}


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.objects["network"] = [LAN]
    fake.objects["instance"] = [USER]
    fake.objects["group"] = [{"name": "default"}, {"name": "rackB"}]
    return fake


def run(line, master):
    done = commands.run(line, master)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_info_is_the_documented_text(master):
    text = run("gnt-network info blue", master)
    assert text == (
        "Network name: blue\n"
        "UUID: net-uuid\n"
        "Serial number: 3\n"
        "  Subnet: 192.0.2.0/28\n"
        "  Gateway: 192.0.2.1\n"
        "  IPv6 Subnet: None\n"
        "  IPv6 Gateway: None\n"
        "  Mac Prefix: aa:00:01\n"
        "  Size: 16\n"
        "  Free: 12 (75.00%)\n"
        "  Usage map:\n"
        f"        0 XX.............X{' ' * 48} 63\n"
        "         (X) used    (.) free\n"
        "  externally reserved IPs:\n"
        "    192.0.2.0, 192.0.2.15\n"
        "  connected to node groups:\n"
        "    rackB (mode:bridged link:br7 vlan:)\n"
        "  used by 1 instances:\n"
        "    web2: 0:192.0.2.5, 2:None\n"
    )


def test_info_of_an_unused_large_network(master):
    reserved = ", ".join(f"10.0.0.{number}" for number in range(9))
    master.objects["network"] = [
        LAN
        | {
            "map": "X" * 9 + "." * 119,
            "free_count": 119,
            "reserved_count": 9,
            "external_reservations": reserved,
            "group_list": [],
            "inst_list": [],
        }
    ]
    lines = run("gnt-network info", master).splitlines()
    assert lines[11:] == [
        f"        0 {'X' * 9}{'.' * 55} 63",
        f"       64 {'.' * 64} 127",
        "         (X) used    (.) free",
        "  externally reserved IPs:",
        "    10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5,",
        "    10.0.0.6, 10.0.0.7, 10.0.0.8",
        "  not connected to any node group",
        "  not used by any instances",
    ]


def test_info_as_json_has_lists_of_groups_and_instances(master):
    (shown,) = json.loads(run("gnt-network info --json", master))
    assert shown["external_reservations"] == ["192.0.2.0", "192.0.2.15"]
    assert (shown["size"], shown["gateway6"]) == (16, None)
    assert shown["groups"] == [
        {"group": "rackB", "mode": "bridged", "link": "br7", "vlan": ""}
    ]
    assert shown["instances"] == [
        {
            "name": "web2",
            "nics": [{"index": 0, "ip": "192.0.2.5"}, {"index": 2, "ip": None}],
        }
    ]


def test_connections_are_listed_in_the_documented_form(master):
    assert run("gnt-network list --no-headers", master) == (
        "blue 192.0.2.0/28 192.0.2.1 aa:00:01 rackB (bridged, br7, ) \n"
    )


# Connections
def defaults(**params):
    known = {"name": "c.tst", "software_version": "3.1"}
    return known | {"nicparams": {"default": params}}


def sent(master):
    return [op for ops in master.jobs.values() for op in ops]


def connection(op):
    assert op.op_id() == "OP_NETWORK_CONNECT"
    params = op.network_mode, op.network_link, op.network_vlan
    return (op.network_name, op.group_name, *params, op.conflicts_check)


def test_a_network_is_connected_to_all_groups_with_the_default_parameters(master):
    master.cluster = defaults(mode="bridged", link="br0")
    run("gnt-network connect blue", master)
    assert [connection(op) for op in sent(master)] == [
        ("blue", "default", "bridged", "br0", "", True),
        ("blue", "rackB", "bridged", "br0", "", True),
    ]


def test_given_parameters_replace_the_defaults(master):
    master.cluster = defaults(mode="bridged", link="br0", vlan=".3")
    run("gnt-network connect -N link=br1 --no-conflicts-check blue rackB", master)
    run("gnt-network connect -N mode=routed,link=7 blue rackB", master)
    assert [connection(op) for op in sent(master)] == [
        ("blue", "rackB", "bridged", "br1", ".3", False),
        ("blue", "rackB", "routed", "7", "", True),
    ]


def test_each_group_is_disconnected_by_a_job_of_its_own(master):
    run("gnt-network disconnect blue", master)
    run("gnt-network disconnect blue rackB", master)
    assert [(op.op_id(), op.group_name) for op in sent(master)] == [
        ("OP_NETWORK_DISCONNECT", "default"),
        ("OP_NETWORK_DISCONNECT", "rackB"),
        ("OP_NETWORK_DISCONNECT", "rackB"),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("gnt-network add blue", "--network option must be given"),
        ("gnt-network modify blue", "Please give at least one of the parameters.\n"),
        (
            "gnt-network connect -N colour=red blue",
            "parameter colour: unknown; there are link, mode",
        ),
    ],
)
def test_missing_and_unknown_values_are_refused_before_submission(master, line, text):
    master.cluster = defaults(mode="bridged", link="br0")
    done = commands.run(line, master)
    assert done.code == 1
    assert text in done.err
    assert not master.jobs
