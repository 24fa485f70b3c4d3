"""Moves of the store between files and etcd: the order of the steps, and failures."""

import errno
import os

import pytest

from fakes import clusters
from fakes import store as fake_store
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import store_access, store_moves
from ganeti.store import choice
from ganeti.store.etcd import parse

SERVERS = parse("etcd://127.0.0.1:1/mine")
SECOND, THIRD = clusters.node_uuid(2), clusters.node_uuid(3)


class Place:
    """A store in etcd that can be filled, unless an error is set."""

    def __init__(self, site):
        self.servers, self.files = SERVERS, choice.prepare(SERVERS)
        self._site = site

    def fill(self, paths, node):
        self._site.note(f"fill for {node}")
        choice.write(paths, self.files)


class Site:
    """The master of a cluster; ``done`` has the steps in order, ``fails`` errors."""

    def __init__(self, folder, monkeypatch, *, snapshot=None, hostname=None):
        self.done, self.lines, self.fails = [], [], {}
        self.snapshot = snapshot or clusters.snapshot(nodes=3)
        self.own = self.snapshot.cluster.master_node
        name = hostname or self.snapshot.nodes[self.own].name
        self.paths = Paths(root=str(folder / name), hostname=name)
        os.makedirs(self.paths.data_dir)
        fake_store.write(self.paths, self.snapshot)
        self.silent, self.engines, self.switched = set(), {}, set()
        self.nodes = FakeRunner(
            lambda: self.snapshot,
            {"upload_file": self._upload, "node_ensure_daemon": self._ensure},
        )
        for place, name, value in (
            (store_moves, "Services", lambda *_args: self),
            (store_moves.rpc, "NetworkRunner", lambda *_args: self.nodes),
            (store_access, "find_place", lambda _text, is_new: Place(self)),
            (store_moves, "to_file", self._to_file),
        ):
            monkeypatch.setattr(place, name, value)

    def note(self, step):
        self.done.append(step)
        if step in self.fails:
            raise self.fails.pop(step)

    # In place of the daemons of this node
    def start(self, daemon):
        self.note(f"start {daemon}")

    def stop(self, daemon):
        self.note(f"stop {daemon}")

    def start_master(self):
        self.note("start master")

    def stop_master(self):
        self.note("stop master")

    def _to_file(self, servers, _path, node, _clock):
        assert (servers, node) == (SERVERS, self.own)
        self.note("copy to file")

    def _upload(self, node, args):
        if node in self.silent:
            return failure("no answer")
        path = args[0][0]
        self.engines[node] = path
        self.note(f"upload {os.path.basename(path)}")
        return None

    def _ensure(self, node, args):
        daemon, is_on = args
        self.switched.add(node)
        self.note(f"{'start' if is_on else 'stop'} {daemon} elsewhere")

    def move(self, target):
        made = store_moves.Move(
            self.paths, None, FakeClock(), target, self.lines.append
        )
        made.run()
        return made


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def test_candidates_know_the_engine_before_the_store_moves_to_etcd(site):
    site.move(str(SERVERS))
    assert site.done == [
        "stop master",
        *["upload store-engine"] * 2,
        f"fill for {site.own}",
        "start master",
        "start ganeti-standby",
        *["start ganeti-standby elsewhere"] * 2,
    ]
    assert site.switched == {SECOND, THIRD}
    assert choice.read(site.paths) == SERVERS
    place = site.paths.virtualize(choice.path_of(site.paths))
    assert site.engines == {SECOND: place, THIRD: place}
    assert not [name for name in os.listdir(site.paths.data_dir) if "move" in name]


def test_one_silent_candidate_of_three_is_a_warning(site):
    site.silent = {THIRD}
    site.move(str(SERVERS))
    assert choice.is_etcd(site.paths)
    (warning,) = [line for line in site.lines if line.startswith("Warning: ")]
    assert "node3.example.com" in warning
    assert "gnt-cluster redist-conf" in warning


def test_without_a_majority_the_store_stays_and_masters_run_again(site):
    site.silent = {SECOND, THIRD}
    with pytest.raises(errors.OpExecError, match="1 of 3 candidates know the new"):
        site.move(str(SERVERS))
    assert not choice.is_etcd(site.paths)
    assert site.done == ["stop master", "start master"]


def test_a_failed_copy_takes_the_engine_back_everywhere(site):
    step = f"fill for {site.own}"
    site.fails[step] = errors.StorageError("no majority of the servers")
    with pytest.raises(errors.OpExecError, match="was not moved: no majority of the s"):
        site.move(str(SERVERS))
    assert not choice.is_etcd(site.paths)
    again = ["upload store-engine"] * 2
    assert site.done == ["stop master", *again, step, *again, "start master"]


