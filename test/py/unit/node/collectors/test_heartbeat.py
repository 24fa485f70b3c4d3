"""The process that writes heartbeats: a real one, and its work in this process."""

import errno
import math
import os
import pathlib
import shutil

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.clocks import FakeClock
from fakes.patience import until
from ganeti.base.pathutils import Paths
from ganeti.daemons import mond_agent
from ganeti.node.collectors import heartbeat
from ganeti.node.storage import allowed, heartbeats
from ganeti.node.storage.heartbeats import State

KEY = b"secret\n"
KINDS = ("sharedfile",)


class Node:
    """A node; all nodes of a test have the same shared directory."""

    def __init__(self, root, name, shared):
        self.paths = Paths(f"{root}/{name}", name)
        self.clock = FakeClock()
        plain = allowed.BUILT_IN[1]
        directory = pathlib.Path(self.paths.at(plain))
        directory.parent.mkdir(parents=True)
        shared.mkdir(exist_ok=True)
        directory.symlink_to(shared)
        allowed.write_default_list(self.paths, [plain])
        self.write("hmac.key", KEY)
        self.write("ssconf_shared_file_storage_dir", f"{plain}\n".encode())
        os.makedirs(self.paths.run_dir)
        self.place = str(directory)
        self.heart = heartbeat.Heart(self.paths, self.clock)

    def write(self, name, data):
        os.makedirs(self.paths.data_dir, exist_ok=True)
        pathlib.Path(self.paths.data(name)).write_bytes(data)

    def ask(self, *names):
        return heartbeats.ask(self.paths, names, self.clock.monotonic())

    @property
    def state(self):
        return heartbeats.read_state(self.paths)

    @property
    def problems(self):
        return heartbeat.problems(self.state, self.clock.monotonic())


@pytest.fixture
def shared(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def nodes(tmp_path, shared):
    return [Node(tmp_path, f"node{n}.tst", shared) for n in (1, 2)]


def test_a_node_reads_the_heartbeat_of_another_that_goes_on(nodes):
    one, two = nodes
    two.heart.beat(KINDS)
    one.heart.beat(KINDS)
    assert one.ask(two.paths.hostname, "node9.tst") == [None, None]
    one.heart.beat(KINDS)
    (run, first), nothing = one.ask(two.paths.hostname, "node9.tst")
    two.heart.beat(KINDS)
    one.heart.beat(KINDS)
    assert (one.ask(two.paths.hostname), nothing) == ([(run, first + 1)], None)
    assert one.problems == {}


def test_a_forged_heartbeat_is_a_problem_and_none_of_a_node(nodes, shared):
    one, two = nodes
    one.ask(two.paths.hostname)
    two.heart.beat(KINDS)
    file = shared / heartbeats.DIRECTORY / two.paths.hostname
    file.write_bytes(file.read_bytes().replace(b"count", b"COUNT"))
    one.heart.beat(KINDS)
    one.heart.beat(KINDS)
    assert one.ask(two.paths.hostname) == [None]
    (text,) = one.problems.values()
    assert "the key of the cluster did not sign it" in text


def test_a_clock_that_is_wrong_by_an_hour_is_a_problem(nodes):
    one, two = nodes
    one.ask(two.paths.hostname)
    two.clock.now += 3600
    two.heart.beat(KINDS)
    one.heart.beat(KINDS)
    assert one.ask(two.paths.hostname) == [None]
    assert "clocks differ" in one.problems[f"of node {two.paths.hostname}"]


def test_storage_that_is_gone_or_late_is_a_problem(nodes, shared):
    one, _two = nodes
    one.heart.beat(KINDS)
    one.clock.now += 16
    assert "may hang" in one.problems[f"in {one.place}"]
    one.heart.beat(KINDS)
    assert one.problems == {}
    shutil.rmtree(shared)
    one.heart.beat(KINDS)
    assert "No such file" in one.problems[f"in {one.place}"]
    os.remove(allowed.list_file(one.paths))
    one.heart.beat(KINDS)
    assert "not below a directory listed" in one.problems["of this node"]
    one.heart.rest()
    assert (one.state, one.problems) == (None, {})


def test_storage_that_is_full_hides_no_heartbeat_of_others(nodes, shared, monkeypatch):
    one, two = nodes
    one.ask(two.paths.hostname)
    two.heart.beat(KINDS)
    one.heart.beat(KINDS)
    own = (shared / heartbeats.DIRECTORY / one.paths.hostname).read_bytes()

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    two.heart.beat(KINDS)
    with monkeypatch.context() as patch:
        patch.setattr(heartbeats.Shelf, "write", full)
        one.heart.beat(KINDS)
    assert one.ask(two.paths.hostname) == [(two.heart._run, 2)]
    assert "No space left" in one.problems[f"in {one.place}"]
    assert (shared / heartbeats.DIRECTORY / one.paths.hostname).read_bytes() == own


def test_a_heartbeat_that_storage_takes_in_part_replaces_none(shared, monkeypatch):
    shared.mkdir()
    with heartbeats.shelf(str(shared)) as shelf:
        shelf.write("node1.tst", b"old")
        monkeypatch.setattr(heartbeats.os, "write", lambda _fd, data: len(data) - 1)
        with pytest.raises(OSError, match="No space left"):
            shelf.write("node1.tst", b"new")
        assert shelf.read("node1.tst") == b"old"


def test_metrics_have_the_age_of_the_heartbeat(nodes, monkeypatch):
    one, _two = nodes
    one.heart.beat(KINDS)
    monkeypatch.setattr(mond_agent.clock, "SystemClock", lambda: one.clock)
    one.clock.now += 5
    never = State(written={"/never": (0.0, "full"), "": (0.0, "no key")})
    for state, ages in ((one.state, {one.place: 5.0}), (never, {"/never": math.inf})):
        (family,) = mond_agent._heartbeats(state)
        assert {each.labels["directory"]: each.value for each in family.samples} == ages
    assert list(mond_agent._heartbeats(None)) == []
    assert list(text_string_to_metric_families("")) == []


def test_the_process_follows_its_settings_and_ends_with_the_daemon(nodes):
    one, _two = nodes
    ends = []
    process = heartbeat.Heartbeat(heartbeat.start(one.paths), lambda: ends.append(1))
    process.follow(KINDS)
    until("it writes", lambda: one.state is not None)
    process.follow(())
    until("it rests", lambda: one.state is None)
    process.follow(KINDS)
    until("it writes again", lambda: one.state is not None)
    assert ends == []
    process.close()
    os.wait()


def test_a_process_that_has_ended_is_noticed(nodes):
    one, _two = nodes
    ends = []
    process = heartbeat.Heartbeat(heartbeat.start(one.paths), lambda: ends.append(1))
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    for child in children.read_text().split():
        command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
        if command == pathlib.Path("/proc/self/cmdline").read_bytes():
            os.kill(int(child), 15)
    until("it is noticed", lambda: process.follow(()) or ends)
    process.close()
    os.wait()
