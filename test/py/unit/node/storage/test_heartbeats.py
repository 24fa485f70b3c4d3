"""Heartbeats on shared storage: real files, written, read, forged and misplaced."""

import json
import os
import pathlib

import msgspec
import pytest

from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.node.calls import basics as procedures
from ganeti.node.storage import heartbeats
from ganeti.node.storage.heartbeats import Beat, State

KEY = b"secret\n"
NOW = 1_700_000_000.0
RUN = "0f" * 16
NODE = "node2.tst"
BEAT = Beat(NODE, "b" * 36, RUN, 7, NOW)


def opened(data, **changes):
    wanted = {"node": NODE, "now": NOW} | changes
    return heartbeats.opened(data, KEY, **wanted)


def resigned(text):
    signature = heartbeats._signature(text.encode(), KEY)
    return json.dumps({"msg": text, "hmac": signature}).encode()


def test_a_signed_heartbeat_of_the_node_counts():
    data = heartbeats.sealed(BEAT, KEY)
    assert opened(data) == BEAT
    assert opened(data, now=NOW - 300) == opened(data, now=NOW + 300) == BEAT
    assert KEY not in data


def test_a_heartbeat_of_a_later_release_may_say_more():
    text = json.dumps(msgspec.to_builtins(BEAT) | {"load": 1.5})
    assert opened(resigned(text)) == BEAT


def changed(**values):
    return heartbeats.sealed(msgspec.structs.replace(BEAT, **values), KEY)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "malformed"),
        (b"[" * 2000, "malformed"),
        (b'{"msg": 5, "hmac": ""}', "malformed"),
        (heartbeats.sealed(BEAT, b"other"), "did not sign"),
        (
            heartbeats.sealed(BEAT, KEY).replace(b'"hmac":"', b'"hmac":"\xc3\xa9'),
            "sign",
        ),
        (heartbeats.sealed(BEAT, KEY).replace(b":7,", b":8,"), "did not sign"),
        (resigned("{}"), "malformed"),
        (resigned("\N{LATIN SMALL LETTER E WITH ACUTE}"), "malformed"),
        (changed(count=-1), "malformed"),
        (changed(count=2**60), "malformed"),
        (changed(run="x" * 32), "malformed"),
        (changed(boot="x" * 65), "malformed"),
        (changed(node="node3.tst"), "one of node 'node3.tst'"),
        (changed(time=NOW - 301), "out of date"),
        (changed(time=NOW + 3600), "out of date"),
        (changed(time=1e308), "out of date"),
    ],
)
def test_another_content_does_not_count(data, why):
    with pytest.raises(errors.GenericError, match=why):
        opened(data)


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("node2.tst", True),
        ("N-1_x", True),
        ("", False),
        ("..", False),
        (".x", False),
        ("a/b", False),
        ("a\n", False),
        ("x" * 254, False),
    ],
)
def test_names_are_names_of_files(name, is_good):
    assert heartbeats.is_name(name) is is_good


def test_a_file_is_replaced_whole(tmp_path):
    with heartbeats.shelf(str(tmp_path)) as shelf:
        shelf.write(NODE, b"one")
        shelf.write(NODE, b"2")
        assert shelf.read(NODE) == b"2"
    directory = tmp_path / heartbeats.DIRECTORY
    assert directory.stat().st_mode & 0o777 == 0o700
    assert os.listdir(directory) == [NODE]


def test_links_and_odd_files_are_neither_read_nor_written(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"safe")
    with heartbeats.shelf(str(tmp_path)) as shelf:
        directory = tmp_path / heartbeats.DIRECTORY
        (directory / NODE).symlink_to(victim)
        (directory / f".{NODE}.new").symlink_to(victim)
        (directory / "hard").hardlink_to(victim)
        with pytest.raises(OSError, match="symbolic links"):
            shelf.read(NODE)
        shelf.write(NODE, b"mine")
        shelf.write("hard", b"mine")
        assert victim.read_bytes() == b"safe"
        assert shelf.read(NODE) == b"mine"
        os.mkfifo(directory / "pipe")
        (directory / "folder").mkdir()
        (directory / "large").write_bytes(b"x" * 3000)
        for name in ("pipe", "folder"):
            with pytest.raises(errors.GenericError, match="no regular file"):
                shelf.read(name)
        with pytest.raises(errors.GenericError, match="larger than 2048"):
            shelf.read("large")


