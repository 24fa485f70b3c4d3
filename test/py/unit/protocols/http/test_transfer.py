"""One request: the options of its handle, its body and answer, and its errors.

The handle is a model that keeps options and answers the questions that a test expects.
"""

import errno
import re
import socket

import pycurl
import pytest

from ganeti.protocols.http import client, limits, transfer
from ganeti.protocols.http.client import KeptSockets

URL, CONNECT_TO = pycurl.URL, pycurl.CONNECT_TO


class Handle:
    """A handle of the library; asking it for something that is not set fails."""

    def __init__(self, **answers):
        self.options = {}
        self._answers = {getattr(pycurl, name): a for name, a in answers.items()}

    def setopt(self, option, value):
        self.options[option] = value

    def getinfo(self, option):
        return self._answers[option]


CREDENTIALS = client.Credentials("/our.pem", "/cluster.pem")
OF_NODES = client.Credentials("/our.pem", "/cluster.pem", b"PEM")


def request(**changes):
    fields = {
        "address": "192.0.2.7",
        "port": 1811,
        "path": "/version",
        "body": b"[1, 2]",
        "credentials": CREDENTIALS,
        "timeout_s": 2.5,
        "server": "ganeti-noded",
    }
    return client.Request(**fields | changes)


def made(**changes):
    return transfer.Transfer(request(**changes), lambda _response: None)


def configured(*, fresh=False, **changes):
    handle = Handle()
    made(**changes).configure(
        handle, fresh=fresh, connect_s=0.5, on_socket=lambda _fd: None
    )
    return handle.options


def test_a_request_is_posted_to_the_address_within_its_limits():
    options = configured(headers=("X-Term: 3",))
    assert options[URL] == "https://192.0.2.7:1811/version"
    assert CONNECT_TO not in options
    assert (options[pycurl.POST], options[pycurl.POSTFIELDSIZE_LARGE]) == (1, 6)
    assert options[pycurl.HTTPHEADER] == [
        *("Content-Type: application/json", "Expect:", "X-Term: 3")
    ]
    assert (options[pycurl.TIMEOUT_MS], options[pycurl.CONNECTTIMEOUT_MS]) == (
        2500,
        500,
    )
    assert options[pycurl.FRESH_CONNECT] == 0
    assert configured(fresh=True)[pycurl.FRESH_CONNECT] == 1


def test_addresses_of_both_families_and_plain_http():
    assert (
        configured(address="2001:db8::7")[URL] == "https://[2001:db8::7]:1811/version"
    )
    assert configured(credentials=None)[URL] == "http://192.0.2.7:1811/version"


def test_the_certificate_is_compared_with_the_name_and_the_address_is_given_apart():
    options = configured(
        credentials=OF_NODES, identity="u1.node", address="2001:db8::7"
    )
    assert options[URL] == "https://u1.node:1811/version"
    assert options[CONNECT_TO] == ["u1.node:1811:[2001:db8::7]:1811"]


def test_the_body_of_a_request_that_acts_is_sent_once():
    body = made()
    assert body.seek(0, 0) == pycurl.SEEKFUNC_OK
    assert body.seek(1, 0) == pycurl.SEEKFUNC_FAIL
    assert (body.read(4), body.sent) == (b"[1, ", 4)
    assert body.seek(0, 0) == pycurl.SEEKFUNC_FAIL
    assert (body.read(4), body.read(4), body.sent) == (b"2]", b"", 6)


def test_the_body_of_a_repeatable_request_may_be_sent_again():
    body = made(is_repeatable=True)
    assert body.read(4) == b"[1, "
    assert body.seek(1, 0) == pycurl.SEEKFUNC_FAIL
    assert body.seek(0, 0) == pycurl.SEEKFUNC_OK
    assert (body.read(8), body.sent) == (b"[1, 2]", 10)


def test_a_request_that_may_have_acted_says_why_it_was_not_sent_again():
    body = made()
    body.read(6)
    text = "Error 65: seek callback returned error 1"
    answer = body.result(Handle(NUM_CONNECTS=0), text)
    assert answer.error == f"Error 65: 192.0.2.7:1811: {transfer.CLOSED}"
    assert answer.is_lost


def test_an_answer_of_the_largest_size_is_accepted_and_no_larger_one():
    answer = made(max_answer=4)
    assert (answer.write(b"abc"), answer.write(b"d")) == (3, 1)
    assert not answer.is_too_large
    ended = answer.result(Handle(RESPONSE_CODE=200), None)
    assert ended == client.Response(200, b"abcd")
    assert (answer.write(b"e"), answer.is_too_large) == (0, True)
    handle = Handle(NUM_CONNECTS=1)
    text = "Error 23: 192.0.2.7:1811: the answer is larger than 4 bytes"
    assert answer.result(handle, "Error 23: Failure writing").error == text


