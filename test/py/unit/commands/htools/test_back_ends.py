"""Daemons as sources of clusters: real sockets, and peers that misbehave."""

import base64
import contextlib
import datetime as dt
import http.server
import inspect
import ipaddress
import json
import pathlib
import socketserver
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fakes import master_answers
from ganeti.base import errors
from ganeti.commands.htools import option_table, options, rest, sources, utilisation
from ganeti.decisions.htools.model import mond, query, text
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.protocols.luxi import END

DATA = pathlib.Path(__file__).parents[4] / "data" / "htools"
KITE = text.load((DATA / "kite.data").read_text(), "kite")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        built.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@contextlib.contextmanager
def web(answer, certificate=None):
    """Serve ``answer(path) -> (status, body)``; None breaks the connection.

    A function with two parameters gets the headers, too.
    """
    wants_headers = len(inspect.signature(answer).parameters) == 2

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            more = [self.headers] if wants_headers else []
            actual = answer(self.path, *more)
            if actual is None:
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"[")
                return
            status, body = actual
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def good(path):
    name = path.removeprefix("/2/").removesuffix("?bulk=1")
    return 200, json.dumps(master_answers.rest(KITE)[name]).encode()


def test_a_cluster_comes_over_https_whatever_the_certificate(certificate):
    with web(good, certificate) as address:
        answers = rest.read(address)
    assert query.read_cluster(answers, static_memory=4096) == KITE


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (lambda _path: (404, b"gone"), "HTTP status 404: b'gone'"),
        (lambda _path: (401, b""), "HTTP status 401"),
        (lambda _path: (200, b"[{"), "not valid JSON"),
        (lambda _path: (200, b"[" * 100_000), "nested too deeply"),
        (lambda _path: (200, b"\xff\xfe"), "not valid JSON"),
        (lambda _path: (200, b"{}"), "wanted a list of objects, found {}"),
        (lambda _path: None, "/2/groups?bulk=1: "),
    ],
)
def test_a_bad_answer_is_reported_with_its_address(answer, reported, certificate):
    with web(answer, certificate) as address, pytest.raises(DataError) as caught:
        rest.read(address)
    assert str(caught.value).startswith(f"{address}/2/groups?bulk=1: ")
    assert reported in str(caught.value)


def test_a_silent_server_is_given_up(certificate):
    silence = threading.Event()
    with web(lambda _path: silence.wait(120) and (200, b""), certificate) as address:
        with pytest.raises(DataError, match="timed out"):
            rest.fetch(f"{address}/2/info", answer_s=0.1)
        silence.set()


@pytest.mark.parametrize(
    ("master", "url"),
    [
        ("cluster.test", "https://cluster.test:5080"),
        ("192.0.2.1", "https://192.0.2.1:5080"),
        ("2001:db8::1", "https://[2001:db8::1]:5080"),
        ("http://x:80/", "http://x:80"),
        ("https://x:1", "https://x:1"),
    ],
)
def test_addresses(master, url):
    assert rest.base_url(master) == url


@pytest.mark.parametrize("status", [401, 404])
def test_a_password_in_an_address_is_not_shown(status, certificate):
    with (
        web(lambda _path: (status, b""), certificate) as address,
        pytest.raises(DataError) as caught,
    ):
        rest.read(address.replace("//", "//stats:hidden-4711@"))
    text = str(caught.value)
    assert text.startswith(f"{address}/2/groups?bulk=1: HTTP status {status}")
    assert text.endswith("give a user in ~/.netrc") == (status == 401)
    with pytest.raises(DataError) as caught:
        rest.read("https://stats:hidden-4711/x@127.0.0.1:1")
    assert "hidden" not in str(caught.value)


