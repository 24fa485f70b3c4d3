"""config.data of Ganeti: imported and exported again, whole or damaged."""

import json
import os
import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import cluster, ganeti2
from fakes.seeds import examples
from ganeti import store
from ganeti.base import clock, errors
from ganeti.base.pathutils import Paths
from ganeti.migration import cfgupgrade, old_config

CALM = settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
words = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=12)
times = st.floats(0, 4e9)
tags = st.lists(words, unique=True, max_size=3)
uuids = st.uuids(version=4).map(str)


@st.composite
def clusters(draw):
    """Draw a consistent configuration as Ganeti 3.0 and 3.1 write it."""
    base = draw(st.sampled_from([cluster.example_data, ganeti2.debian]))()
    old_config.convert_hvparams(base)
    base["version"] = draw(st.sampled_from([3000000, 3010000]))
    base["serial_no"] = draw(st.integers(1, 10**9))
    base["cluster"] |= {
        "tags": draw(tags),
        "mtime": draw(times),
        "uid_pool": [[8000, draw(st.integers(8000, 9000))]],
        "osparams": draw(st.dictionaries(words, st.dictionaries(words, words))),
        "osparams_private_cluster": {draw(words): {"secret": draw(words)}},
        "blacklisted_os": draw(tags),
        "data_collectors": {draw(words): {"active": True, "interval": 5000000}},
        "compression_tools": ["gzip", draw(words)],
    }
    draw(optional(base["cluster"], "dsahostkeypub", words))
    states = st.sampled_from([{}, {"kvm": {"cpu_total": 1}}])
    base["cluster"]["hv_state_static"] = draw(states)
    for node in base["nodes"].values():
        node |= {"tags": draw(tags), "powered": draw(st.booleans())}
        node["ndparams"] = draw(st.sampled_from([{}, {"spindle_count": 3}]))
    for number in range(draw(st.integers(0, 5))):
        draw(added_instance(base, number))
    for uuid in draw(st.lists(uuids, max_size=2, unique=True)):
        base["filters"][uuid] = {
            "watermark": draw(st.integers(0, 99)),
            "priority": draw(st.integers(0, 99)),
            "predicates": [["jobid", [">", "id", "watermark"]]],
            "action": draw(st.sampled_from(["PAUSE", ["RATE_LIMIT", 3]])),
            "reason_trail": [["gnt:user", draw(words), 1795417182892868352]],
            "uuid": uuid,
        }
    return base


@st.composite
def optional(draw, record, key, values):
    """Set a field, or leave it out."""
    record.pop(key, None)
    if draw(st.booleans()):
        record[key] = draw(values)


@st.composite
def added_instance(draw, base, number):
    """Add an instance with disks in files and with NICs."""
    node = draw(st.sampled_from(sorted(base["nodes"])))
    stamps = {"ctime": draw(times), "mtime": draw(times), "serial_no": 1}
    disks = []
    for index in range(draw(st.integers(0, 2))):
        disk = {
            "dev_type": "file",
            "logical_id": ["loop", f"/srv/{number}/{index}"],
            "size": draw(st.integers(1, 10**6)),
            "uuid": draw(uuids),
            "children": [],
            "nodes": [node],
            "iv_name": f"disk/{index}",
            "mode": draw(st.sampled_from(["rw", "ro"])),
            "params": {},
            **stamps,
        }
        draw(optional(disk, "name", words))
        draw(optional(disk, "spindles", st.integers(1, 9)))
        base["disks"][disk["uuid"]] = disk
        disks.append(disk["uuid"])
    nics = []
    for index in range(draw(st.integers(0, 2))):
        nic = {"mac": f"aa:00:77:00:{number:02x}:{index:02x}", "uuid": draw(uuids)}
        nic["nicparams"] = draw(st.sampled_from([{}, {"link": "br1"}]))
        draw(optional(nic, "name", words))
        nics.append(nic)
    instance = {
        "name": f"made{number}.example.com",
        "primary_node": node,
        "os": draw(words),
        "hypervisor": "kvm",
        "hvparams": draw(st.sampled_from([{}, {"acpi": False, "kernel_args": "x"}])),
        "beparams": draw(st.sampled_from([{}, {"maxmem": 512, "minmem": 256}])),
        "osparams": draw(st.dictionaries(words, words, max_size=2)),
        "osparams_private": draw(st.dictionaries(words, words, max_size=1)),
        "admin_state": draw(st.sampled_from(["up", "down", "offline"])),
        "admin_state_source": draw(st.sampled_from(["admin", "user"])),
        "disks_active": draw(st.booleans()),
        "uuid": draw(uuids),
        "nics": nics,
        "disks": disks,
        "tags": sorted(draw(tags)),
        **stamps,
    }
    base["instances"][instance["uuid"]] = instance


@pytest.fixture
def places(tmp_path):
    paths = Paths(root=str(tmp_path / "node1"), hostname="node1")
    os.makedirs(paths.data_dir)
    return cfgupgrade.UpgradePaths.of(paths)