@pytest.mark.parametrize(
    ("text", "connects", "sent", "is_lost", "is_refused"),
    [
        ("Error 56: reset", 1, 0, False, False),
        ("Error 56: reset", 1, 3, True, False),
        ("Error 56: tlsv13 alert certificate required", 1, 3, False, True),
        # A kept connection had accepted our certificate before.
        ("Error 56: tlsv13 alert certificate required", 0, 3, True, False),
    ],
)
def test_what_may_have_arrived_counts_as_lost(
    text, connects, sent, is_lost, is_refused
):
    sending = made()
    sending.read(sent)
    ended = sending.result(Handle(NUM_CONNECTS=connects), text)
    assert (ended.status, ended.body) == (0, b"")
    assert (ended.is_lost, ended.is_refused) == (is_lost, is_refused)
    assert ended.error.startswith("Error 56: 192.0.2.7:1811: ")


@pytest.mark.parametrize("ending", ["given_up", "aborted"])
def test_a_request_that_is_ended_early_is_lost_if_some_of_it_was_sent(ending):
    sending = made()
    assert getattr(sending, ending)().is_lost is False
    sending.read(1)
    ended = getattr(sending, ending)()
    assert (ended.status, ended.is_lost) == (0, True)
    assert "192.0.2.7:1811: " in ended.error
    wanted = {"given_up": transfer.FROZEN, "aborted": "was ended on request"}
    assert wanted[ending] in ended.error


TIMED_OUT = f"Error {pycurl.E_OPERATION_TIMEDOUT}: timed out"
REFUSED = f"Error {pycurl.E_COULDNT_CONNECT}: failed"
FOREIGN = f"Error {pycurl.E_SSL_CACERT}: self-signed"
HALF = {"CONNECT_TIME": 0.1, "APPCONNECT_TIME": 0, "EFFECTIVE_URL": "https://x"}
OLD = {"NUM_CONNECTS": 1} | HALF | {"APPCONNECT_TIME": 0.2, "PRIMARY_IP": "192.0.2.7"}


@pytest.mark.parametrize(
    ("error", "answers", "wanted"),
    [
        (TIMED_OUT, HALF, transfer.FROZEN),
        (TIMED_OUT, OLD, r"1811: timed out$"),
        (
            TIMED_OUT,
            OLD | {"CONNECT_TIME": 0, "PRIMARY_IP": ""},
            r"1811 does not answer: no connection within 10 s; is the machine up",
        ),
        (
            REFUSED,
            OLD | {"OS_ERRNO": errno.ECONNREFUSED},
            r"does not answer: connection refused; is ganeti-noded running there\?$",
        ),
        (
            REFUSED,
            OLD | {"OS_ERRNO": errno.EHOSTUNREACH},
            r"does not answer: no route to host; is the machine up",
        ),
        (REFUSED, OLD | {"OS_ERRNO": 0}, r"1811: failed$"),
        (FOREIGN, OLD, "has not the certificate /cluster.pem.*--new-cluster-cert"),
        (
            f"Error {pycurl.E_SSL_CERTPROBLEM}: no key",
            OLD,
            "/our.pem of this node cannot be used.*--new-node-certificates",
        ),
        (
            "Error 56: alert unknown ca",
            OLD,
            "refuses /our.pem of this node.*--new-node-certificates",
        ),
        ("Error 56: reset", OLD, r"1811: reset$"),
    ],
)
def test_errors_say_where_why_and_what_to_look_at(error, answers, wanted):
    handle = Handle(**{"NUM_CONNECTS": 1} | answers)
    sending = made(connect_timeout_s=10)
    text = sending.result(handle, error).error
    assert text.startswith(f"{error.partition(':')[0]}: 192.0.2.7:1811")
    assert re.search(wanted, text), text


def test_another_machine_at_the_address_is_named():
    sending = made(credentials=OF_NODES, identity="u1.node")
    text = sending.result(Handle(**OLD), FOREIGN).error
    assert "does not have the certificate of node u1.node (self-signed)" in text
    assert "gnt-node add --readd" in text


