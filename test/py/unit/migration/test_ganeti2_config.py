"""config.data of Ganeti 2, converted."""

import copy
import json
import os
import pathlib
import re

import pytest

from fakes import cluster, ganeti2
from ganeti.base import errors
from ganeti.master import config
from ganeti.migration import ganeti2_config, old_config
from ganeti.model.objects import codec

MINORS = range(17)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RECENT = re.compile(r"\b[1-9][0-9]{9}\.[0-9]+")
RECORDS = pathlib.Path(__file__).parents[3] / "data" / "config" / "ganeti2"


def converted(data):
    """Return the snapshot that a file makes."""
    data = copy.deepcopy(data)
    changes = old_config.parse(data, "config.data", check=True, convert=True)
    return old_config.snapshot_of(changes)


def node_name(snapshot, instance):
    return snapshot.nodes[instance.primary_node].name


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("source", [ganeti2.debian, cluster.example_data])
def test_a_file_of_each_release_keeps_all_that_it_has(source, minor) -> None:
    data = source()
    expected = converted(data)
    actual = converted(ganeti2.as_of(data, minor))
    assert config.verify(actual) == []
    assert {node.name for node in actual.nodes.values()} == {
        node.name for node in expected.nodes.values()
    }
    assert actual.nodes[actual.cluster.master_node].name == (
        expected.nodes[expected.cluster.master_node].name
    )
    by_name = {one.name: one for one in actual.instances.values()}
    for old in expected.instances.values():
        new = by_name[old.name]
        assert node_name(actual, new) == node_name(expected, old)
        for field in ("admin_state", "admin_state_source", "hvparams", "os"):
            assert getattr(new, field) == getattr(old, field)
        assert new.disks_active == (new.admin_state == "up")
        assert new.beparams.get("maxmem") == old.beparams.get("maxmem")
        assert [nic.mac for nic in new.nics] == [nic.mac for nic in old.nics]
        for left, right in zip(new.disks, old.disks, strict=True):
            pair = actual.disks[left], expected.disks[right]
            check_same_disk(actual, pair[0], expected, pair[1])


@pytest.mark.parametrize("minor", [0, 3, 5, 7, 10, 13])
@pytest.mark.parametrize("name", ["debian", "example"])
def test_a_whole_file_is_converted_to_the_one_on_record(name, minor) -> None:
    """``RECORD_TRANSCRIPTS=1`` writes the present result."""
    source = ganeti2.debian if name == "debian" else cluster.example_data
    snapshot = converted(ganeti2.as_of(source(), minor))
    tables = ("nodes", "nodegroups", "instances", "disks", "networks", "filters")
    whole = {
        "cluster": codec.to_dict(snapshot.cluster),
        **{table: rows_of(snapshot.table(table).values()) for table in tables},
    }
    text = json.dumps(whole, indent=1, sort_keys=True)
    # Objects without a uuid get random ones, and the time of the conversion.
    for number, uuid in enumerate(dict.fromkeys(_UUID.findall(text))):
        text = text.replace(uuid, f"uuid-{number}")
    text = _RECENT.sub("NOW", text)
    path = RECORDS / f"{name}-2.{minor}.json"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        path.write_text(f"{text}\n")
    assert f"{text}\n" == path.read_text()


def rows_of(records):
    """Return records by name, or by their place in an instance."""
    rows = [codec.to_dict(record) for record in records]
    fields = ("name", "iv_name", "dev_type", "size")
    return sorted(rows, key=lambda row: [str(row.get(field)) for field in fields])


def check_same_disk(actual, left, expected, right):
    """Two disks are the same except for uuids and times."""
    for field in ("dev_type", "size", "mode", "iv_name"):
        assert getattr(left, field) == getattr(right, field)
    assert [actual.nodes[key].name for key in left.nodes] == [
        expected.nodes[key].name for key in right.nodes
    ]
    for one, other in zip(left.children, right.children, strict=True):
        check_same_disk(actual, one, expected, other)


def test_the_newest_form_changes_nothing_but_the_key_type() -> None:
    data = ganeti2.debian()
    expected, actual = converted(data), converted(ganeti2.as_of(data, 15))
    assert (actual.cluster.ssh_key_type, actual.cluster.ssh_key_bits) == ("dsa", 1024)
    kept = {"ssh_key_type": "rsa", "ssh_key_bits": 2048}
    assert actual.cluster.replace(**kept) == expected.cluster
    for table in ("nodes", "nodegroups", "instances", "disks", "networks", "filters"):
        assert dict(actual.table(table)) == dict(expected.table(table))


