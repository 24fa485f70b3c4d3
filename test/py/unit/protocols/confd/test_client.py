"""The client library against real servers on loopback, and its rules."""

import socket
import threading

import pytest

from fakes.confd import KEY, FakeSource, orchard
from fakes.patience import until
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.daemons.confd import server
from ganeti.protocols.confd import client as client_module
from ganeti.protocols.confd import wire
from ganeti.protocols.confd.client import ALL, ConfdClient, Result, needed, newer
from ganeti.tools import confd_client


class Peer:
    """A server in a thread."""

    def __init__(self, address, snapshot, port=0, key=KEY, **options):
        self.source = FakeSource(snapshot, key)
        sock = server.bind(address, port)
        self.port = sock.getsockname()[1]
        self.server = server.Server(sock, self.source, SystemClock(), **options)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def stop(self):
        self.server.stop()
        self.thread.join(10)
        self.source.close()


@pytest.fixture
def peer_of():
    """Return a function that starts servers, all on the port of the first one."""
    peers = []

    def start(snapshot, **options):
        number = len(peers) + 1
        port = peers[0].port if peers else 0
        peers.append(Peer(f"127.0.0.{number}", snapshot, port, **options))
        return peers[-1]

    yield start
    for peer in peers:
        peer.stop()


def client_of(count, port, **options):
    addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
    return ConfdClient(KEY, addresses, port=port, **options)


def test_an_answer_over_the_network(peer_of):
    peer = peer_of(orchard())
    result = client_of(1, peer.port).ask(1, "pear")
    assert (result.reply.answer, result.answered) == (1, ("127.0.0.1",))
    assert (result.is_ok, result.is_complete, result.is_inconsistent) == (
        True,
        True,
        False,
    )
    until("it is counted", lambda: peer.server.counters.answered == 1)


def test_the_newest_of_several_answers_counts(peer_of):
    old, new = orchard(), orchard().at(78, 1)
    port = peer_of(old).port
    for snapshot in (new, None):
        peer_of(snapshot)
    result = client_of(2, port).ask(3, coverage=ALL)
    assert (result.reply.serial, sorted(result.answered)) == (
        78,
        ["127.0.0.1", "127.0.0.2"],
    )
    # A server without a configuration loses against one that answers.
    for _ in range(5):
        assert client_of(3, port).ask(3, coverage=ALL).is_ok


def test_a_server_that_is_down_does_not_delay_a_majority(peer_of):
    port = peer_of(orchard()).port
    peer_of(orchard())
    result = client_of(3, port).ask(3, coverage=ALL, timeout_s=60)
    assert (len(result.answered), result.is_complete) == (2, True)


def test_a_change_is_seen(peer_of):
    peer = peer_of(orchard())
    client = client_of(1, peer.port)
    peer.source.put(orchard().at(99, 1))
    until("the new serial", lambda: client.ask(3).reply.serial == 99)
    peer.source.put(None)
    until("no configuration", lambda: not client.ask(3).is_ok)


def test_a_server_with_another_key_is_silent(peer_of):
    peer = peer_of(orchard(), key=b"other")
    result = client_of(1, peer.port).ask(0, timeout_s=0.2)
    assert result == Result()
    until("it is counted", lambda: peer.server.counters.dropped["signature"] == 1)


