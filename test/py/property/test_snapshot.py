"""Indexes of snapshots are what a rebuild from scratch gives."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import cluster
from ganeti.model.objects import TABLES, Snapshot, Update

BASE = cluster.example()
NODE = next(iter(BASE.nodes.values()))
GROUP = next(iter(BASE.nodegroups.values()))
INSTANCE = next(iter(BASE.instances.values())).replace(network_port=None)
DISK = next(iter(BASE.disks.values()))

KEYS = [f"k{number}" for number in range(4)]
keys = st.sampled_from(KEYS)
some_keys = st.lists(keys, max_size=3)


def nodes(key):
    return st.builds(
        lambda group, short: NODE.replace(uuid=key, name=f"{short}.{key}", group=group),
        keys,
        st.sampled_from(["n", "N", "m"]),
    )


def disks(key):
    # Ports and minors belong to one disk.
    number = 10 * int(key[1:])
    port, minors = number, (number + 2, number + 3)
    return st.builds(
        lambda holders, kind: DISK.replace(
            uuid=key,
            dev_type=kind,
            nodes=tuple(holders),
            logical_id=(*(holders or ["k0", "k1"])[:2], port, *minors, "s"),
        ),
        some_keys,
        st.sampled_from(["drbd", "plain"]),
    )


def instances(key):
    # A disk belongs to one instance: those of instance k1 begin with k1.
    return st.builds(
        lambda home, owned, macs: INSTANCE.replace(
            uuid=key,
            name=f"i.{key}",
            primary_node=home,
            disks=tuple(owned),
            nics=tuple(INSTANCE.nics[0].replace(mac=f"{key}{mac}") for mac in macs),
        ),
        keys,
        st.lists(st.just(key), max_size=1),
        st.lists(st.integers(0, 2), max_size=2),
    )


def updates():
    def make(table, key, build):
        return st.builds(Update, st.just(table), st.just(key), build(key) | st.none())

    return st.one_of(
        [
            make(table, key, build)
            for table, build in (
                ("nodes", nodes),
                ("disks", disks),
                ("instances", instances),
            )
            for key in KEYS
        ]
    )


def rebuilt(snapshot):
    return Snapshot().apply(
        Update(table, key, record)
        for table in TABLES
        for key, record in snapshot.table(table).items()
    )


def index(snapshot):
    return {
        name: dict(rows.items()) for name, rows in snapshot._index.items() if len(rows)
    }


@settings(deadline=None)
@given(st.lists(st.lists(updates(), min_size=1, max_size=4), max_size=12))
def test_indexes_equal_a_rebuild(batches):
    snapshot = Snapshot()
    for batch in batches:
        before, old = snapshot, index(snapshot)
        snapshot = snapshot.apply(batch)
        assert index(snapshot) == index(rebuilt(snapshot))
        assert index(before) == old  # snapshots of readers do not change


@settings(deadline=None)
@given(st.lists(updates(), max_size=30))
def test_relations_equal_a_look_at_every_record(changes):
    now = Snapshot().apply(changes)
    for key in KEYS:
        assert now.nodes_in_group(key) == {
            uuid for uuid, node in now.nodes.items() if node.group == key
        }
        assert now.primary_instances(key) == {
            uuid for uuid, item in now.instances.items() if item.primary_node == key
        }
        assert now.secondary_instances(key) == {
            uuid
            for uuid, item in now.instances.items()
            if item.primary_node != key
            and any(
                disk in now.disks
                and now.disks[disk].dev_type == "drbd"
                and key in (now.disks[disk].nodes or now.disks[disk].logical_id[:2])
                for disk in item.disks
            )
        }
    shorts = itertools.groupby(
        sorted(now.nodes.values(), key=lambda n: n.name.lower()),
        lambda n: n.name.split(".")[0].lower(),
    )
    for short, group in shorts:
        assert now.same_host("nodes", short) == {node.uuid for node in group}
