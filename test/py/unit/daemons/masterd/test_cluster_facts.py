"""Facts beside the configuration: the watcher's pause, locks, jobs, and settings."""

import os
import pathlib
from types import SimpleNamespace

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from fakes.store import FakeStore
from ganeti.base import errors
from ganeti.base.constants.instance import CREATION_INSTALLING, CREATION_INTERRUPTED
from ganeti.base.pathutils import Paths
from ganeti.daemons.masterd import cluster_facts, service
from ganeti.daemons.masterd.methods import queries, settings
from ganeti.master import config
from ganeti.master.locking import Level, LockManager, Request
from ganeti.master.locking.manager import BGL
from ganeti.master.query import cluster_info
from ganeti.model import objects


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "n1"), hostname="n1")
    pathlib.Path(made.data_dir).mkdir(parents=True)
    return made


def test_a_pause_lasts_until_its_time_and_everybody_can_read_it(paths):
    clock = FakeClock(1000.0)
    assert cluster_facts.watcher_pause(paths, clock) is None
    cluster_facts.write_watcher_pause(paths, 1060.4)
    file = pathlib.Path(cluster_facts.pause_path(paths))
    assert file == pathlib.Path(paths.data_dir, "watcher.pause")
    assert file.read_text() == "1060\n"
    assert file.stat().st_mode & 0o777 == 0o644
    assert cluster_facts.watcher_pause(paths, clock) == 1060.0
    clock.now = 1060.0
    assert cluster_facts.watcher_pause(paths, clock) is None
    cluster_facts.write_watcher_pause(paths, None)
    assert not file.exists()
    cluster_facts.write_watcher_pause(paths, None)


def test_a_damaged_pause_is_none(paths):
    pathlib.Path(cluster_facts.pause_path(paths)).write_text("soon\n")
    assert cluster_facts.watcher_pause(paths, FakeClock()) is None


def master(paths, snapshot):
    nodes = FakeRunner(lambda: snapshot, {"set_watcher_pause": None})
    return SimpleNamespace(
        paths=paths, rpc=nodes, config=SimpleNamespace(snapshot=lambda: snapshot)
    )


def test_other_candidates_that_are_online_get_the_pause(paths):
    extra = [
        clusters.node(3, offline=True),
        clusters.node(4, master_candidate=False),
    ]
    deps = master(paths, clusters.snapshot(nodes=2, extra=extra))
    assert settings._pause(deps, 5e9) == 5e9
    assert deps.rpc.called("set_watcher_pause") == [(clusters.node_uuid(2), (5e9,))]
    deps = master(paths, clusters.snapshot(nodes=1))
    assert settings._pause(deps, None) is None
    assert deps.rpc.calls == []


def test_a_candidate_that_does_not_take_the_pause_is_no_error(paths):
    deps = master(paths, clusters.snapshot(nodes=2))
    deps.rpc.script["set_watcher_pause"] = failure("away")
    assert settings._pause(deps, 5e9) == 5e9
    assert cluster_facts.watcher_pause(paths, FakeClock()) == 5e9


def test_a_pause_that_cannot_be_written_names_the_file(paths):
    os.mkdir(cluster_facts.pause_path(paths))
    deps = master(paths, clusters.snapshot(nodes=2))
    with pytest.raises(errors.OpExecError, match=r"watcher\.pause: cannot be written"):
        settings._pause(deps, None)
    assert deps.rpc.calls == []


def test_jobs_that_others_wait_for_are_listed_with_the_locks():
    manager = LockManager(FakeClock(), {})
    queue = SimpleNamespace(dependencies=lambda: [(3, [4, 5]), (6, [])])
    manager.acquire(Request(Level.CLUSTER, [BGL], shared=True))
    first, *rest = cluster_facts.locks(queue, manager)
    assert (first.name, first.mode, first.owners) == ("job/3", None, ())
    assert first.pending == (("job", ("Job4", "Job5")),)
    assert [(row.name, row.mode) for row in rest] == [(f"cluster/{BGL}", "shared")]
    manager.release_all()


def test_archived_jobs_are_read_and_those_purged_meanwhile_left_out():
    kept = {1: "one", 3: "three"}
    queue = SimpleNamespace(archived_ids=lambda: [1, 2, 3], job=kept.get)
    assert list(cluster_facts.QueueJobs(queue).archived_jobs()) == ["one", "three"]


def test_facts_are_those_of_the_queue_and_the_file(paths):
    cluster_facts.write_watcher_pause(paths, 5e9)
    for is_drained in (True, False):
        queue = SimpleNamespace(is_drained=is_drained)
        facts = cluster_facts.read(queue, paths, FakeClock())
        assert (facts.drain_flag, facts.watcher_pause) == (is_drained, 5e9)
        assert facts.architecture == tuple(cluster_info.architecture())


def test_configuration_values_have_their_names(paths):
    snapshot = clusters.snapshot(
        nodes=1,
        cluster_name="c.example.com",
        modify_ssh_setup=True,
        ssh_key_type="rsa",
        ssh_key_bits=4096,
    )
    deps = SimpleNamespace(
        config=SimpleNamespace(snapshot=lambda: snapshot),
        queue=SimpleNamespace(is_drained=True),
        paths=paths,
        clock=FakeClock(),
    )
    wanted = {
        "cluster_name": "c.example.com",
        "master_node": "node1.example.com",
        "drain_flag": True,
        "modify_ssh_setup": True,
        "ssh_key_type": "rsa",
        "ssh_key_bits": 4096,
        "watcher_pause": None,
        "anything_else": None,
    }
    assert queries.query_config_values(deps, list(wanted)) == list(wanted.values())
    snapshot = clusters.snapshot(nodes=1, master_node=clusters.node_uuid(9))
    assert queries.query_config_values(deps, ["master_node"]) == [None]


TAGS = ("b", "a")
NETWORK = objects.from_dict(
    objects.Network,
    {
        "uuid": "n1",
        "name": "lan",
        "network": "192.0.2.0/24",
        "tags": TAGS,
        "serial_no": 1,
    },
)


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("node", clusters.node(2, tags=TAGS)),
        ("nodegroup", clusters.group(name="rack", uuid="g2", tags=TAGS)),
        ("instance", clusters.instance(1, tags=TAGS)),
        ("network", NETWORK),
    ],
)
def test_tags_are_those_of_the_named_object(kind, record):
    snapshot = clusters.snapshot(nodes=1, extra=[record])
    deps = SimpleNamespace(config=SimpleNamespace(snapshot=lambda: snapshot))
    assert queries.query_tags(deps, kind, record.name) == ["a", "b"]
    with pytest.raises(errors.OpPrereqError, match="nowhere"):
        queries.query_tags(deps, kind, "nowhere")


def test_creations_that_a_master_left_behind_are_marked():
    cut = clusters.instance(1, creation=CREATION_INSTALLING)
    store = FakeStore(clusters.snapshot(extra=[cut, clusters.instance(2)]))
    configuration = config.Config(store, FakeClock())
    whole = store.snapshot().instances[clusters.instance_uuid(2)]
    service.mark_creations(configuration)
    marked = store.snapshot()
    assert marked.instances[cut.uuid].creation == CREATION_INTERRUPTED
    assert marked.instances[whole.uuid] == whole
    # Nothing is left to mark, so nothing is written.
    service.mark_creations(configuration)
    assert store.snapshot() is marked