def test_disks_in_instances_move_to_their_table() -> None:
    data = cluster.example_data()
    actual = converted(ganeti2.as_of(data, 11))
    (disk,) = actual.disks.values()
    master, other = disk.nodes
    assert disk.dev_type == "drbd"
    assert disk.logical_id[:2] == (master, other)
    assert [child.dev_type for child in disk.children] == ["plain", "plain"]
    assert [child.nodes for child in disk.children] == [disk.nodes, disk.nodes]
    assert disk.ctime == next(iter(actual.instances.values())).ctime


def test_policies_get_the_list_of_limits() -> None:
    data = ganeti2.as_of(ganeti2.debian(), 7)
    group = next(iter(data["nodegroups"].values()))
    group["ipolicy"] = {"min": {"memory-size": 7}, "std": {"disk-size": 9}}
    actual = converted(data)
    limits = actual.cluster.ipolicy["minmax"][0]
    # As Debian's 3.0.2 fills them, except that it leaves "max" out.
    assert actual.nodegroups[group["uuid"]].ipolicy == {
        "minmax": [{"min": limits["min"] | {"memory-size": 7}, "max": limits["max"]}]
    }
    assert actual.cluster.enabled_disk_templates == ("diskless", "file", "sharedfile")


def test_memory_and_state_of_the_first_releases() -> None:
    data = ganeti2.as_of(cluster.example_data(), 5)
    (instance,) = converted(data).instances.values()
    assert instance.beparams == {"minmem": 512, "maxmem": 512}
    assert (instance.admin_state, instance.disks_active) == ("up", True)
    data["instances"]["web1.example.com"]["admin_up"] = False
    (instance,) = converted(data).instances.values()
    assert (instance.admin_state, instance.disks_active) == ("down", False)


def test_nodes_without_group_get_the_default_one() -> None:
    actual = converted(ganeti2.as_of(ganeti2.debian(), 0))
    (group,) = actual.nodegroups.values()
    assert group.name == "default"
    assert {node.group for node in actual.nodes.values()} == {group.uuid}
    assert actual.cluster.enabled_hypervisors[0] == "kvm"
    assert actual.cluster.nicparams["default"]["link"] == "br0"


def test_directories_without_a_list_are_those_before_2_7() -> None:
    data = ganeti2.debian()
    wanted = ["/srv/ganeti/file-storage", "/srv/ganeti/shared-file-storage"]
    assert ganeti2_config.directories(data, 2060000) == wanted
    assert ganeti2_config.directories(data, 2070000) == []
    assert ganeti2_config.directories([], 2060000) == []


def test_advice_names_the_commands() -> None:
    assert "--new-node-certificates" in ganeti2_config.advice(2100000)[0]
    assert ["--new-ssh-keys" in step for step in ganeti2_config.advice(2150000)] == [
        True
    ]
    assert ganeti2_config.advice(2160000) == []


@pytest.mark.parametrize("version", [2170000, 1000000, 0, "2160000", True, None])
def test_other_versions_are_refused(version) -> None:
    data = ganeti2.debian() | {"version": version}
    with pytest.raises(
        errors.ConfigurationError, match=r"2\.0 to 2\.16, 3\.0 and 3\.1"
    ):
        converted(data)


def spots(value, path=()):
    """Yield the paths of all values of a JSON value."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from spots(child, (*path, key))


@pytest.mark.parametrize("minor", [0, 5, 8, 13, 16])
def test_a_strange_value_is_accepted_or_refused_in_one_line(minor) -> None:
    text = json.dumps(ganeti2.as_of(cluster.example_data(), minor))
    refused = 0
    for *path, last in spots(json.loads(text)):
        for junk in (None, 7, "x", [], {}, [[]]):
            data = target = json.loads(text)
            for key in path:
                target = target[key]
            target[last] = junk
            error = outcome(data)
            assert "\n" not in error, (path, last, junk)
            refused += bool(error)
    assert refused > 200


def outcome(data):
    """Return the error about a configuration, empty if it is accepted."""
    try:
        converted(data)
    except errors.ConfigurationError as err:
        return str(err)
    return ""
