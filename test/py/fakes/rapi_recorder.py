"""An HTTPS server that records the requests of the remote API and gives fixed answers."""

import contextlib
import http.server
import json
import ssl
import threading
import time
import urllib.parse

from ganeti.base.tls import x509

FEATURES = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
)
#: Answers by path; other requests get a job id.
ANSWERS = {
    "/version": 2,
    "/2/features": list(FEATURES),
    "/2/instances": [{"id": "web1", "name": "web1", "uri": "/2/instances/web1"}],
    "/2/nodes": [{"id": "n1", "name": "n1", "uri": "/2/nodes/n1"}],
    "/2/groups": [{"name": "g1", "uri": "/2/groups/g1"}],
    "/2/networks": [{"name": "net1", "uri": "/2/networks/net1"}],
    "/2/filters": [{"uuid": "f0-0", "uri": "/2/filters/f0-0"}],
    "/2/jobs": [{"id": "17", "uri": "/2/jobs/17"}, {"id": 18, "uri": "/2/jobs/18"}],
    "/2/jobs/17": {"id": 17, "status": "success"},
    "/2/jobs/18": {"id": 18, "status": "error"},
    "/2/jobs/19": {"id": 19, "status": "running"},
    "/2/instances/web1": {"name": "web1"},
}
#: Objects other than lists answer changes with a job id.
_LISTS = ("/2/instances", "/2/groups", "/2/networks", "/2/filters")


class Recorder:
    """The requests and the answers of one server.

    ``answers`` maps a path, or a method and a path, to a value, to a tuple of status and
    body, or to a function of the request that returns one of them.
    """

    def __init__(self, pem, pair):
        self.pem, self.pair = pem, pair
        self.port = 0
        self.answers = dict(ANSWERS)
        for path in _LISTS:
            self.answers["POST", path] = 4711
        for path in ("/2/instances/web1", "/2/jobs/17"):
            self.answers["DELETE", path] = 4712
        self.requests = []
        self.connections = 0

    def answer(self, request):
        key = (request["method"], request["path"])
        value = self.answers.get(key, self.answers.get(request["path"], 4711))
        return value(request) if callable(value) else value

    def take(self):
        """Return the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without these, the parts of an answer wait for acknowledgements of each other.
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.server.recorder.connections += 1

    def handle_any(self):
        recorder = self.server.recorder
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        path, _, query = self.path.partition("?")
        request = {
            "method": self.command,
            "path": path,
            "query": urllib.parse.parse_qsl(query, keep_blank_values=True),
            "body": json.loads(content) if content else None,
            "type": self.headers.get("Content-Type"),
            "authorization": self.headers.get("Authorization"),
            "last_event": self.headers.get("Last-Event-ID"),
        }
        recorder.requests.append(request)
        answer = recorder.answer(request)
        status, body, headers = 200, answer, {}
        if isinstance(answer, tuple):
            status, body, *rest = answer
            headers = rest[0] if rest else {}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

    def log_message(self, *args):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """Ignore connections that clients end, such as for a wrong certificate."""


@contextlib.contextmanager
def serving(directory):
    """Run a server with a certificate of its own; yield its `Recorder`."""
    pair = x509.create_self_signed("localhost")
    pem = directory / "rapi.pem"
    pem.write_bytes(pair.pem)
    recorder = Recorder(str(pem), pair)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(recorder.pem)
    server = _Server(("127.0.0.1", 0), _Handler, bind_and_activate=True)
    server.recorder = recorder
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    recorder.port = server.server_address[1]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def error(status, message, explain="explanation"):
    """Return the documented answer of an error."""
    return (status, {"code": status, "message": message, "explain": explain})


def wait_until(condition, limit_s=10):
    """Wait for a condition; fail if it does not come true."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
