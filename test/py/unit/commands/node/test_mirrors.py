"""``gnt-node list-drbd``: the answer of this node's confd, asked over a real socket."""

import contextlib
import json
import pathlib
import socket
import threading

import pytest

from fakes import commands
from fakes.confd import KEY, FakeSource, orchard
from fakes.patience import PATIENCE_S
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.commands.node import mirrors
from ganeti.daemons.confd.server import Server
from ganeti.protocols.confd import wire
from ganeti.protocols.ssconf import SimpleStore


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Names of a virtual node with a key and a loopback address; port is free."""
    root = tmp_path / "n1.tst"
    paths = Paths(root=str(root), hostname="n1.tst")
    pathlib.Path(paths.hmac_key).parent.mkdir(parents=True)
    pathlib.Path(paths.hmac_key).write_bytes(KEY)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/hosts").write_text("127.0.0.1 n1.tst\n")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    monkeypatch.setattr(mirrors.netutils, "service_port", lambda *_args: port)
    yield {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}, sock
    sock.close()


@contextlib.contextmanager
def serving(sock, **options):
    source = FakeSource(orchard(), **options)
    server = Server(sock, source, SystemClock())
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()
        source.close()


def test_minors_are_a_table_with_the_other_node(node):
    environ, sock = node
    with serving(sock):
        done = commands.run("gnt-node list-drbd apple", environ=environ)
        assert (done.code, done.err) == (0, "")
        assert done.out == (
            "Node               Minor Instance          Disk   Role      PeerNode        \n"
            "apple.cluster.test     0 inst1.example.com disk/1 secondary fig.cluster.test\n"
        )
        bare = "gnt-node list-drbd --no-headers --separator=, apple"
        assert commands.run(bare, environ=environ).out == (
            "apple.cluster.test,0,inst1.example.com,disk/1,secondary,fig.cluster.test\n"
        )
        listed = commands.run("gnt-node list-drbd --json fig", environ=environ)
        assert {row["disk"]: row["peer"] for row in json.loads(listed.out)} == {
            "disk/0": "pear.cluster.test",
            "disk/1": "apple.cluster.test",
        }


def test_a_server_with_other_signatures_is_asked_with_those(node, monkeypatch):
    environ, sock = node
    ask = mirrors.ConfdClient.ask

    def ask_first_in_vain(client, *args, timeout_s):
        # Without an answer each time; the second question is not given up so soon.
        limit_s = PATIENCE_S if asked else 0.2
        asked.append(limit_s)
        return ask(client, *args, timeout_s=limit_s)

    asked = []
    monkeypatch.setattr(mirrors.ConfdClient, "ask", ask_first_in_vain)
    with serving(sock, magics=(wire.MAGIC_SHA256,)):
        done = commands.run("gnt-node list-drbd apple", environ=environ)
    assert len(asked) == 2
    assert (done.code, done.out.splitlines()[1].split()[1]) == (0, "0")


def test_an_unknown_node_and_no_answer_are_errors(node, monkeypatch):
    environ, sock = node
    with serving(sock):
        done = commands.run("gnt-node list-drbd plum", environ=environ)
    assert (done.code, done.out) == (1, "")
    assert "node plum: confd of this node knows none of this name" in done.err
    monkeypatch.setattr(mirrors, "_ANSWER_S", 0.01)
    done = commands.run("gnt-node list-drbd apple", environ=environ)
    assert (done.code, done.out) == (1, "")
    assert "no answer of ganeti-confd at 127.0.0.1, UDP port" in done.err
    assert "wrong use" not in done.err


def test_confd_is_asked_at_the_address_that_the_cluster_knows(node):
    environ, sock = node
    paths = Paths(root=environ["GANETI_ROOTDIR"], hostname="n1.tst")
    pathlib.Path(paths.root, "etc/hosts").write_text("127.0.1.1 n1.tst\n")
    path = pathlib.Path(SimpleStore(paths).path("node_primary_ips"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("n1.tst 127.0.0.1\nn2.tst 192.0.2.2\n")
    with serving(sock):
        done = commands.run("gnt-node list-drbd apple", environ=environ)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("x", "wanted confd's list of minors"),
        ([["fig", "0", "web", "disk/0", "primary", "pear"]], "`int`"),
        ([["fig", 0, "web", "disk/0", "primary"]], "length 6"),
    ],
)
def test_a_malformed_answer_is_refused(node, monkeypatch, answer, text):
    environ, _ = node
    reply = wire.Reply(1, 0, answer, 5)
    monkeypatch.setattr(
        mirrors.ConfdClient, "ask", lambda *_args, **_kw: mirrors.Result(reply)
    )
    done = commands.run("gnt-node list-drbd fig", environ=environ)
    assert (done.code, done.out) == (1, "")
    assert text in done.err
