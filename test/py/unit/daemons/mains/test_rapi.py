"""The daemon of the remote API: start, TLS, users, and requests over real sockets."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import ssl
import threading

import pytest

from fakes.patience import until
from fakes.rapi_master import RapiMaster
from ganeti.base.constants import exitcodes
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.mains import rapi
from ganeti.daemons.rapi import authentication, pool, users
from ganeti.protocols.http import limits
from ganeti.protocols.luxi import Client, shared

LINE = "jack {HA1}ce9ed419740789a9a91375eda3722642 write\n"


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path), hostname="node1.x")
    os.makedirs(made.data("rapi"))
    pathlib.Path(made.data("ssconf_master_node")).write_text("node1.x\n")
    pathlib.Path(made.data("ssconf_primary_ip_family")).write_text("2\n")
    write_certificate(made)
    return made


def write_certificate(paths, mode=0o440):
    path = pathlib.Path(paths.data("rapi.pem"))
    path.unlink(missing_ok=True)
    path.write_bytes(x509.create_self_signed().pem)
    path.chmod(mode)


def options(*words):
    return common.parse(rapi.build_parser(), ["-b", "127.0.0.1", "-p", "0", *words])


@pytest.fixture
def master(monkeypatch):
    """Let the daemon call a fake master instead of a socket."""
    fake = RapiMaster()
    monkeypatch.setattr(pool.Pool, "call", lambda _self, *a, **k: fake.call(*a, **k))
    monkeypatch.setattr(pool.Pool, "stream", lambda _self, *a: fake.stream(*a))
    monkeypatch.setattr(
        shared.SharedClient, "submit", lambda _self, *a, **k: fake.submit(*a, **k)
    )
    return fake


@contextlib.contextmanager
def served(paths, *words):
    """Run the daemon's service; yield its port."""
    service = rapi.start(options(*words), paths, common.Control())
    try:
        yield service._http.bind_addr[1]
    finally:
        service.stop()


def connection(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)


def get(conn, path, **headers):
    conn.request("GET", path, headers=headers)
    answer = conn.getresponse()
    return answer.status, json.loads(answer.read())


def code_of(paths, *words):
    with pytest.raises(common.StartError) as caught:
        rapi.check(options(*words), paths)
    return caught.value.code, str(caught.value)


def test_it_starts_on_the_master_with_a_safe_key(paths):
    rapi.check(options(), paths)


def test_another_node_is_not_the_master(paths):
    pathlib.Path(paths.data("ssconf_master_node")).write_text("node2.x\n")
    assert code_of(paths)[0] == exitcodes.EXIT_NOTMASTER
    pathlib.Path(paths.data("ssconf_master_node")).unlink()
    assert code_of(paths)[0] == exitcodes.EXIT_NOTMASTER


@pytest.mark.parametrize("mode", [0o444, 0o644, 0o441, 0o460, 0o666])
def test_a_key_that_others_can_use_is_refused(paths, mode):
    write_certificate(paths, mode)
    code, text = code_of(paths)
    assert code == exitcodes.EXIT_FAILURE
    assert paths.data("rapi.pem") in text
    assert f"{mode:04o}" in text
    rapi.check(options("--no-ssl"), paths)


def test_missing_certificates_and_wrong_numbers_are_refused(paths):
    assert code_of(paths, "--ssl-chain", "/none")[0] == exitcodes.EXIT_FAILURE
    assert "--max-clients" in code_of(paths, "--max-clients", "0")[1]
    os.unlink(paths.data("rapi.pem"))
    assert "no such file" in code_of(paths)[1]


def test_requests_share_a_connection(paths, master):
    with served(paths) as port, contextlib.closing(connection(port)) as conn:
        for _ in range(3):
            assert get(conn, "/version") == (200, 2)
        sock = conn.sock
        assert get(conn, "/2/instances?bulk=1")[1][0]["name"] == "web1"
        assert conn.sock is sock
        assert get(conn, "/2/nothing")[0] == 404
        assert sock.version() in {"TLSv1.2", "TLSv1.3"}


def test_old_versions_of_tls_are_refused(paths, master):
    with served(paths) as port:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(("127.0.0.1", port)) as sock,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            context.wrap_socket(sock)


def test_a_new_certificate_is_used_for_new_connections(paths, master):
    with served(paths) as port, contextlib.closing(connection(port)) as first:
        assert get(first, "/version") == (200, 2)
        before = first.sock.getpeercert(binary_form=True)
        write_certificate(paths)
        assert get(first, "/version") == (200, 2)
        with contextlib.closing(connection(port)) as second:
            assert get(second, "/version") == (200, 2)
            assert second.sock.getpeercert(binary_form=True) != before


def test_a_new_key_that_others_can_use_is_not_used(paths, master, caplog):
    def sent(port):
        return ssl.get_server_certificate(("127.0.0.1", port))

    with served(paths) as port:
        before = sent(port)
        write_certificate(paths, 0o444)
        assert sent(port) == before
        assert "keeping the last certificate" in caplog.text
        assert "has mode 0444" in caplog.text
        os.chmod(paths.data("rapi.pem"), 0o440)
        assert sent(port) != before