@pytest.mark.parametrize(
    ("error", "changes", "wanted"),
    [
        (TIMED_OUT, {}, True),
        (REFUSED, {}, False),
        (TIMED_OUT, {"CONNECT_TIME": 0}, False),
        (TIMED_OUT, {"APPCONNECT_TIME": 0.1}, False),
        (TIMED_OUT, {"EFFECTIVE_URL": "http://x"}, False),
    ],
)
def test_a_connection_that_only_the_kernel_accepted(error, changes, wanted):
    assert transfer.is_unanswered(Handle(**HALF | changes), error) is wanted


@pytest.mark.parametrize(
    ("error", "code", "wanted"),
    [
        ("Error 7: x", errno.EHOSTUNREACH, True),
        (REFUSED, errno.ECONNREFUSED, False),
        ("Error 56: x", errno.EHOSTUNREACH, False),
    ],
)
def test_a_machine_without_power_shows_no_life(error, code, wanted):
    handle = Handle(OS_ERRNO=code)
    assert transfer.is_unreachable(handle, error) is wanted
    assert client._shows_life(handle, error) is not wanted
    assert not client._shows_life(handle, TIMED_OUT)
    assert client._shows_life(handle, "")


@pytest.fixture
def handles(monkeypatch):
    monkeypatch.setattr(pycurl, "Curl", Handle)


@pytest.mark.usefixtures("handles")
def test_handles_check_the_server_and_follow_nothing():
    options = transfer.handle(CREDENTIALS).options
    assert options[pycurl.SSLVERSION] == pycurl.SSLVERSION_TLSv1_2
    assert options[pycurl.SSL_CIPHER_LIST] == limits.CIPHERS
    assert options[pycurl.SSLCERT] == options[pycurl.SSLKEY] == "/our.pem"
    assert (options[pycurl.SSL_VERIFYPEER], options[pycurl.SSL_VERIFYHOST]) == (1, 0)
    assert options[pycurl.CAINFO] == "/cluster.pem"
    assert (options[pycurl.FOLLOWLOCATION], options[pycurl.PROXY]) == (0, "")
    assert options[pycurl.NOSIGNAL] == options[pycurl.TCP_KEEPALIVE] == 1
    assert options[pycurl.SSL_SESSIONID_CACHE] == 0
    # The server keeps idle connections for longer.
    assert 0 < options[pycurl.MAXAGE_CONN] < limits.IDLE_TIMEOUT_S
    of_nodes = transfer.handle(OF_NODES).options
    assert of_nodes[pycurl.CAINFO_BLOB] == b"PEM"
    assert pycurl.CAINFO not in of_nodes
    assert (of_nodes[pycurl.SSL_VERIFYPEER], of_nodes[pycurl.SSL_VERIFYHOST]) == (1, 2)
    assert pycurl.SSLCERT not in transfer.handle(None).options


@pytest.mark.usefixtures("handles")
def test_a_probe_is_a_new_connection_without_a_request():
    options = transfer.probe(request(connect_timeout_s=3)).options
    assert options[URL] == "https://192.0.2.7:1811/version"
    for option in (pycurl.CONNECT_ONLY, pycurl.FRESH_CONNECT, pycurl.FORBID_REUSE):
        assert options[option] == 1
    assert options[pycurl.CONNECTTIMEOUT_MS] == 3000
    assert pycurl.POST not in options


def test_the_kernel_gives_up_a_peer_that_acknowledges_nothing():
    with socket.socket() as sock:
        option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert transfer._limit_silence(sock.fileno(), 0) == pycurl.SOCKOPT_OK
        assert sock.getsockopt(*option) == 10_000


# Sockets of kept connections: which server has closed one.

HOST, OTHER = ("192.0.2.1", 1811), ("192.0.2.2", 1811)


def test_only_the_server_that_has_closed_one_is_named():
    kept = KeptSockets()
    pairs = [socket.socketpair() for _ in range(3)]
    for (ours, _theirs), host in zip(pairs, (HOST, HOST, OTHER), strict=True):
        kept.note(host, ours.fileno())
    assert (kept.has_closed(HOST), kept.has_closed(OTHER)) == (False, False)
    pairs[1][1].send(b"data is no end")
    assert not kept.has_closed(HOST)
    pairs[1][1].close()
    assert (kept.has_closed(HOST), kept.has_closed(OTHER)) == (True, False)
    # A socket that the client closed counts no more, also if its number is used again.
    pairs[1][0].close()
    again = socket.socketpair()
    assert not kept.has_closed(HOST)
    for sock in (*pairs[0], *pairs[2], *again):
        sock.close()


def test_a_server_without_connections_has_closed_none():
    assert not KeptSockets().has_closed(HOST)
