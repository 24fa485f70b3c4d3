"""An address or MAC that somebody has is refused at once, with the owner's name."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.master.config.address_pool import AddressPool
from ganeti.model import objects

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


# Networks
LAN = clusters.NETWORK
BRIDGED = {"mode": "bridged", "link": "lab", "vlan": ""}
FAR = "00000000-0000-4000-8000-0000000000b0"


def networked(*extra, connected=True, **network):
    networks = {LAN: BRIDGED} if connected else {}
    return engine(
        clusters.network(**network),
        clusters.group(networks=networks),
        clusters.group("far", FAR),
        clusters.node(4, group=FAR),
        *extra,
    )


def created(made, *nics, name="web1.example.com", **changes):
    made.run(create(*nics, instance_name=name, **changes))
    snapshot = made.snapshot
    return snapshot.instances[snapshot.uuid_of("instances", name)].nics


def used_addresses(made):
    return AddressPool(made.snapshot.networks[LAN]).used()


@pytest.mark.parametrize("name", ["lan", LAN])
def test_the_pool_gives_the_lowest_address_and_the_connection_its_parameters(name):
    made = networked(mac_prefix="aa:00:07", gateway="198.51.100.1")
    first, second = created(made, *[{"network": name, "ip": "pool"}] * 2)
    assert [first.ip, second.ip] == ["198.51.100.1", "198.51.100.2"]
    assert (first.network, first.nicparams) == (LAN, BRIDGED)
    assert first.mac.startswith("aa:00:07:")
    assert used_addresses(made) == ["198.51.100.1", "198.51.100.2"]


def test_addresses_are_free_again_after_changes_and_removal():
    made = networked()
    created(made, {"network": "lan", "ip": "pool"}, {"network": "lan"})

    def modify(*mods):
        made.run(
            {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1"}
            | {"nics": list(mods)}
        )

    modify(["modify", 0, {"ip": "198.51.100.9"}])
    assert used_addresses(made) == ["198.51.100.9"]
    modify(["modify", 1, {"ip": "pool"}])
    assert used_addresses(made) == ["198.51.100.1", "198.51.100.9"]
    modify(["modify", 0, {"network": "none", "ip": "none"}])
    assert used_addresses(made) == ["198.51.100.1"]
    modify(["remove", 1, {}])
    assert used_addresses(made) == []
    modify(["add", -1, {"network": "lan", "ip": "pool"}])
    assert used_addresses(made) == ["198.51.100.1"]
    made.run(
        {
            "OP_ID": "OP_INSTANCE_REMOVE",
            "instance_name": "web1",
            "shutdown_timeout": 1,
        }
    )
    assert used_addresses(made) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"network": "lan", "ip": "198.51.100.3"}, "is used by an instance"),
        ({"network": "lan", "ip": "198.51.100.0"}, "is reserved"),
        ({"network": "lan", "ip": "10.0.0.1"}, "10.0.0.1 is not in network lan"),
        (
            {"network": "lan", "ip": "2001:db8::7"},
            "network lan: wanted an IPv4 address of 198.51.100.0/",
        ),
        ({"ip": "fe80::1%$(id)"}, "wanted an ip address, auto, pool or none"),
        ({"link": "br0,x"}, "wanted as link a name of letters, digits"),
        ({"network": "lan", "link": "br1"}, "link cannot be given together with"),
        ({"network": "wan", "ip": "pool"}, "Network 'wan' not known"),
        ({"ip": "pool"}, "ip pool needs a network"),
        ({"ip": "198.51.100.4"}, "is in network lan, take it from there"),
    ],
)
def test_addresses_of_networks_are_checked_at_a_creation(spec, text):
    made = networked()
    taker = {"network": "lan", "ip": "198.51.100.3"}
    created(made, taker, name="first.example.com")
    before = made.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        made.run(create(spec))
    assert made.snapshot is before


def test_a_full_network_gives_no_address():
    made = networked(reservations="1" * 16)
    with pytest.raises(errors.OpPrereqError, match="has no free address") as caught:
        made.run(create({"network": "lan", "ip": "pool"}))
    assert caught.value.args[1] == "insufficient_resources"


def test_without_the_check_an_address_of_a_network_is_taken_outside_of_it():
    made = networked()
    (taken,) = created(made, {"ip": "198.51.100.4"}, conflicts_check=False)
    assert (taken.ip, taken.network) == ("198.51.100.4", None)
    assert used_addresses(made) == []


def test_a_network_must_be_connected_to_the_group_of_the_instance():
    made = networked(connected=False)
    with pytest.raises(errors.OpPrereqError, match="not connected to node group def"):
        made.run(create({"network": "lan", "ip": "pool"}))
    # A connection that ended between check and commit.
    owner = made.snapshot.instances[clusters.instance_uuid(1)]
    joined = owner.replace(nics=(nic(network=LAN, ip="198.51.100.4"),))
    with (
        pytest.raises(errors.ConfigurationError, match="not connected to node group"),
        made.config.edit("t") as edit,
    ):
        edit.update(joined)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (create({"ip": "198.51.100.4"}), "instance web1.*nic 0: address 198"),
        (
            create({"ip": "198.51.100.4"}, forthcoming=True),
            "instance web1.*nic 0: address 198",
        ),
        (modify((0, {"ip": "198.51.100.4"})), "instance inst1.*nic 0: address 198"),
    ],
    ids=["create", "reserve", "modify"],
)
def test_a_network_that_is_connected_after_the_checks_has_its_addresses(
    monkeypatch, request_, text
):
    made = networked(connected=False)
    commit = made.config.edit

    def edit_after_another(owner, **options):
        with commit("another job") as edit:
            group = edit.snapshot.nodegroups[clusters.GROUP]
            edit.update(group.replace(networks={LAN: BRIDGED}))
        return commit(owner, **options)

    monkeypatch.setattr(made.config, "edit", edit_after_another)
    before = dict(made.snapshot.instances)
    with pytest.raises(errors.OpPrereqError, match=f"{text}.* is in network lan"):
        made.run(request_)
    assert dict(made.snapshot.instances) == before


def test_another_group_needs_the_network_too():
    made = networked()
    created(made, {"network": "lan", "ip": "pool"})
    with pytest.raises(errors.OpPrereqError, match="lan is not connected to node grou"):
        made.run(
            {
                "OP_ID": "OP_INSTANCE_SET_PARAMS",
                "instance_name": "web1",
                "pnode": "node4",
            }
        )


def test_two_nics_of_an_instance_do_not_get_one_address():
    made = networked()
    spec = {"network": "lan", "ip": "198.51.100.9"}
    text = r"nic 1: address 198\.51\.100\.9 is also the address of nic 0"
    refused(create(spec, spec), text, made)
    refused(create(spec, spec, conflicts_check=False), text, made)
    created(made, {"network": "lan"}, {"network": "lan", "ip": "pool"})
    changes = [["modify", index, spec] for index in (0, 1)]
    refused(modify(*changes) | {"instance_name": "web1", "nics": changes}, text, made)


def test_a_new_nic_is_changed_by_the_same_command():
    made = networked()
    created(made, {"network": "lan", "ip": "pool"})
    made.run(
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1"}
        | {
            "nics": [
                ["add", -1, {"network": "lan", "ip": "pool"}],
                ["modify", -1, {"name": "eth1"}],
            ]
        }
    )
    assert used_addresses(made) == ["198.51.100.1", "198.51.100.2"]


def test_an_address_moves_to_another_nic_by_one_command():
    made = networked()
    created(made, {"network": "lan", "ip": "198.51.100.9"}, {"network": "lan"})
    made.run(
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1"}
        | {
            "nics": [
                ["modify", 0, {"ip": "none"}],
                ["modify", 1, {"ip": "198.51.100.9"}],
            ]
        }
    )
    assert used_addresses(made) == ["198.51.100.9"]
