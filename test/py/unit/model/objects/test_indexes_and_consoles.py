"""Relations of records in a snapshot, the stored form of records, and consoles."""

import json
import pathlib

import pytest

from fakes import cluster, clusters
from ganeti.base import errors
from ganeti.model import objects
from ganeti.model.objects import Disk, Nic, Update, consoles, lookup
from ganeti.model.objects.snapshot import numbers_of

SPEC = pathlib.Path(__file__).parents[4] / "data" / "spec"
N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))
I1, I2 = clusters.instance_uuid(1), clusters.instance_uuid(2)
PLAIN = Disk(uuid="p", dev_type="plain", logical_id=("vg", "lv"), size=1, serial_no=1)


@pytest.fixture
def snapshot():
    """Three nodes; the first instance has a mirror on two, the second is forthcoming."""
    mirror = clusters.drbd_disk("m", 1, 2)
    return clusters.snapshot(
        nodes=3,
        extra=[
            mirror,
            PLAIN.replace(nodes=(N3,)),
            clusters.instance(
                1,
                disks=("m",),
                network_port=11001,
                nics=(Nic(mac="aa:00:00:00:00:01", uuid="n", nicparams={}),),
            ),
            clusters.instance(
                2,
                primary=3,
                disks=("p", "m2"),
                forthcoming=True,
            ),
            clusters.drbd_disk("m2", 3, 2).replace(
                logical_id=(N3, N2, 11002, 4, 5, "secret")
            ),
        ],
    )


def test_relations_of_nodes_disks_and_instances(snapshot):
    assert snapshot.nodes_in_group(clusters.GROUP) == {N1, N2, N3}
    assert snapshot.nodes_in_group("none") == frozenset()
    assert snapshot.primary_instances(N1) == {I1}
    assert snapshot.primary_instances(N2) == frozenset()
    assert snapshot.secondary_instances(N2) == {I1, I2}
    assert snapshot.secondary_instances(N1) == frozenset()
    assert snapshot.secondary_instances(N3) == frozenset()
    assert snapshot.disks_on_node(N3) == {"p", "m2"}
    assert snapshot.disk_owner("m") == I1
    assert snapshot.disk_owner("none") is None
    assert snapshot.forthcoming_instances() == {I2}
    assert snapshot.mac_owner("aa:00:00:00:00:01") == I1
    assert snapshot.mac_owner("aa:00:00:00:00:02") is None
    assert snapshot.request_owner("key") is None
    first, second = snapshot.instances[I1], snapshot.instances[I2]
    assert snapshot.instance_nodes(first) == (N1, N2)
    assert snapshot.secondary_nodes(second) == (N2,)
    assert [snapshot.disk_template(each) for each in (first, second)] == [
        "drbd",
        "mixed",
    ]
    assert snapshot.disk_template(clusters.instance(9)) == "diskless"
    assert [disk.uuid for disk in snapshot.instance_disks(second)] == ["p", "m2"]


def test_numbers_belong_to_one_object(snapshot):
    assert snapshot.number_owner("port 11001") == I1
    assert snapshot.number_owner("port 11000") == "m"
    assert snapshot.number_owner(f"DRBD minor 4 of node {N3}") == "m2"
    assert snapshot.number_owner(f"DRBD minor 5 of node {N2}") == "m2"
    assert snapshot.number_owner("port 1") is None
    assert numbers_of(snapshot.disks["m"]) == [
        f"DRBD minor 0 of node {N1}",
        f"DRBD minor 0 of node {N2}",
        "port 11000",
    ]
    assert numbers_of(snapshot.disks["p"]) == []
    parent = PLAIN.replace(children=(snapshot.disks["m"],))
    assert len(numbers_of(parent)) == 3
    short = snapshot.disks["m"].replace(logical_id=(N1, N2, None, None))
    assert numbers_of(short) == []
    bare = snapshot.disks["m"].replace(logical_id=(N1, N2, None, None, 1))
    assert numbers_of(bare) == [f"DRBD minor 1 of node {N2}"]
    assert numbers_of(clusters.instance(9)) == []