def test_a_user_in_netrc_is_given_over_tls_alone(certificate, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login stats password pw\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = []

    def answer(_path, headers):
        seen.append(headers.get("Authorization"))
        return 200, b"{}"

    for tls in (certificate, None):
        with web(answer, tls) as address:
            rest.fetch(f"{address}/2/info")
            rest.fetch(f"{address.replace('//', '//other:pw@')}/2/info")
    stats, other = (
        f"Basic {base64.b64encode(text).decode()}"
        for text in (b"stats:pw", b"other:pw")
    )
    assert seen == [stats, other, None, other]


def test_files_of_other_kinds_are_not_fetched():
    with pytest.raises(DataError, match=r"ftp://x: "):
        rest.fetch("ftp://x")


@contextlib.contextmanager
def luxi(path, answer):
    """Serve LUXI: ``answer(method, args) -> bytes`` without its end, None to vanish."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            buffer = b""
            while data := self.request.recv(65536):
                buffer += data
                if not buffer.endswith(END):
                    continue
                request, buffer = json.loads(buffer[:-1]), b""
                actual = answer(request["method"], request["args"])
                if actual is None:
                    return
                self.request.sendall(actual + END)

    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def reply(result):
    return json.dumps({"success": True, "result": result}).encode()


def of_kites(method, args):
    if method == "Query":
        return reply(master_answers.table(KITE, args[0], args[1]))
    return reply(master_answers.info(KITE))


def load(path):
    answers = sources.read_luxi(str(path))
    return query.read_cluster(answers, static_memory=4096)


def test_a_cluster_comes_over_luxi(tmp_path):
    path = str(tmp_path / "s")
    with luxi(path, of_kites):
        assert load(path) == KITE


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (lambda _method, _args: None, "connection to .* broke: closed"),
        (lambda _method, _args: b"nonsense", "Query at .*/s: the answer is not JSON"),
        (lambda _method, _args: b"[" * 100_000, "nested too deeply"),
        (lambda _method, _args: b"{}", "wanted an answer"),
        (lambda _method, _args: reply(None), "wanted a table, found None"),
        (lambda _method, _args: reply({"data": [[1]]}), "wanted a row of 5 cells"),
    ],
)
def test_a_master_that_misbehaves_is_reported(answer, reported, tmp_path):
    path = str(tmp_path / "s")
    words = options.parse([f"-L{path}"], option_table.options_of(["L"]))
    with luxi(path, answer), pytest.raises(Exception, match=reported) as caught:
        sources.read(words)
    assert "Traceback" not in sources.reason(caught.value)


def test_a_master_that_vanishes_half_way_is_reported(tmp_path):
    path = str(tmp_path / "s")
    asked = []

    def answer(method, args):
        asked.append(method)
        return of_kites(method, args) if len(asked) < 3 else None

    with luxi(path, answer), pytest.raises(Exception, match="broke"):
        load(path)
    assert len(asked) == 3


def test_no_master_at_all_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LUXI_CONNECT_S", 0)
    with pytest.raises(Exception, match="none") as caught:
        load(tmp_path / "none")
    assert sources.reason(caught.value) == (
        f"Cannot reach the master daemon at {tmp_path}/none"
    )


def test_a_user_without_access_to_the_socket_reads_why():
    err = errors.LuxiPermissionError("/run/query")
    assert sources.reason(err) == (
        "this user has no right to connect to the master daemon at /run/query"
    )


def test_monitoring_daemons_are_asked_by_name(monkeypatch, capfd):
    def answer(path):
        assert path == "/1/report/default/cpu-avg-load"
        return 200, json.dumps({"name": "x", "data": {"cpu_total": 2.5}}).encode()

    with web(answer) as address:
        monkeypatch.setattr(utilisation, "PORT", int(address.rpartition(":")[2]))
        names = ("127.0.0.1", "localhost.invalid")
        nodes = [
            master_answers.nodes(KITE)[place] | {"name": name}
            for place, name in enumerate(names)
        ]
        answers = query.from_rest(
            "s", master_answers.groups(KITE), nodes, [], info=master_answers.info(KITE)
        )
        cluster = query.read_cluster(answers, static_memory=0)
        actual = utilisation.query(cluster, mond.CPU)
    assert actual == {"127.0.0.1": {"cpu_total": 2.5}, "localhost.invalid": None}
    assert capfd.readouterr().err == (
        "Failed to contact node's localhost.invalid MonD for DC cpu-avg-load\n"
    )
