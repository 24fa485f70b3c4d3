"""``oob-redfish`` against sushy-tools' emulator, and against hostile controllers."""

import base64
import contextlib
import hashlib
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import threading

import bcrypt
import pytest
from cryptography import x509 as certificates
from cryptography.hazmat.primitives import serialization

from fakes import patience, ports
from fakes.oob_helpers import Helper
from ganeti.base.tls import x509

pytestmark = pytest.mark.daemon
USER, PASSWORD = "ganeti", "s3=cret;x"
SYSTEM = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
CONFIG = """\
SUSHY_EMULATOR_AUTH_FILE = {users!r}
SUSHY_EMULATOR_STATE_DIR = {state!r}
SUSHY_EMULATOR_FAKE_SYSTEMS = [
    {{"uuid": {system!r}, "name": "fake", "power_state": "On", "nics": []}}
]
"""


def fingerprint(path):
    """Return the digest of a certificate as openssl(1) prints it."""
    pem = certificates.load_pem_x509_certificate(path.read_bytes())
    raw = hashlib.sha256(pem.public_bytes(serialization.Encoding.DER)).digest()
    return raw.hex(":").upper()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a directory with two certificates, that of the controller and another."""
    top = tmp_path_factory.mktemp("redfish")
    for name in ("own", "other"):
        x509.write_cluster_certificate(str(top / f"{name}.pem"))
    return top


@pytest.fixture(scope="module")
def emulator(made):
    """Return a helper whose settings lead to the emulator."""
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (made / "users").write_text(f"{USER}:{hashed}\n")
    (made / "state").mkdir()
    config = CONFIG.format(
        users=str(made / "users"), state=str(made / "state"), system=SYSTEM
    )
    (made / "sushy.conf").write_text(config)
    port = ports.free()
    program = pathlib.Path(sys.executable).parent / "sushy-emulator"
    pem = str(made / "own.pem")
    words = [program, "--fake", "--config", made / "sushy.conf", "-i", "127.0.0.1"]
    words += ["-p", str(port), "--ssl-certificate", pem, "--ssl-key", pem]
    helper = Helper(made, "oob-redfish")
    helper.good = {
        "address": "127.0.0.1",
        "port": port,
        "user": USER,
        "password": PASSWORD,
        "fingerprint": fingerprint(made / "own.pem"),
    }
    with (made / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=made)
    try:
        helper.write(**helper.good)
        patience.until(
            "the emulator answers",
            lambda: helper.run("power-status").returncode == 0,
        )
        yield helper
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(autouse=True)
def good_settings(request):
    yield
    if "emulator" in request.fixturenames:
        helper = request.getfixturevalue("emulator")
        helper.write(**helper.good)


@pytest.mark.sampled
def test_the_power_follows(emulator):
    assert emulator.is_on()
    for command, is_on in (
        *(("power-off", False), ("power-off", False)),
        *(("power-on", True), ("power-on", True)),
    ):
        emulator.switch(command)
        assert emulator.is_on() is is_on


@pytest.mark.sampled
def test_a_machine_is_cycled_unless_it_is_off(emulator):
    emulator.switch("power-on")
    emulator.switch("power-cycle")
    patience.until("the machine is on again", emulator.is_on)
    emulator.switch("power-off")
    assert emulator.failure("power-cycle").endswith("the machine is off already")
    assert not emulator.is_on()
    emulator.switch("power-on")


def test_health_has_the_parts_of_the_machine(emulator):
    rows = emulator.value("health")
    assert ["System", "OK"] in rows
    assert ["Memory", "OK"] in rows
    assert ["CPU Temp", "OK"] in rows
    assert ["BaseBoard System Fan", "OK"] in rows


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"password": "wr0ng"}, "controller 127.0.0.1: refuses user ganeti (401)"),
        ({"system": "none"}, "/redfish/v1/Systems/none: does not exist there"),
        ({"fingerprint": ""}, "if that is its certificate, set fingerprint, or ca"),
        ({"fingerprint": "ab" * 32}, "wanted the certificate of the setting"),
    ],
)
def test_wrong_settings_are_one_line(emulator, changes, text):
    emulator.write(**emulator.good | changes)
    assert text in emulator.failure("power-status", PASSWORD, "wr0ng")


def test_a_system_and_an_authority_can_be_named(emulator, made):
    emulator.write(**emulator.good | {"system": SYSTEM})
    assert emulator.is_on() in (True, False)
    # The certificate is trusted, but has the name of a cluster, not this address.
    changes = {"fingerprint": "", "ca": made / "own.pem"}
    emulator.write(**emulator.good | changes)
    assert "127.0.0.1" in emulator.failure("power-status", PASSWORD)


class Hostile:
    """A TLS server; ``answers`` maps a path to the bytes that it sends back."""

    def __init__(self, *pems):
        self._contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in pems]
        for context, pem in zip(self._contexts, pems, strict=True):
            context.load_cert_chain(pem)
        self.answers = {}
        self.asked = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._hanging = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        for sock in self._hanging:
            sock.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._socket.accept()
                context = self._contexts.pop(0)
                self._contexts.append(context)
                with sock, contextlib.suppress(OSError):
                    self._talk(context.wrap_socket(sock, server_side=True))

    def _talk(self, sock):
        with contextlib.ExitStack() as stack:
            stack.enter_context(sock)
            data = b""
            while b"\r\n\r\n" not in data:
                part = sock.recv(65536)
                if not part:
                    return
                data += part
            self.asked.append(data)
            path = data.split()[1].decode()
            answer = self.answers.get(path, NOTHING)
            if answer is None:
                self._hanging.append(sock)
                stack.pop_all()
                return
            for piece in [answer] if isinstance(answer, bytes) else answer:
                sock.sendall(piece)


NOTHING = b"HTTP/1.1 404 no\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def ok(value):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    head = b"HTTP/1.1 200 ok\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


ENDLESS = (b"x" * 65536 for _ in range(10**6))
ONE = "/redfish/v1/Systems/1"
MEMBERS = ok({"Members": [{"@odata.id": ONE}]})


@pytest.fixture
def hostile(made):
    """Return the server, and a helper whose settings lead to it."""
    server = Hostile(made / "own.pem")
    yield server, hostile_helper(made, server)
    server.close()


def hostile_helper(made, server):
    helper = Helper(made, "oob-redfish")
    helper.write(
        address="127.0.0.1",
        port=server.port,
        user=USER,
        password=PASSWORD,
        fingerprint=fingerprint(made / "own.pem"),
    )
    return helper


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"Systems": ok(b"<html>")}, "not JSON"),
        ({"Systems": ok(b"[" * 100_000)}, "not JSON"),
        ({"Systems": ok([])}, "wanted an object, found []"),
        ({"Systems": ok({"Members": 7})}, "has no members: 7"),
        ({"Systems": ok({"Members": []})}, "has 0 systems"),
        (
            {"Systems": ok({"Members": [{"@odata.id": "//evil.test/x"}]})},
            "wanted a link to a member of /redfish/v1/Systems, found",
        ),
        (
            {"Systems": ok({"Members": [{"@odata.id": "/redfish/v1/Systems/.."}]})},
            "wanted a link to a member",
        ),
        ({"Systems": MEMBERS, "Systems/1": ok({"PowerState": "Maybe"})}, "'Maybe'"),
        ({"Systems": MEMBERS, "Systems/1": ok({"PowerState": [1]})}, "unclear power"),
        (
            {
                "Systems": b"HTTP/1.1 302 go\r\nLocation: https://evil.test/\r\n"
                b"Content-Length: 0\r\n\r\n"
            },
            "redirects elsewhere, which is not followed",
        ),
        (
            {
                "Systems": b"HTTP/1.1 500 no\r\nContent-Length: 70\r\n\r\n"
                + b'{"error": {"message": "with s3=cret;x\\n\\u001b[2Jtwo"}}'.ljust(70)
            },
            "status 500: with *** [2Jtwo",
        ),
        ({"Systems": ok(b"x" * ((1 << 20) + 1))}, "answers with more than"),
        ({"Systems": b"SSH-2.0-x\r\n"}, "controller 127.0.0.1: "),
        ({"Systems": b"HTTP/1.1 200 ok\r\nContent-Length: 99\r\n\r\n{"}, "127.0.0.1: "),
    ],
)
def test_answers_that_are_wrong_are_one_line(hostile, answers, text):
    server, helper = hostile
    server.answers = {f"/redfish/v1/{key}": value for key, value in answers.items()}
    assert text in helper.failure("power-status", PASSWORD)


def test_an_endless_answer_is_cut(hostile):
    server, helper = hostile
    server.answers["/redfish/v1/Systems"] = (
        piece for pieces in ((b"HTTP/1.1 200 ok\r\n\r\n",), ENDLESS) for piece in pieces
    )
    assert "answers with more than" in helper.failure("power-status", PASSWORD)


def test_a_silent_controller_does_not_answer(hostile):
    server, helper = hostile
    server.answers["/redfish/v1/Systems"] = None
    line = "controller 127.0.0.1: does not answer in time"
    assert helper.failure("power-status", PASSWORD) == line


def test_an_odd_action_leads_nowhere_else(hostile):
    """The path of the reset is that of the standard, whatever the answer names."""
    server, helper = hostile
    evil = {"target": "https://evil.test/", "ResetType@Redfish.AllowableValues": ["On"]}
    system = {"PowerState": "Off", "Actions": {"#ComputerSystem.Reset": evil}}
    server.answers = {"/redfish/v1/Systems": MEMBERS, ONE: ok(system)}
    path = f"{ONE}/Actions/ComputerSystem.Reset"
    assert f"{path}: does not exist there" in helper.failure("power-on")
    assert server.asked[-1].startswith(f"POST {path} HTTP/1.1".encode())
    evil["ResetType@Redfish.AllowableValues"] = ["Nmi"]
    server.answers[ONE] = ok(system)
    assert "no reset type for power-on, wanted one of On" in helper.failure("power-on")


def test_the_password_is_not_sent_to_another_controller(made):
    """The second connection shows another certificate than the one with the digest."""
    server = Hostile(made / "own.pem", made / "other.pem")
    try:
        helper = hostile_helper(made, server)
        assert "shows another certificate" in helper.failure("power-status")
        assert server.asked == []
        # The next start sees the other certificate first.
        server._contexts.reverse()
        assert "wanted the certificate of the" in helper.failure("power-status")
        assert server.asked == []
    finally:
        server.close()


def test_the_password_is_sent_in_one_header_alone(hostile):
    server, helper = hostile
    server.answers = {"/redfish/v1/Systems": MEMBERS, ONE: ok({"PowerState": "On"})}
    assert helper.is_on()
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    for data in server.asked:
        assert data.count(token) == 1
        assert PASSWORD.encode() not in data