def test_a_change_moves_the_entries_of_a_record_and_nothing_else(snapshot):
    guest = snapshot.instances[I1]
    after = clusters.changed(
        snapshot,
        guest.replace(name="web.example.com", primary_node=N2, network_port=None),
    )
    assert after.primary_instances(N1) == frozenset()
    assert after.primary_instances(N2) == {I1}
    assert after.number_owner("port 11001") is None
    assert after.uuid_of("instances", "web.example.com") == I1
    assert after.uuid_of("instances", guest.name) is None
    assert after.same_host("instances", "web") == {I1}
    assert after.same_host("instances", "inst1") == frozenset()
    # The snapshot before is as it was.
    assert snapshot.primary_instances(N1) == {I1}
    assert snapshot.uuid_of("instances", guest.name) == I1
    gone = snapshot.apply(
        [Update("instances", I1, None), Update("instances", "x", None)]
    )
    assert gone.disk_owner("m") is None
    assert set(gone.instances) == {I2}
    assert gone.revision == snapshot.revision + 1
    assert snapshot.at(snapshot.revision, snapshot.term) is snapshot
    moved = snapshot.at(77, 8)
    assert (moved.revision, moved.term, moved.nodes) == (77, 8, snapshot.nodes)
    numbered = snapshot.apply([], revision=5, term=6)
    assert (numbered.revision, numbered.term) == (5, 6)


def test_an_entry_that_another_record_has_taken_over_stays(snapshot):
    guest = snapshot.instances[I1]
    twin = clusters.instance(5, nics=guest.nics)
    both = clusters.changed(snapshot, twin)
    assert both.mac_owner("aa:00:00:00:00:01") == twin.uuid
    after = both.apply([Update("instances", I1, None)])
    assert after.mac_owner("aa:00:00:00:00:01") == twin.uuid


@pytest.mark.parametrize("name", ["inst1", "INST1.example", I1, "inst1.example.com"])
def test_an_instance_has_short_names(snapshot, name):
    assert lookup.expand_instance(snapshot, name) == I1
    assert lookup.find(snapshot, "instances", name) == I1


@pytest.mark.parametrize(
    ("table", "name", "text"),
    [
        ("networks", "lan.x", "Network 'lan.x' not known"),
        ("networks", "", "Network '' not known"),
        ("filters", "f", "Filter rule 'f' not known"),
        ("instances", "inst", "Instance 'inst' not known"),
        ("nodegroups", "def", "Node group 'def' not known"),
        ("nodes", "", "Node '' not known"),
    ],
)
def test_other_names_are_unknown(snapshot, table, name, text):
    with pytest.raises(errors.OpPrereqError) as caught:
        lookup.expand(snapshot, table, name)
    assert caught.value.args == (text, "unknown_entity")


def test_nodes_and_groups_are_chosen_in_natural_order(snapshot):
    tenth = snapshot.nodes[N1].replace(uuid="t", name="node10.example.com")
    more = clusters.changed(snapshot, tenth, clusters.group("a", "g"))
    assert lookup.expand_nodes(more, []) == [N1, N2, N3, "t"]
    assert lookup.expand_nodes(more, ["node10", "node2"], [N3]) == [N2, N3, "t"]
    with pytest.raises(errors.OpPrereqError) as caught:
        lookup.expand_nodes(more, ["node2"], ["x"])
    assert caught.value.args == ("node x: unknown", "unknown_entity")
    assert lookup.group_names(more, None) == ["a", "default"]
    assert lookup.group_names(more, clusters.GROUP) == ["default"]


# Stored forms
def test_records_of_the_example_have_the_documented_members():
    example = json.loads((SPEC / "objects.json").read_text())["example_config"]
    for table, cls in objects.TABLES.items():
        rows = [example[table]] if table == "cluster" else example[table].values()
        for row in rows:
            assert objects.to_dict(objects.from_dict(cls, row)) == row, table


def test_members_of_a_network_without_a_value_are_not_stored():
    bare = objects.Network(name="lan", network="192.0.2.0/24", uuid="n", serial_no=1)
    assert objects.to_dict(bare) == {
        "name": "lan",
        "network": "192.0.2.0/24",
        "uuid": "n",
        "serial_no": 1,
        "ctime": 0.0,
        "mtime": 0.0,
        "tags": [],
    }
    given = {
        "mac_prefix": "aa:00:01",
        "network6": "2001:db8::/64",
        "gateway": "192.0.2.1",
        "gateway6": "2001:db8::1",
        "reservations": "1",
        "ext_reservations": "1",
    }
    full = objects.to_dict(bare.replace(**given))
    assert {name: full[name] for name in given} == given


