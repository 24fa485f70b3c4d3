"""An address or MAC that somebody has is refused at once, with the owner's name."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti import errors, objects

SCRIPT = {
    "node_info": ["boot", [], [{"memory_free": 9999, "memory_total": 9999}]],
    "instance_info": {},
    "hooks_runner": [],
}
ROUTED = {"mode": "routed", "link": "lab"}
TAKEN = ROUTED | {"ip": "192.0.2.9"}
MAC = "aa:00:00:00:00:01"


def nic(number=1, **changes):
    actual = objects.Nic(
        uuid=f"00000000-0000-4000-8000-00000000020{number}",
        mac=f"aa:00:00:00:00:0{number}",
        ip="192.0.2.9",
        nicparams=ROUTED,
    )
    return actual.replace(**changes)


def engine(*extra, **cluster):
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["disk-templates"] = ["diskless"]
    for key in ("nic-count", "disk-count"):
        policy["minmax"][0]["min"][key] = 0
    owner = clusters.instance(1, admin_state="down", disks_active=False)
    return Engine(
        clusters.snapshot(
            extra=[owner.replace(nics=(nic(),)), *extra], ipolicy=policy, **cluster
        ),
        SUCCESSFUL_ACTS | SCRIPT,
    )


def create(*nics, **changes):
    return {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "web1.example.com",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": list(nics),
        "os_type": "tiny",
        "no_install": True,
        "start": False,
        "pnode": "node1.example.com",
        "hypervisor": "fake",
    } | changes


def modify(*changes, **options):
    return {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": "inst1.example.com",
        "nics": [list(change) for change in changes],
    } | options


def refused(request, text, eng=None):
    eng = eng or engine()
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text) as caught:
        eng.run(request)
    assert eng.snapshot is before
    return caught.value.args[1]


@pytest.mark.parametrize(
    ("nics", "text"),
    [
        ([TAKEN], r"nic 0: address 192\.0\.2\.9 is used by instance inst1\S+ \(NIC 0"),
        ([{"mac": MAC.upper()} | ROUTED | {"ip": "192.0.2.8"}], f"MAC {MAC} is used"),
        (
            [ROUTED | {"ip": "192.0.2.8"}] * 2,
            r"nic 1: address 192\.0\.2\.8 is also the address of nic 0",
        ),
        (
            [
                ROUTED | {"ip": f"192.0.2.{number}", "mac": "aa:00:00:00:00:09"}
                for number in (7, 8)
            ],
            "nic 1: MAC aa:00:00:00:00:09 is also the MAC of nic 0",
        ),
    ],
)
def test_a_new_instance_with_taken_addresses_is_refused(nics, text):
    assert refused(create(*nics), text) == "resource_not_unique"


def test_nodes_and_the_cluster_have_addresses_on_the_default_link():
    link = engine().snapshot.cluster.nicparams["default"]["link"]
    for address, who in (
        ("192.0.2.2", r"node node2\S+ \(primary\)"),
        ("192.0.2.100", "the cluster"),
    ):
        spec = {"mode": "bridged", "link": link, "ip": address}
        refused(create(spec), f"address {address} is used by {who}")


def test_the_same_address_on_another_link_is_another_address():
    eng = engine()
    eng.run(create(TAKEN | {"link": "other"}))
    assert len(eng.snapshot.instances) == 2


def test_taken_addresses_are_accepted_without_the_check():
    eng = engine()
    eng.run(create(TAKEN, conflicts_check=False))
    assert len(eng.snapshot.instances) == 2


def test_a_changed_nic_with_a_taken_address_is_refused():
    other = clusters.instance(2).replace(nics=(nic(2, ip="192.0.2.77"),))
    text = r"nic 0: address 192\.0\.2\.77 is used by instance inst2"
    refused(modify((0, {"ip": "192.0.2.77"})), text, engine(other))
    eng = engine(other)
    eng.run(modify((0, {"ip": "192.0.2.77"}), conflicts_check=False))
    eng.run(modify((0, {"name": "eth0"})))


def test_an_instance_keeps_its_address_when_it_is_named_again():
    eng = engine()
    eng.run(modify((0, {"ip": "192.0.2.9", "name": "eth0"})))
    (instance,) = eng.snapshot.instances.values()
    assert [(n.ip, n.name) for n in instance.nics] == [("192.0.2.9", "eth0")]


def test_an_address_inside_a_connected_network_is_taken_from_there():
    network = objects.Network(
        uuid="00000000-0000-4000-8000-000000000301",
        name="lan",
        network="198.51.100.0/28",
        serial_no=1,
    )
    group = clusters.group().replace(networks={network.uuid: dict(ROUTED)})
    spec = ROUTED | {"ip": "198.51.100.3"}
    text = r"address 198\.51\.100\.3 is in network lan.*network=lan"
    refused(create(spec), text, engine(network, group))
    eng = engine(network, group)
    eng.run(create(spec, conflicts_check=False))


def test_a_bridged_nic_needs_a_bridge():
    cluster = engine().snapshot.cluster
    default = cluster.nicparams["default"] | {"link": "", "mode": "routed"}
    request = create({"mode": "bridged"})
    eng = engine(nicparams={"default": default})
    refused(request, "nic 0: mode bridged needs link=BRIDGE", eng)