def bring_in(places, text, **options):
    pathlib.Path(places.config_data).write_text(text)
    cfgupgrade.take_config(
        places, clock.SystemClock(), dry_run=False, check=True, **options
    )


def difference(left, right, path="") -> list[str]:
    """Return where two JSON values differ; 0 is 0.0, but not false."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            line
            for key in left.keys() | right.keys()
            for line in difference(left.get(key), right.get(key), f"{path}/{key}")
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line
            for index, pair in enumerate(zip(left, right, strict=True))
            for line in difference(*pair, f"{path}/{index}")
        ]
    is_number = isinstance(left, float) or isinstance(right, float)
    is_same = left == right and (is_number or type(left) is type(right))
    return [] if is_same else [f"{path}: {left!r} is not {right!r}"]


@given(data=clusters())
@CALM
def test_a_round_trip_loses_nothing(data, places) -> None:
    bring_in(places, json.dumps(data))
    cfgupgrade.write_config(places, dry_run=False, check=True, version=data["version"])
    actual = json.loads(pathlib.Path(places.config_data).read_text())
    assert difference(actual, data) == []


@given(data=clusters(), number=st.integers(0))
@CALM
def test_a_dangling_reference_is_named_and_nothing_is_changed(
    data, number, places
) -> None:
    changes = ganeti2.references(data)
    wrong = ganeti2.broken(data, changes[number % len(changes)])
    check_refused(places, json.dumps(wrong), ganeti2.UNKNOWN)


def check_refused(places, text, words):
    """Check that a file is refused in one line, and that no store is made."""
    before = sorted(os.listdir(os.path.dirname(places.store_db)))
    with pytest.raises(errors.ConfigurationError) as caught:
        bring_in(places, text)
    after = sorted(os.listdir(os.path.dirname(places.store_db)))
    assert set(after) - set(before) <= {"config.data"}
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(part=st.floats(0, 0.9999))
@CALM
def test_a_truncated_file_is_refused(part, places) -> None:
    text = ganeti2.DEBIAN.read_text().rstrip()
    check_refused(places, text[: int(len(text) * part)], "truncated or damaged")


def spots(value, path=()):
    """Yield the paths of all values of a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from spots(child, (*path, key))


def test_a_strange_value_is_accepted_or_refused_in_one_line() -> None:
    refused = 0
    for *path, last in [path for path in spots(ganeti2.debian()) if path]:
        for junk in (None, 7, "x", [], {}, [[]], -1.5):
            data = ganeti2.debian()
            target = data
            for key in path:
                target = target[key]
            target[last] = junk
            where = f"{path} {last} {junk}"
            error = outcome(data, where)
            assert "\n" not in error, where
            refused += bool(error)
    assert refused > 1000


def outcome(data, where):
    """Return the error about a configuration, empty if it is accepted."""
    try:
        old_config.parse(data, where, check=True)
    except errors.ConfigurationError as err:
        return str(err)
    return ""


def test_the_file_of_debian_comes_back_whole(places) -> None:
    data = ganeti2.debian()
    bring_in(places, json.dumps(data), cluster_name="cluster.vc.test")
    cfgupgrade.write_config(places, dry_run=False, check=True, version=3000000)
    actual = json.loads(pathlib.Path(places.config_data).read_text())
    assert old_config.convert_hvparams(data) == ["cluster"]
    assert difference(actual, data) == []


def test_another_cluster_a_newer_release_and_nonsense_are_refused(places) -> None:
    data = ganeti2.debian()
    with pytest.raises(errors.ConfigurationError, match="is of the cluster cluster"):
        bring_in(places, json.dumps(data), cluster_name="other.example.com")
    check_refused(places, json.dumps(data | {"version": 3020000}), "is newer than this")
    check_refused(places, "[" * 100_000, "truncated or damaged")
    check_refused(places, "[]", "wanted an object at the top")


def test_the_export_lists_what_ganeti_does_not_have(places, caplog) -> None:
    data = ganeti2.debian()
    data["cluster"]["commit_policy"] = "availability"
    data["cluster"]["automation_limits"] = {"moved-share": 5.0}
    data["cluster"]["automation_freeze"] = {"reason": "r", "time": 1.0}
    data["cluster"]["node_death"] = True
    data["cluster"]["maintenance"] = {"balance": True}
    bring_in(places, json.dumps(data))
    cfgupgrade.write_config(places, dry_run=False, check=True, version=3000000)
    actual = json.loads(pathlib.Path(places.config_data).read_text())
    assert "commit_policy" not in actual["cluster"]
    assert "cluster: commit_policy = availability" in caplog.text
    ours = ("automation_limits", "automation_freeze", "node_death", "maintenance")
    for name in ours:
        assert name not in actual["cluster"]
        assert f"cluster: {name} = " in caplog.text


def test_the_store_is_a_new_one(places) -> None:
    bring_in(places, ganeti2.DEBIAN.read_text())
    follower = store.Follower(places.store_db)
    assert len(follower.snapshot().instances) == 3
    follower.close()