def test_the_example_is_whole_again_after_a_round_trip():
    start = cluster.example()
    for table in objects.TABLES:
        for record in start.table(table).values():
            again = objects.decode(type(record), objects.encode(record))
            assert again == record


# Consoles
HOST = consoles.ConsoleHost(
    "192.0.2.1", 2222, "root", "/usr/lib/ganeti/tools", run_dir="/run/ganeti"
)


def describe(host=HOST, hypervisor="kvm", port=5901, **hvparams):
    guest = clusters.instance(1, hypervisor=hypervisor, network_port=port)
    made = consoles.describe(guest, hvparams, host)
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    assert fields.pop("instance") == "inst1.example.com"
    return {name: value for name, value in fields.items() if value is not None}


PROGRAM = "/usr/lib/ganeti/tools/ganeti-kvm-console"
SERIAL = {"kind": "ssh", "host": "192.0.2.1", "port": 2222, "user": "root"}


def test_a_serial_line_is_reached_by_a_program_on_the_node():
    command = (PROGRAM, "inst1.example.com")
    given = {"serial_console": True, "vnc_bind_address": "0.0.0.0"}
    assert describe(**given) == SERIAL | {"command": command}
    virtual = HOST._replace(environment={"A": "b", "C": "d"})
    command = ("env", "A=b", "C=d", *command)
    assert describe(virtual, **given) == SERIAL | {"command": command}


@pytest.mark.parametrize(
    ("bind", "host"),
    [
        ("0.0.0.0", "192.0.2.1"),
        ("::", "192.0.2.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8::5", "2001:db8::5"),
        ("br0", "192.0.2.1"),
    ],
)
def test_graphical_consoles_are_reached_at_an_address(bind, host):
    vnc = {"kind": "vnc", "host": host, "port": 5901, "display": 1}
    assert describe(vnc_bind_address=bind) == vnc
    spice = {"kind": "spice", "host": host, "port": 5901}
    assert describe(spice_bind=bind) == spice
    assert describe(vnc_bind_address=bind, spice_bind="x") == vnc
    assert describe(vnc_bind_address="/run/vnc", spice_bind=bind) == spice


NOTHING = {"kind": "msg", "message": "No serial shell for instance inst1.example.com"}


@pytest.mark.parametrize(
    ("port", "hvparams"),
    [
        (5901, {}),
        (5901, {"vnc_bind_address": "/run/vnc"}),
        (None, {"vnc_bind_address": "0.0.0.0"}),
        (None, {"spice_bind": "0.0.0.0"}),
    ],
)
def test_without_a_console_there_is_a_message(port, hvparams):
    assert describe(port=port, **hvparams) == NOTHING


@pytest.mark.parametrize(
    ("hvparams", "command"),
    [
        (
            {"num_ttys": 6},
            [
                "lxc-console",
                "-P",
                "/run/ganeti/lxc/instance",
                "-n",
                "inst1.example.com",
            ],
        ),
        (
            {"num_ttys": 0},
            [
                *("lxc-console", "-P", "/run/ganeti/lxc/instance"),
                *("-n", "inst1.example.com", "-t", "0"),
            ],
        ),
    ],
)
def test_a_container_is_reached_by_its_terminals(hvparams, command):
    assert describe(hypervisor="lxc", **hvparams) == {
        "kind": "ssh",
        "host": "192.0.2.1",
        "port": 2222,
        "user": "root",
        "command": tuple(command),
    }


def test_a_root_directory_is_reached_by_a_shell_in_it():
    assert describe(hypervisor="chroot")["command"] == (
        *("chroot", "/run/ganeti/chroot-hypervisor/inst1.example.com"),
        *("/bin/sh", "-i"),
    )


@pytest.mark.parametrize("kind", ["xen-pvm", "xen-hvm"])
def test_a_domain_is_reached_by_a_program_on_the_node(kind):
    program = "/usr/lib/ganeti/tools/xen-console-wrapper"
    command = (program, "xl", "inst1.example.com")
    assert describe(hypervisor=kind) == SERIAL | {"command": command}


def test_other_hypervisors_have_no_console_here():
    text = "Console not available for hypervisor fake"
    assert describe(hypervisor="fake", serial_console=True) == {
        "kind": "msg",
        "message": text,
    }