def test_a_recorded_request_is_answered_once_if_wanted(peer_of):
    peer = peer_of(orchard(), detects_replays=True)
    signers = wire.Signers(KEY)
    now = SystemClock().time()
    data = wire.seal_query(wire.Query(1, 0, "same"), now, signers, b"plj0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        for _ in range(3):
            sock.sendto(data, ("127.0.0.1", peer.port))
        assert wire.open_reply(sock.recv(61440), signers)[0] == "same"
        until("others are dropped", lambda: peer.server.counters.dropped["replay"] == 2)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(61440)


def test_replies_of_strangers_do_not_count():
    signers = wire.Signers(KEY)
    message = wire.encode_message(wire.Reply(1, 0, "forged", 10**9))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))

        def forge():
            data, sender = sock.recvfrom(61440)
            salt = wire.open_request(data, signers, SystemClock().time())[1].rsalt
            bad = wire.seal_reply(b"plj0", message, salt, wire.Signers(b"other"))
            for reply in (
                b"",
                b"plj1{}",
                b"plj0{}",
                bad,
                wire.seal_reply(b"plj0", message, "other salt", signers),
            ):
                sock.sendto(reply, sender)
            good = wire.encode_message(wire.Reply(1, 0, "good", 1))
            sock.sendto(wire.seal_reply(b"plj0", good, salt, signers), sender)

        thread = threading.Thread(target=forge)
        thread.start()
        result = client_of(1, sock.getsockname()[1]).ask(0)
        thread.join()
    assert result.reply.answer == "good"


def ok(answer, serial):
    return wire.Reply(1, 0, answer, serial)


def test_the_rules_of_choice():
    error = wire.Reply(1, 1, "no", 0)
    assert newer(Result(error), ok("x", 1)).reply.answer == "x"
    assert newer(Result(ok("x", 1)), error).reply.answer == "x"
    assert newer(Result(ok("x", 2)), ok("y", 1)).reply.answer == "x"
    assert newer(Result(ok("x", 1)), ok("y", 2)).reply.answer == "y"
    odd = newer(Result(ok("x", 1)), ok("y", 1))
    assert odd.is_inconsistent
    assert not newer(odd, ok("z", 2)).is_inconsistent
    assert not newer(Result(error), wire.Reply(1, 1, "other", 0)).is_inconsistent


def test_how_many_must_answer():
    assert [needed(count) for count in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("peers", "coverage", "text"),
    [
        ([], None, "no addresses"),
        (["192.0.2.1", "2001:db8::1"], None, "mixed"),
        (["192.0.2.1"], 2, "wanted to ask 2 master candidates, 1 are known"),
        (["192.0.2.1"], 0, "wanted to ask 0"),
    ],
)
def test_misuse_is_an_error(peers, coverage, text):
    with pytest.raises(errors.ConfdClientError, match=text):
        ConfdClient(KEY, peers, port=1).ask(0, coverage=coverage)


def test_six_are_asked_by_default():
    client = client_of(9, 1)
    assert len(set(client._choose(None))) == 6
    assert len(client._choose(ALL)) == 9
    assert client_module.ALL == -1


def test_the_tool_with_another_key_names_what_to_look_at(peer_of, capsys):
    peer = peer_of(orchard())
    argv = ["-a", "127.0.0.1", "-p", str(peer.port), "-t", "0.3", "master"]
    assert confd_client.main([f"--hmac={KEY.decode()}", *argv]) == 0
    capsys.readouterr()
    assert confd_client.main(["--hmac=anotherkey", *argv]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "confd-client: no answer within 0.3 seconds: is ganeti-confd running there, and"
        " is the key the same?\n"
    )


def test_the_tool_takes_a_key_from_a_file(peer_of, capsys, tmp_path):
    peer = peer_of(orchard())
    argv = ["-a", "127.0.0.1", "-p", str(peer.port), "master"]
    path = tmp_path / "key"
    path.write_bytes(KEY)
    assert confd_client.main([f"--hmac-file={path}", *argv]) == 0
    assert capsys.readouterr().err == ""
    for content, text in (
        (b"\n", "wanted a key, found an empty file"),
        (b"x" * 5000, "larger than 4096 bytes"),
        (None, "No such file"),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert confd_client.main([f"--hmac-file={path}", *argv]) == 1
        shown = capsys.readouterr().err
        assert text in shown
        assert str(path) in shown
    with pytest.raises(SystemExit):
        confd_client.main(["--hmac=x", f"--hmac-file={path}", *argv])
    assert "not allowed with argument" in capsys.readouterr().err
