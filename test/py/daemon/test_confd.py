"""ganeti-confd on three real nodes: followers of the store that answer over UDP."""

import json
import os
import pathlib
import signal
import time

import pytest

from fakes import confd_hostile
from fakes.patience import until
from ganeti.protocols import ssconf
from ganeti.protocols.confd import ConfdClient, wire
from ganeti.protocols.confd.client import ALL

ADD = ("gnt-instance", "add", "--no-install", "-t", "diskless", "-o", "tiny+default")
ADD += ("--no-ip-check", "--no-name-check")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3)


def key_of(cluster):
    return pathlib.Path(cluster.paths().hmac_key).read_bytes()


def address(cluster, name):
    return cluster.node(name).address


def client(cluster, *names):
    """Return a client of some nodes, of all candidates if none is named."""
    peers = [address(cluster, name) for name in names]
    peers = peers or ssconf.SimpleStore(cluster.paths()).master_candidates_ips()
    return ConfdClient(key_of(cluster), peers, port=1814)


def asked_once(cluster, name, kind, query=None):
    """Return the reply of one node, None if there is none."""
    return client(cluster, name).ask(kind, query, timeout_s=2).reply


def ask(cluster, name, kind, query=None):
    """Return the reply of one node, however late; a packet may be lost."""
    what = f"a reply of confd on {name}"
    return until(what, lambda: asked_once(cluster, name, kind, query))


def log_of(cluster, name):
    return pathlib.Path(cluster.paths(name).log_dir, "conf-daemon.log").read_text()


def pid_of(cluster, name):
    return int(pathlib.Path(cluster.paths(name).pid_file("ganeti-confd")).read_text())


def test_every_candidate_answers(cluster):
    for name in ("node1", "node2", "node3"):
        until(f"confd of {name}", lambda name=name: ask(cluster, name, 3).status == 0)
        reply = ask(cluster, name, 3)
        assert reply.answer == "node1.vc.test"
        assert ask(cluster, name, 0).answer == 3010000
        assert ask(cluster, name, 1, "node1").answer == 0
        assert ask(cluster, name, 1, "node2").answer == 1
        assert sorted(ask(cluster, name, 4).answer) == sorted(
            address(cluster, f"node{number}") for number in (1, 2, 3)
        )


def test_a_change_reaches_every_candidate(cluster):
    try:
        cluster.check(
            *ADD,
            "-n",
            "node2",
            "--net",
            "0:ip=198.51.100.7,mode=routed,link=100",
            "web1.vc.test",
        )
        query = {"0": "100", "1": "198.51.100.7"}
        for name in ("node1", "node2", "node3"):
            until(
                f"the address on {name}",
                lambda name=name: (
                    ask(cluster, name, 2, query).answer == address(cluster, "node2")
                ),
            )
        serials = {ask(cluster, name, 3).serial for name in ("node1", "node2")}
        assert len(serials) == 1
        shown = json.loads(
            cluster.check("confd-client", "node-instances", "node2", node="node3")
        )
        assert [item["name"] for item in shown[0]] == ["web1.vc.test"]
    finally:
        cluster.check("gnt-instance", "remove", "-f", "web1.vc.test")
    until("it is gone", lambda: ask(cluster, "node3", 2, query).status == 1)


def test_the_others_answer_while_one_is_dead(cluster):
    os.kill(pid_of(cluster, "node1"), signal.SIGKILL)
    result = client(cluster).ask(3, coverage=ALL)
    assert (result.is_ok, len(result.answered)) == (True, 2)
    assert address(cluster, "node1") not in result.answered
    cluster.check("ganeti-watcher", "--no-wait-children")
    assert ask(cluster, "node1", 3).status == 0


def test_a_node_that_is_no_candidate_has_no_answers(cluster):
    cluster.check("gnt-node", "modify", "-C", "no", "--force", "node3")
    try:
        until("it is disabled", lambda: ask(cluster, "node3", 3).status == 1)
        assert "not a master candidate" in ask(cluster, "node3", 3).answer
        assert client(cluster, "node1", "node3").ask(3, coverage=ALL).is_ok
        assert ask(cluster, "node1", 1, "node3").answer == 4
    finally:
        cluster.check("gnt-node", "modify", "-C", "yes", "node3")
    until("it is enabled again", lambda: ask(cluster, "node3", 3).status == 0)
    cluster.wait_until_clean()