def test_users_change_while_the_daemon_runs(paths, master, monkeypatch):
    for name in ("_USER_FAILURES", "_ADDRESS_FAILURES"):
        monkeypatch.setattr(authentication, name, (10_000, 1000.0))
    header = {"Authorization": "Basic amFjazpleGFtcGxl"}
    path = pathlib.Path(paths.data("rapi/users"))
    with served(paths) as port, contextlib.closing(connection(port)) as conn:

        def status():
            return get(conn, "/version", **header)[0]

        assert status() == 401
        path.write_text(LINE)
        until("the user is known", lambda: status() == 200)
        # Renamed: a file that is written in place is empty for a moment.
        new = path.with_name("users.new")
        new.write_bytes(b"\xff" + LINE.encode())
        new.rename(path)
        new.write_text("# nobody\n")
        assert status() == 200
        new.rename(path)
        until("the user is unknown", lambda: status() == 401)


def test_a_removed_file_has_no_users(paths, master):
    path = pathlib.Path(paths.data("rapi/users"))
    path.write_text(LINE)
    seen = []
    followed = authentication.WatchedUsers(str(path), seen.append)
    followed.start()
    assert set(seen[0].by_name) == {"jack"}
    path.unlink()
    until("there are no users", lambda: seen[-1] == users.Users())
    followed.stop()


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path, caplog):
    path = tmp_path / "users"
    path.write_bytes(b"\xff")
    assert authentication.read_users(str(path)) is None
    assert "users" in caplog.text
    assert authentication.read_users(str(tmp_path / "none")) == users.Users()
    path.write_text("ann {HA1}x write\n")
    assert authentication.read_users(str(path)).by_name == {}
    assert "line 1: user 'ann' is disabled" in caplog.text


def test_a_directory_that_appears_later_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "_RETRY_S", 0.01)
    path = tmp_path / "rapi" / "users"
    seen = []
    followed = authentication.WatchedUsers(str(path), seen.append)
    followed.start()
    path.parent.mkdir()
    path.write_text(LINE)
    until("the user is known", lambda: "jack" in seen[-1].by_name)
    followed.stop()


def test_a_directory_that_is_replaced_is_watched(tmp_path):
    path = tmp_path / "rapi" / "users"
    path.parent.mkdir()
    path.write_text(LINE)
    seen = []
    followed = authentication.WatchedUsers(str(path), seen.append)
    followed.start()
    until("the watch has begun", lambda: len(seen) > 1)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "users").write_text(f"{LINE}ann secret\n")
    path.parent.rename(tmp_path / "old")
    copy.rename(path.parent)
    until("the copy counts", lambda: "ann" in seen[-1].by_name)
    path.write_text(f"{LINE}bob secret\n")
    until("its changes count", lambda: "bob" in seen[-1].by_name)
    followed.stop()


def test_a_file_that_becomes_readable_counts(tmp_path, monkeypatch):
    path = tmp_path / "users"
    path.write_text(LINE)
    seen = []
    monkeypatch.setattr(
        authentication.files, "read_file", lambda *_args, **_words: b"ann secret"
    )
    followed = authentication.WatchedUsers(str(path), seen.append)
    followed.start()
    until("the watch has begun", lambda: len(seen) > 1)
    monkeypatch.undo()
    path.chmod(0o640)
    until("the file counts", lambda: "jack" in seen[-1].by_name)
    followed.stop()


