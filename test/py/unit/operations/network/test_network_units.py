"""Networks: creating, changing, connecting them, and their users."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.master.config import checks
from ganeti.master.config.address_pool import AddressPool
from ganeti.master.locking import Level
from ganeti.model import objects

N1 = clusters.node_uuid(1)
RACK = "00000000-0000-4000-8000-0000000000b0"
LAN, DMZ = clusters.NETWORK, "00000000-0000-4000-8000-0000000000c1"
BRIDGED = {"mode": "bridged", "link": "br0", "vlan": ""}


def nic(number=1, **changes):
    data = {
        "uuid": f"00000000-0000-4000-8000-00000000020{number}",
        "mac": f"aa:00:00:00:00:0{number}",
        "nicparams": BRIDGED,
    }
    return objects.from_dict(objects.Nic, {**data, **changes})


def user(ip="198.51.100.2", network=LAN, **changes):
    """Return an instance with one NIC."""
    return clusters.instance(1, **changes).replace(nics=(nic(ip=ip, network=network),))


def engine_with(*extra, **cluster):
    start = clusters.snapshot(
        extra=[clusters.group("rack", RACK), *extra],
        candidate_pool_size=1,
        **cluster,
    )
    return Engine(start, {"hooks_runner": []})


def used():
    """Return the network of `user`, connected, with its address in use."""
    bits = "0010" + "0" * 12
    return (
        clusters.network(reservations=bits),
        clusters.group(networks={LAN: BRIDGED}),
        user(),
    )


def run(engine, op, name="lan", **options):
    return engine.run({"OP_ID": f"OP_NETWORK_{op}", "network_name": name, **options})


def network(engine, name="lan"):
    return engine.snapshot.networks[engine.snapshot.uuid_of("networks", name)]


def connect(engine, name="lan", group="default", **options):
    values = {"network_mode": "bridged", "network_link": "br0"}
    return run(engine, "CONNECT", name, group_name=group, **values | options)


def refused(engine, match, op, *args, **options):
    before = engine.snapshot
    with pytest.raises(errors.OpPrereqError, match=match) as caught:
        run(engine, op, *args, **options)
    assert engine.snapshot is before
    assert engine.locks.is_idle()
    return caught.value


# Creating
def test_a_network_is_created_with_ends_gateway_and_hosts_reserved():
    engine = engine_with()
    result = run(
        engine,
        "ADD",
        "new",
        network="192.0.2.0/28",
        gateway="192.0.2.9",
        network6="2001:0db8::/64",
        gateway6="2001:db8:0::1",
        mac_prefix="AA:00:01",
        add_reserved_ips=["192.0.2.12", "192.0.2.9"],
        tags=["b", "a", "a"],
    )
    assert result is None
    made = network(engine, "new")
    # Nodes have .1 to .3, the cluster .100.
    assert made.ext_reservations == "1111000001001001"
    assert made.reservations == "0" * 16
    assert (made.gateway, made.network6, made.gateway6) == (
        "192.0.2.9",
        "2001:db8::/64",
        "2001:db8::1",
    )
    assert (made.mac_prefix, made.tags) == ("aa:00:01", ("a", "b"))
    assert made.uuid in engine.locks.names(Level.NETWORK)
    lines = [
        entry for entry in engine.callbacks.text().splitlines() if "192.0.2.2 " in entry
    ]
    assert lines == [
        " - INFO: network new: reserved 192.0.2.2 of node node2.example.com"
    ]
    run(engine, "SET_PARAMS", "new", gateway6="fe80::1")
    assert network(engine, "new").gateway6 == "fe80::1"
    assert engine.locks.is_idle()


def test_an_address_of_a_node_that_is_reserved_already_is_a_warning():
    engine = engine_with()
    run(engine, "ADD", "new", network="192.0.2.0/24", gateway="192.0.2.2")
    (line,) = [
        text for text in engine.callbacks.text().splitlines() if "WARNING" in text
    ]
    assert "192.0.2.2 of node node2.example.com is already reserved" in line


def test_without_the_check_addresses_of_nodes_stay_free():
    engine = engine_with()
    run(engine, "ADD", "new", network="192.0.2.0/29", conflicts_check=False)
    assert network(engine, "new").ext_reservations == "10000001"
    # Verify names those that instances may get, with the command that helps.
    engine.run({"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"})
    findings = [
        line for line in engine.callbacks.text().splitlines() if "is free for" in line
    ]
    assert len(findings) == 3
    assert "network new: 192.0.2.2 of node node2.example.com is free" in findings[1]
    assert "gnt-network modify --add-reserved-ips=192.0.2.2 new" in findings[1]
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        run(engine, "SET_PARAMS", "new", add_reserved_ips=[address])
    before = len(engine.callbacks.text())
    engine.run({"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"})
    assert "is free for" not in engine.callbacks.text()[before:]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "lan"}, "already exists"),
        ({"name": "None"}, "stands for no network"),
        ({"name": LAN}, "look like a uuid"),
        ({"name": "a\nb"}, "printable characters only"),
        ({"name": "a" * 256}, "network a{40}...: wanted .* 255 characters, found 256"),
        ({"network": "198.51.100.7/24"}, "has host bits set"),
        ({"network": "300.0.0.0/24"}, "found 300.0.0.0/24"),
        ({"network": "10.0.0.0/15"}, "wanted a range of /16 to /30"),
        ({"network": "10.0.0.0/31"}, "wanted a range of /16 to /30"),
        ({"gateway": "192.0.2.1"}, "gateway: 192.0.2.1 is not in 198.51.100.0/24"),
        ({"gateway": "198.51.100.0"}, "first or last address"),
        ({"gateway": "198.51.100.999"}, "wanted an IPv4 address"),
        ({"network6": "2001:db8::1/64"}, "network6: .* has host bits set"),
        ({"gateway6": "2001:db8::1"}, "needs network6, and there is none"),
        (
            {"network6": "2001:db8::/64", "gateway6": "2001:db9::1"},
            "2001:db9::1 is not in 2001:db8::/64, nor in fe80::/10",
        ),
        (
            {"network6": "2001:db8::/64", "gateway6": "fe80::1%lo"},
            "gateway6: wanted an IPv6 address",
        ),
        ({"network6": "2001:db8::%a,b/64"}, "network6: wanted an IPv6 range"),
        ({"mac_prefix": "aa:00"}, "wanted three octets"),
        ({"mac_prefix": "ab:00:00"}, "prefix of group addresses"),
        ({"add_reserved_ips": ["192.0.2.1"]}, "reserved address: 192.0.2.1 is not in"),
        ({"network": "198.51.100.0"}, "network"),
        ({"gateway": "x"}, "gateway"),
    ],
)
def test_impossible_networks_are_refused(options, text):
    engine = engine_with(clusters.network())
    name = options.pop("name", "new")
    refused(engine, text, "ADD", name, **{"network": "198.51.100.0/24"} | options)
    assert engine.locks.names(Level.NETWORK) == {LAN}


def test_a_bad_tag_is_refused():
    engine = engine_with()
    with pytest.raises(errors.TagError, match="invalid characters"):
        run(engine, "ADD", "new", network="198.51.100.0/24", tags=["a b"])
    many = [f"t{number}" for number in range(4097)]
    with pytest.raises(errors.TagError, match="at most 4096 per object, wanted 4097"):
        run(engine, "ADD", "new", network="198.51.100.0/24", tags=many)


# Removing and renaming
def test_a_connected_network_is_not_removed_and_a_free_one_is():
    engine = engine_with(clusters.network())
    connect(engine)
    refused(engine, "is connected to default; disconnect it", "REMOVE", force=True)
    run(engine, "DISCONNECT", group_name="default")
    assert run(engine, "REMOVE") is None
    assert not engine.snapshot.networks
    assert LAN not in engine.locks.names(Level.NETWORK)


def test_a_network_in_use_without_a_connection_is_not_removed():
    engine = engine_with(clusters.network(), user())
    refused(engine, r"used by instance inst1.example.com \(NIC 0\)", "REMOVE")


def test_renaming_keeps_users_and_changes_the_serial_of_the_cluster():
    engine = engine_with(*used(), clusters.network("dmz", DMZ))
    serial = engine.snapshot.cluster.serial_no
    assert run(engine, "RENAME", new_name="office") == "office"
    assert network(engine, "office").uuid == LAN
    assert engine.snapshot.cluster.serial_no == serial + 1
    refused(engine, "already exists", "RENAME", "office", new_name="dmz")
    refused(engine, "stands for no network", "RENAME", "office", new_name="none")


# Changing
def test_a_new_gateway_is_reserved_and_the_old_one_is_free():
    engine = engine_with(clusters.network())
    run(engine, "SET_PARAMS", gateway="198.51.100.1")
    run(engine, "SET_PARAMS", gateway="198.51.100.3")
    changed = network(engine)
    assert changed.gateway == "198.51.100.3"
    assert AddressPool(changed).external() == [
        "198.51.100.0",
        "198.51.100.3",
        "198.51.100.15",
    ]
    run(engine, "SET_PARAMS", gateway="none")
    assert network(engine).gateway is None
    assert AddressPool(network(engine)).external() == ["198.51.100.0", "198.51.100.15"]


def test_reserved_addresses_are_added_and_removed():
    engine = engine_with(clusters.network())
    given = ["198.51.100.4", "198.51.100.5"]
    run(engine, "SET_PARAMS", add_reserved_ips=given)
    assert AddressPool(network(engine)).external()[1:3] == given
    run(
        engine,
        "SET_PARAMS",
        add_reserved_ips=["198.51.100.6"],
        remove_reserved_ips=["198.51.100.4"],
    )
    assert AddressPool(network(engine)).external()[1:3] == [
        "198.51.100.5",
        "198.51.100.6",
    ]


def test_addresses_in_use_are_not_reserved_with_a_warning():
    engine = engine_with(*used())
    run(
        engine,
        "SET_PARAMS",
        add_reserved_ips=["198.51.100.2", "198.51.100.0", "198.51.100.4"],
        remove_reserved_ips=["198.51.100.7"],
    )
    warnings = [
        text for text in engine.callbacks.text().splitlines() if "WARNING" in text
    ]
    assert [text.partition("lan: ")[2] for text in warnings] == [
        "198.51.100.2 is used by an instance and not reserved",
        "198.51.100.0 is already reserved",
        "198.51.100.7 is not reserved",
    ]
    pool = AddressPool(network(engine))
    assert pool.is_used("198.51.100.2")
    assert not pool.is_external("198.51.100.2")
    assert pool.is_external("198.51.100.4")


def test_values_end_with_none():
    values = {
        "network6": "2001:db8::/64",
        "gateway6": "2001:db8::1",
        "mac_prefix": "aa:00:01",
    }
    engine = engine_with(clusters.network(**values))
    refused(engine, "needs network6", "SET_PARAMS", network6="none")
    run(engine, "SET_PARAMS", **dict.fromkeys(values, "none"))
    changed = network(engine)
    assert (changed.network6, changed.gateway6, changed.mac_prefix) == (None,) * 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no changes given"),
        ({"gateway": "198.51.100.2"}, "gateway: 198.51.100.2 is used by an instance"),
        ({"gateway": "192.0.2.1"}, "is not in"),
        (
            {"gateway": "none", "add_reserved_ips": ["198.51.100.4"]},
            "cannot change together",
        ),
        ({"add_reserved_ips": ["192.0.2.4"]}, "192.0.2.4 is not in"),
        ({"remove_reserved_ips": ["198.51.100.0"]}, "stays reserved"),
        (
            {
                "add_reserved_ips": ["198.51.100.4"],
                "remove_reserved_ips": ["198.51.100.4"],
            },
            "reserved and released together",
        ),
    ],
)
def test_impossible_changes_are_refused(options, text):
    refused(engine_with(*used()), text, "SET_PARAMS", **options)


def test_an_address_that_a_running_job_is_about_to_assign_is_not_reserved():
    engine = engine_with(clusters.network())
    taken = engine.config.generate_ip("job-9/0", LAN)
    refused(engine, "reserved by job-9/0", "SET_PARAMS", add_reserved_ips=[taken])
    refused(engine, "reserved by job-9/0", "SET_PARAMS", gateway=taken)


# Connecting
def test_a_connection_stores_mode_link_and_vlan():
    engine = engine_with(clusters.network())
    connect(engine, network_mode="openvswitch", network_link="sw1", network_vlan="7")
    connect(engine, group="rack", network_mode="routed", network_link="100")
    groups = engine.snapshot.nodegroups
    stored = {"mode": "openvswitch", "link": "sw1", "vlan": ".7"}
    assert groups[clusters.GROUP].networks == {LAN: stored}
    assert groups[RACK].networks == {LAN: {"mode": "routed", "link": "100", "vlan": ""}}


def test_a_second_connection_and_a_second_end_are_warnings_without_change():
    engine = engine_with(clusters.network())
    connect(engine)
    before = engine.snapshot
    connect(engine, network_link="br7")
    assert engine.snapshot is before
    assert "already connected to node group default" in engine.callbacks.text()
    run(engine, "DISCONNECT", group_name="default")
    before = engine.snapshot
    run(engine, "DISCONNECT", group_name="default")
    assert engine.snapshot is before
    assert "is not connected to node group default" in engine.callbacks.text()


def test_addresses_outside_of_the_network_prevent_a_connection():
    engine = engine_with(clusters.network(), user(network=None))
    refused(
        engine,
        r"instance inst1.example.com \(NIC 0\) with 198.51.100.2, outside",
        "CONNECT",
        group_name="default",
        network_mode="bridged",
        network_link="br0",
    )
    # The instance is not in this group.
    connect(engine, group="rack")
    connect(engine, conflicts_check=False)
    assert LAN in engine.snapshot.nodegroups[clusters.GROUP].networks


def test_a_connection_in_use_does_not_end():
    engine = engine_with(*used())
    refused(
        engine,
        r"from node group default, it is used by instance inst1.example.com \(NIC 0\)",
        "DISCONNECT",
        group_name="default",
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"network_mode": "pool"}, "wanted mode bridged, routed or openvswitch"),
        ({"network_link": "a b"}, "name of an interface, up to 15 characters"),
        ({"network_link": "x" * 16}, "up to 15 characters"),
        ({"network_mode": "routed", "network_link": "../x"}, "routing table"),
        ({"network_mode": "routed", "network_vlan": "7"}, "no effect in mode routed"),
        ({"network_vlan": "x"}, "wanted vlan as number"),
        ({"network_vlan": "4095"}, "wanted VLANs from 1 to 4094, found 4095"),
        ({"group_name": "none"}, "Node group 'none' not known"),
        ({"name": "none"}, "Network 'none' not known"),
    ],
)
def test_impossible_connections_are_refused(options, text):
    values = {
        "group_name": "default",
        "network_mode": "bridged",
        "network_link": "br0",
    } | options
    name = values.pop("name", "lan")
    refused(engine_with(clusters.network()), text, "CONNECT", name, **values)


def test_instances_of_the_group_are_locked_while_addresses_are_compared():
    engine = engine_with(*used(), clusters.network("dmz", DMZ, network="10.0.0.0/28"))
    connect(engine, "dmz")
    wanted = (frozenset({"inst1.example.com"}), True)
    assert engine.locks.modes()[Level.INSTANCE] == wanted
    run(engine, "DISCONNECT", "dmz", group_name="default")
    assert engine.locks.modes()[Level.INSTANCE] == wanted


def test_an_empty_group_runs_no_hooks():
    engine = engine_with(clusters.network())
    connect(engine, group="rack")
    assert engine.rpc.called("hooks_runner") == []


def test_the_configuration_stays_consistent():
    engine = engine_with(*used())
    before = checks.verify(engine.snapshot)
    run(engine, "SET_PARAMS", gateway="198.51.100.1")
    connect(engine, group="rack")
    run(engine, "RENAME", new_name="office")
    assert checks.verify(engine.snapshot) == before