def test_drops_are_counted_and_logged(cluster):
    bad = ConfdClient(b"other key", [address(cluster, "node2")], port=1814)
    assert bad.ask(0, timeout_s=0.3).reply is None
    sha256 = ConfdClient(
        key_of(cluster),
        [address(cluster, "node2")],
        port=1814,
        magic=wire.MAGIC_SHA256,
    )
    assert sha256.ask(0, timeout_s=0.3).reply is None

    def are_counted():
        # It may log before it has read both.
        os.kill(pid_of(cluster, "node2"), signal.SIGUSR1)
        return "magic 1, signature 1" in log_of(cluster, "node2")

    until("both are counted", are_counted)


def test_another_key_is_taken_over_without_a_restart(cluster):
    path = pathlib.Path(cluster.paths("node3").hmac_key)
    old, pid = path.read_bytes(), pid_of(cluster, "node3")
    try:
        new = path.with_suffix(".new")
        new.write_bytes(b"f" * 40 + b"\n")
        os.replace(new, path)
        other = ConfdClient(b"f" * 40 + b"\n", [address(cluster, "node3")], port=1814)
        until("the new key", lambda: other.ask(0, timeout_s=0.5).reply is not None)
    finally:
        new.write_bytes(old)
        os.chmod(new, 0o440)
        os.replace(new, path)
    assert ask(cluster, "node3", 0).status == 0
    assert pid_of(cluster, "node3") == pid


def test_options_change_signatures_and_replays(cluster):
    cluster.check("daemon-util", "stop", "ganeti-confd", node="node3")
    cluster.check(
        *("daemon-util", "start", "ganeti-confd", "--hmac=sha256", "--detect-replays"),
        node="node3",
    )
    try:
        shown = cluster.check(
            *("confd-client", "--sha256", "-a", address(cluster, "node3"), "master"),
            node="node1",
        )
        assert json.loads(shown) == "node1.vc.test"
        assert asked_once(cluster, "node3", 0) is None
    finally:
        cluster.check("daemon-util", "stop", "ganeti-confd", node="node3")
        cluster.check("daemon-util", "start", "ganeti-confd", node="node3")


def test_confd_does_not_start_without_a_key(cluster):
    path = pathlib.Path(cluster.paths("node3").hmac_key)
    away = path.with_suffix(".away")
    cluster.check("daemon-util", "stop", "ganeti-confd", node="node3")
    os.replace(path, away)
    try:
        result = cluster.run("ganeti-confd", "-b", "127.0.0.1", node="node3")
        assert result.code == 1
        assert "hmac.key: no key of confd" in result.output
    finally:
        os.replace(away, path)
        cluster.check("daemon-util", "start", "ganeti-confd", node="node3")


def test_the_tool_shows_everything_and_measures(cluster):
    shown = cluster.check("confd-client", "-r", "3", node="node2")
    for word in ("ping: ok", "master fields: ok", "node role of the master: ok"):
        assert word in shown
    assert "ms per query, 3 queries" in shown
    unknown = cluster.run("confd-client", "node-role", "plum")
    text = "node-role: the cluster knows no such object"
    assert (unknown.code, text in unknown.output) == (1, True)
    assert cluster.run("confd-client", "no-such-query").code == 2


def test_mutated_packets_get_no_reply_and_cost_no_memory(cluster):
    # As many as fit; the command `test/bench/run confd --hostile 1000000` sends more.
    pid, seed = pid_of(cluster, "node2"), time.time_ns() % 10**9
    where = address(cluster, "node2")
    sent, replies, _growth = confd_hostile.run(
        key_of(cluster), where, 1814, pid, seed=seed, seconds=5
    )
    assert 0 < replies < sent
    assert pid_of(cluster, "node2") == pid
    assert ask(cluster, "node2", 3).answer == "node1.vc.test"
    assert "Traceback" not in log_of(cluster, "node2")