def test_the_word_file_is_recorded_everywhere_before_the_master_starts(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    site.move(choice.FILE_ENGINE)
    assert site.done == [
        "stop ganeti-standby",
        "stop master",
        "copy to file",
        *["stop ganeti-standby elsewhere"] * 2,
        *["upload store-engine"] * 2,
        "start master",
    ]
    assert choice.read(site.paths) is None


def test_a_failed_copy_to_the_file_leaves_the_store_in_etcd(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    site.fails["copy to file"] = errors.StorageError("disk full")
    site.fails["start master"] = errors.OpExecError("no lease")
    with pytest.raises(errors.OpExecError) as caught:
        site.move(choice.FILE_ENGINE)
    assert "was not moved: disk full. Repeat the command; the master" in str(
        caught.value
    )
    assert choice.read(site.paths) == SERVERS
    assert site.done[2:] == ["copy to file", "start ganeti-standby", "start master"]


@pytest.mark.parametrize("engine", ["etcd", "file"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, errors.OpExecError])
def test_a_move_that_ends_while_the_master_is_stopped_starts_it(site, engine, error):
    target = str(SERVERS)
    if engine == "file":
        choice.write(site.paths, choice.prepare(SERVERS))
        target = choice.FILE_ENGINE
    before = choice.read(site.paths)
    site.fails["stop master"] = error("cut off")
    with pytest.raises(errors.OpExecError, match="was not moved: cut off"):
        site.move(target)
    assert site.done[-1] == "start master"
    assert not [step for step in site.done if "upload" in step]
    assert choice.read(site.paths) == before


def test_a_standby_that_stops_while_the_move_ends_is_started(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    site.fails["stop ganeti-standby"] = KeyboardInterrupt
    with pytest.raises(errors.OpExecError, match="was not moved: KeyboardInterrupt"):
        site.move(choice.FILE_ENGINE)
    assert site.done[1:] == ["start ganeti-standby", "start master"]


def test_a_record_that_cannot_be_written_leaves_the_store_in_etcd(site, monkeypatch):
    choice.write(site.paths, choice.prepare(SERVERS))

    def refuse(_paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(choice, "write_file_engine", refuse)
    with pytest.raises(errors.OpExecError, match=r"was not moved: .*No space left"):
        site.move(choice.FILE_ENGINE)
    assert site.done[2:] == ["copy to file", "start ganeti-standby", "start master"]


def test_records_that_cannot_be_taken_back_do_not_keep_the_master_down(
    site, monkeypatch
):
    def refuse(_paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(choice, "write_file_engine", refuse)
    site.fails[f"fill for {site.own}"] = errors.StorageError("disk full")
    with pytest.raises(errors.OpExecError) as caught:
        site.move(str(SERVERS))
    assert "was not moved: disk full. Repeat the command" in str(caught.value)
    assert site.done[-1] == "start master"


def test_a_standby_that_does_not_start_does_not_keep_the_master_down(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    site.fails["copy to file"] = errors.StorageError("disk full")
    site.fails["start ganeti-standby"] = errors.OpExecError("no lease")
    with pytest.raises(errors.OpExecError, match=r"full\. ganeti-standby does n"):
        site.move(choice.FILE_ENGINE)
    assert site.done[-1] == "start master"


def test_a_move_that_ends_after_the_copy_starts_the_master_with_the_file(site):
    choice.write(site.paths, choice.prepare(SERVERS))
    site.fails["stop ganeti-standby elsewhere"] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        site.move(choice.FILE_ENGINE)
    assert choice.read(site.paths) is None
    assert site.done[-1] == "start master"


def test_a_store_that_is_there_already_is_not_moved(site):
    with pytest.raises(errors.OpPrereqError, match="wanted the address of a store"):
        site.move(choice.FILE_ENGINE)
    choice.write(site.paths, choice.prepare(SERVERS))
    with pytest.raises(errors.OpPrereqError, match=r"etcd://.*; wanted file"):
        site.move(str(SERVERS))
    assert site.done == []


def test_only_the_master_moves_the_store(tmp_path, monkeypatch):
    other = Site(tmp_path, monkeypatch, hostname="node2.example.com")
    with pytest.raises(errors.OpPrereqError, match=r"node2\.example\.com is not the m"):
        other.move(str(SERVERS))
    assert other.done == []


def test_nodes_without_a_copy_are_not_asked(tmp_path, monkeypatch):
    extra = [
        clusters.node(2, master_candidate=False),
        clusters.node(3, offline=True),
    ]
    site = Site(tmp_path, monkeypatch, snapshot=clusters.snapshot(nodes=1, extra=extra))
    made = site.move(str(SERVERS))
    assert site.nodes.calls == []
    assert "record the new engine on the other candidates: none" in made.steps()
    assert choice.is_etcd(site.paths)
