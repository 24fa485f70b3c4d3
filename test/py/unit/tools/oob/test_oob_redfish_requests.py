"""``oob-redfish``: its requests over TLS, whom it trusts, and answers that are errors."""

import base64
import hashlib
import http.server
import json
import ssl
import threading

import pytest
from cryptography.hazmat.primitives import serialization

from ganeti.base import errors
from ganeti.base.tls import x509
from ganeti.tools.oob import oob_redfish

GIVEN = {key: value or "" for key, value in oob_redfish.KEYS.items()} | {
    "address": "127.0.0.1",
    "user": "ganeti",
    "password": "s3cret",
    "system": "1",
}
SYSTEM = "/redfish/v1/Systems/1"


class Handler(http.server.BaseHTTPRequestHandler):
    """Keeps requests; answers as the server says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.headers.get("Content-Length") or 0)
        names = ("Authorization", "Accept", "OData-Version", "Content-Type", "Expect")
        self.server.seen.append(
            (
                *(self.command, self.path, self.rfile.read(size)),
                {name: self.headers.get(name) for name in names},
            )
        )
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "https://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - its base class names it

    def log_message(self, *_words):
        """Print nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A server whose connections may be broken off by its clients."""

    def handle_error(self, _request, _address):
        """Print nothing."""


@pytest.fixture(scope="module")
def pair():
    return x509.create_self_signed("bmc")


@pytest.fixture
def server(tmp_path, pair):
    pem = tmp_path / "server.pem"
    pem.write_bytes(pair.pem)
    made = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(pem))
    made.socket = context.wrap_socket(made.socket, server_side=True)
    made.seen, made.answer = [], (200, b"{}")
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def digest(pair):
    raw = pair.certificate.public_bytes(serialization.Encoding.DER)
    return hashlib.sha256(raw).hexdigest()


def connected(server, **changes):
    settings = GIVEN | {"port": str(server.server_port)} | changes
    return oob_redfish.Connection(settings, 30.0)


@pytest.mark.parametrize(
    "form", [str, str.upper, lambda text: text[:2] + ":" + text[2:]]
)
def test_a_controller_with_the_set_certificate_gets_the_password(server, pair, form):
    ask = connected(server, fingerprint=form(digest(pair)))
    assert server.seen == []
    assert ask("/redfish", None, 30.0) == (200, b"{}")
    server.answer = (202, b"x")
    assert ask("/do", b'{"a": 1}', 30.0) == (202, b"x")
    assert ask("/redfish", None, 30.0) == (202, b"x")
    account = base64.b64encode(b"ganeti:s3cret").decode()
    headers = {
        "Authorization": f"Basic {account}",
        "Accept": "application/json",
        "OData-Version": "4.0",
        "Content-Type": None,
        "Expect": None,
    }
    assert server.seen == [
        ("GET", "/redfish", b"", headers),
        ("POST", "/do", b'{"a": 1}', headers | {"Content-Type": "application/json"}),
        ("GET", "/redfish", b"", headers),
    ]


def test_another_certificate_gets_nothing(server, pair):
    with pytest.raises(errors.CommandError) as caught:
        connected(server, fingerprint="ab" * 32)
    assert str(caught.value) == (
        "wanted the certificate of the setting fingerprint, found"
        f" {digest(pair)}; if the controller has a new one, correct the setting"
    )
    assert server.seen == []


def test_a_certificate_that_nobody_signed_is_refused(server):
    ask = connected(server)
    with pytest.raises(errors.CommandError, match=r"set fingerprint, or ca$"):
        ask("/redfish", None, 30.0)
    assert server.seen == []


def test_a_redirection_is_not_followed_and_a_large_answer_is_cut(server, pair):
    ask = connected(server, fingerprint=digest(pair))
    server.answer = (302, b"")
    assert ask("/redfish", None, 30.0) == (302, b"")
    server.answer = (200, bytes(1 << 20))
    assert ask("/redfish", None, 30.0) == (200, bytes(1 << 20))
    server.answer = (200, bytes((1 << 20) + 1))
    text = "^answers with more than 1048576 bytes$"
    with pytest.raises(errors.CommandError, match=text):
        ask("/redfish", None, 30.0)


def test_a_controller_that_is_gone_is_named(server, pair):
    port = server.server_port
    server.shutdown()
    server.server_close()
    settings = GIVEN | {"port": str(port), "fingerprint": digest(pair)}
    controller = oob_redfish.Controller(
        settings, oob_redfish.Connection, lambda: 0.0, lambda _seconds: None
    )
    with pytest.raises(errors.OpExecError, match=r"^controller 127\.0\.0\.1: .*onnect"):
        controller.execute("power-status")


@pytest.mark.parametrize(
    ("code", "text", "line"),
    [
        (28, "Timeout was reached", "does not answer in time"),
        (23, "Failed writing", "answers with more than 1048576 bytes"),
        (90, "pin", "shows another certificate than at first; something is between"),
        (
            60,
            "bad s3cret",
            "bad ***; if that is its certificate, set fingerprint, or ca",
        ),
        (7, "refused\nby s3cret", "refused by ***"),
    ],
)
def test_causes_of_failed_requests(code, text, line):
    assert oob_redfish._cause(code, text, settings=GIVEN) == line


# Answers that are errors
def executed(*answers, command="power-status", **changes):
    """Run a command against answers in turn; return (the result, the limits)."""
    left, limits = list(answers), []

    def ask(_path, _body, limit_s):
        limits.append(limit_s)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()

    def connect(_settings, limit_s):
        limits.append(limit_s)
        return ask

    made = oob_redfish.Controller(
        GIVEN | changes, connect, lambda: 100.0, lambda _seconds: None
    )
    return made.execute(command), limits


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((200, b"{"), f"{SYSTEM}: "),
        ((200, []), f"{SYSTEM}: wanted an object, found []"),
        ((200, {}), "unclear power state None"),
        ((200, {"PowerState": "Maybe"}), "unclear power state 'Maybe'"),
        ((200, {"PowerState": ["On"]}), "unclear power state ['On']"),
        ((302, b""), f"{SYSTEM}: redirects elsewhere, which is not followed"),
        ((399, b""), f"{SYSTEM}: redirects elsewhere, which is not followed"),
        ((401, b""), "refuses user ganeti (401)"),
        ((403, b""), "refuses user ganeti (403)"),
        ((404, b""), f"{SYSTEM}: does not exist there"),
        ((400, b"<html>"), f"{SYSTEM}: status 400: no further text"),
        ((500, {}), f"{SYSTEM}: status 500: no further text"),
        ((500, {"error": {"message": "a\nb"}}), f"{SYSTEM}: status 500: a b"),
        (
            (
                500,
                {
                    "error": {
                        "message": "general",
                        "@Message.ExtendedInfo": [{"Message": "with s3cret"}],
                    }
                },
            ),
            f"{SYSTEM}: status 500: with ***",
        ),
        (
            (500, {"error": {"message": "m", "@Message.ExtendedInfo": []}}),
            f"{SYSTEM}: status 500: m",
        ),
        ((199, {}), f"{SYSTEM}: status 199: no further text"),
        (errors.CommandError("does not answer in time"), "does not answer in time"),
    ],
)
def test_errors_name_the_controller_and_the_path(answer, text):
    with pytest.raises(errors.OpExecError) as caught:
        executed(answer)
    assert str(caught.value).startswith(f"controller 127.0.0.1: {text}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "limit_s"), [("power-status", 8.0), ("health", 20.0)]
)
def test_each_answer_has_a_time_limit(command, limit_s):
    _value, limits = executed(*[(200, {"PowerState": "On"})] * 3, command=command)
    assert set(limits) == {limit_s}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (None, "its list of systems has no members: None"),
        ([], "has 0 systems; name one in the setting system"),
        ([{}, {}], "has 2 systems; name one in the setting system"),
        (
            [{"@odata.id": "/x"}],
            "wanted a link to a member of /redfish/v1/Systems, fou",
        ),
        (
            [{"@odata.id": "/redfish/v1/Systems/../x"}],
            "wanted a link to a member of /redfish/v1/Systems, found ",
        ),
        ([5], "wanted a link to a member of /redfish/v1/Systems, found 5"),
    ],
)
def test_the_system_must_be_clear(members, text):
    with pytest.raises(errors.OpExecError) as caught:
        executed((200, {"Members": members}), system="")
    assert str(caught.value).startswith(f"controller 127.0.0.1: {text}")


def test_the_only_system_is_taken():
    link = {"@odata.id": f"{SYSTEM}/"}
    value, _limits = executed(
        (200, {"Members": [link]}), (200, {"PowerState": "Off"}), system=""
    )
    assert value == {"powered": False}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("address", ""), ("address", "-x"), ("user", "a:b"), ("user", "")),
        *(("port", "0"), ("port", "x"), ("system", ".."), ("system", "a/b")),
        *(("fingerprint", "ab"), ("fingerprint", "zz" * 32), ("ca", "x")),
    ],
)
def test_settings_have_their_forms(name, value):
    text = f"^invalid {name} "
    with pytest.raises(errors.ConfigurationError, match=text):
        executed(**{name: value})
    with pytest.raises(errors.ConfigurationError, match=r"^invalid password$"):
        executed(password="a\nb")