def test_tunnels_are_no_method(paths, master):
    with served(paths) as port:
        answer = exchange(port, b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 501 Not Implemented\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == 501


def test_waits_for_jobs_leave_threads_for_others():
    plan = rapi.lane_plan(3)
    assert (plan.lanes[0].name, plan.lanes[0].threads) == ("ordinary", 3)
    assert plan.lane_of(b"GET /2/jobs/5/wait HTTP/1.1\r\n") == "wait"
    assert plan.lanes[0].waiting == 150
    assert [lane.patience_s for lane in plan.lanes] == [30.0, 30.0]
    assert (plan.lanes[1].name, plan.lanes[1].threads) == ("wait", 4)
    assert plan.lane_of(b"GET /2/jobs/5 HTTP/1.1\r\n") == "ordinary"
    assert plan.lane_of(b"junk") == "ordinary"


def exchange(port, data):
    """Send raw bytes over TLS and return all that is answered."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain) as sock,
    ):
        sock.sendall(data)
        received = b""
        with contextlib.suppress(OSError):
            while chunk := sock.recv(65536):
                received += chunk
                if b'"explain"' in received:
                    break
        return received


HOST = b"Host: x\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
BASIC = b"Authorization: Basic amFjazpleGFtcGxl\r\n"


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"GET /version HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /2/../version HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
        (b"GET /2/instances/a%2fb HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
        (b"GET /2/instances/%2e%2e/x HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
        (b"GET /2/%00 HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
        (b"GET //2/info HTTP/1.1\r\n" + HOST + b"\r\n", b"400"),
        (b"PUT /2/modify HTTP/1.1\r\n" + HOST + JSON + BASIC + b"Content-Length: 99999999\r\n\r\n", b"413"),
        (b"PUT /2/modify HTTP/1.1\r\n" + HOST + JSON + BASIC + b"Content-Length: -5\r\n\r\n", b"400"),
        (b"PUT /2/modify HTTP/1.1\r\n" + HOST + JSON + BASIC + b"Content-Length: x\r\n\r\n", b"400"),
        (b"GET /version HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 70_000 + b"\r\n\r\n", b"413"),
        (b"GET /version HTTP/1.1\r\n folded\r\n" + HOST + b"\r\n", b"400"),
        (b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + BASIC + b"Content-Length : 5\r\n\r\nhello", b"400"),
        (b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + BASIC + BASIC + b"\r\n", b"400"),
        (b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + HOST + BASIC + b"\r\n", b"400"),
        (b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + BASIC + CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", b"400"),
        (b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + BASIC + CHUNKED + b"FFFFFFFFFF\r\nhello", b"413"),
        (b"\x16\x03\x01 junk\r\n\r\n", b"400"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_requests_harm_nothing(paths, master, start, status):
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    with served(paths) as port:
        received = exchange(port, start)
        assert received.split(b" ")[1] == status
        value = json.loads(received.partition(b"\r\n\r\n")[2])
        assert value["code"] == int(status)
        assert set(value) == {"code", "message", "explain"}
        with contextlib.closing(connection(port)) as conn:
            assert get(conn, "/version") == (200, 2)
    assert not master.jobs


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 100\r\n\r\n", CHUNKED + b"64\r\n"]
)
def test_a_body_that_does_not_come_is_answered_in_time(
    paths, master, framing, monkeypatch
):
    monkeypatch.setattr(limits, "MIN_RATE", 1_000_000)
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    head = b"PUT /2/tags?tag=a HTTP/1.1\r\n" + HOST + JSON + BASIC
    with served(paths) as port:
        # On a busy machine the time may be over before the head has come.
        for limit_s in (0.1, 1, 10):
            monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", limit_s)
            received = exchange(port, head + framing + b'{"a')
            if b'"message":"body:' in received:
                break
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in received
    assert b'"message":"body: it did not arrive in time"' in received
    assert not master.jobs


def test_the_answer_to_head_has_no_body(paths, master):
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    with served(paths) as port, contextlib.closing(connection(port)) as conn:
        for _ in range(2):
            conn.request("HEAD", "/version")
            answer = conn.getresponse()
            assert (answer.status, answer.read()) == (501, b"")
        assert get(conn, "/version") == (200, 2)


def test_bodies_may_be_chunked(paths, master):
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    head = b"PUT /2/instances/web1/rename HTTP/1.1\r\n"
    head += HOST + JSON + BASIC + b"Transfer-Encoding: chunked\r\n\r\n"
    with served(paths) as port:
        body = b'c\r\n{"new_name":\r\n6\r\n"web9"\r\n1\r\n}\r\n0\r\n\r\n'
        assert b" 200 " in exchange(port, head + body)
    assert [op.new_name for op in master.jobs[1]] == ["web9"]


def test_two_lengths_of_one_body_are_no_second_request(paths, master):
    """A proxy may believe one header and this server the other."""
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    hidden = b"PUT /2/tags HTTP/1.1\r\n" + HOST + BASIC + b"\r\n"
    head = b"PUT /2/modify HTTP/1.1\r\n" + HOST + JSON + BASIC
    head += b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served(paths) as port:
        assert b" 400 " in exchange(port, head + hidden)
    assert not master.jobs


def test_the_rest_of_a_body_is_no_second_request(paths, master):
    pathlib.Path(paths.data("rapi/users")).write_text(LINE)
    hidden = b"PUT /2/tags HTTP/1.1\r\n" + HOST + BASIC + b"\r\n"
    head = b"PUT /2/modify HTTP/1.1\r\n" + HOST + JSON
    with served(paths) as port:
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        assert b" 401 " in exchange(port, chunked + hidden)
        length = f"Content-Length: {len(hidden)}\r\n\r\n".encode()
        assert b" 401 " in exchange(port, head + length + hidden)
    assert not master.jobs


def test_a_client_of_this_node_does_not_repeat_calls(paths):
    seen = []
    original = Client.__init__

    def note(self, path, **more):
        seen.append((path, more["retries"]))
        original(self, path, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "__init__", note)
        patch.setattr(rapi, "_CONNECT_S", 0.0)
        words = ("--no-require-authentication",)
        with (
            served(paths, *words) as port,
            contextlib.closing(connection(port)) as conn,
        ):
            status, value = get(conn, "/2/info")
    assert (status, value["message"]) == (502, "Master daemon is not reachable")
    assert seen == [(paths.rapi_socket, 0)]
    assert threading.active_count() < 200