def test_a_directory_that_others_can_change_is_refused(tmp_path):
    directory = tmp_path / heartbeats.DIRECTORY
    directory.mkdir()
    directory.chmod(0o770)
    with (
        pytest.raises(errors.GenericError, match="mode 770"),
        heartbeats.shelf(str(tmp_path)),
    ):
        pass
    directory.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory.symlink_to(elsewhere)
    with (
        pytest.raises(OSError, match="Not a directory"),
        heartbeats.shelf(str(tmp_path)),
    ):
        pass
    with (
        pytest.raises(FileNotFoundError),
        heartbeats.shelf(str(tmp_path / "not-mounted")),
    ):
        pass


class Node:
    """A node whose process for heartbeats is played by the test."""

    def __init__(self, root):
        self.paths = Paths(str(root), "node1.tst")
        self.process = None
        self.clock = SystemClock()

    def ask(self, *names):
        return procedures.node_heartbeats(self, list(names))


def test_a_request_is_answered_by_the_process_later(tmp_path):
    node = Node(tmp_path)
    now = node.clock.monotonic()
    assert heartbeats.wanted(node.paths, now) == []
    assert node.ask(NODE, "node3.tst") == [None, None]
    assert heartbeats.wanted(node.paths, node.clock.monotonic()) == [NODE, "node3.tst"]
    state = State(looked=node.clock.monotonic(), beats={NODE: (RUN, 7)})
    heartbeats.write_state(node.paths, state)
    assert node.ask(NODE, "node3.tst") == [(RUN, 7), None]
    assert heartbeats.read_state(node.paths) == state
    # It hangs with the storage since then.
    old = msgspec.structs.replace(state, looked=node.clock.monotonic() - 16)
    heartbeats.write_state(node.paths, old)
    assert node.ask(NODE) == [None]
    assert heartbeats.wanted(node.paths, node.clock.monotonic() + 16) == []
    heartbeats.remove_state(node.paths)
    heartbeats.remove_state(node.paths)
    assert heartbeats.read_state(node.paths) is None


def test_a_request_is_bounded_and_has_names(tmp_path):
    node = Node(tmp_path)
    with pytest.raises(errors.OpExecError, match="at most 64 nodes, found 65"):
        node.ask(*["n"] * 65)
    with pytest.raises(errors.OpExecError, match=r"name of a node, found '\.\./x'"):
        node.ask("../x")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"looked": "x"}', "[" * 2000, "x" * 300_000]
)
def test_a_broken_local_file_is_none(tmp_path, text):
    node = Node(tmp_path)
    directory = pathlib.Path(heartbeats.local_directory(node.paths))
    directory.mkdir(parents=True)
    (directory / "state").write_text(text)
    (directory / "wanted").write_text(text)
    assert heartbeats.read_state(node.paths) is None
    assert heartbeats.wanted(node.paths, node.clock.monotonic()) == []
    (directory / "wanted").write_text('{"at": 1.0, "nodes": ["../x", "n2"]}')
    assert heartbeats.wanted(node.paths, 2.0) == ["n2"]


def test_the_newest_of_several_directories_counts():
    later = msgspec.structs.replace(BEAT, time=NOW + 1, count=8)
    assert heartbeats.newer({}, BEAT) == BEAT
    assert heartbeats.newer({NODE: BEAT}, later) == later
    assert heartbeats.newer({NODE: later}, BEAT) == later
