"""A node that lies: a node daemon with real TLS that answers what a test says."""

import dataclasses
import os
import threading
from collections.abc import Iterable

import msgspec

from ganeti.base.tls import x509
from ganeti.protocols import rpc
from ganeti.protocols.http import server, tls


@dataclasses.dataclass(frozen=True)
class Raw:
    """An answer as it goes over the network: HTTP status and body.

    A body of pieces has no stated end.
    """

    body: bytes | Iterable[bytes]
    status: str = "200 OK"


class HostileNode:
    """A liar on a loopback port, with the certificate of a file.

    ``script[procedure]`` is the payload, a `Raw`, or a function of the arguments that
    returns one of them; a procedure that is not scripted answers null. ``calls``
    records (procedure, arguments).
    """

    def __init__(self, server_pem, address="127.0.0.1", port=0):
        self.script = {}
        self.calls = []
        self._lock = threading.Lock()
        context = tls.server_context(server_pem, server_pem)
        self._server = server.Server(
            (address, port), self._answer, context=context, threads=4
        )
        self.port = self._server.start_serving()

    def _answer(self, environ, start):
        size = int(environ.get("CONTENT_LENGTH") or 0)
        args = msgspec.json.decode(environ["wsgi.input"].read(size))
        name = environ["PATH_INFO"].removeprefix("/")
        with self._lock:
            self.calls.append((name, args))
        answer = self.script.get(name)
        if callable(answer):
            answer = answer(args)
        if not isinstance(answer, Raw):
            answer = Raw(msgspec.json.encode([True, answer]))
        if not isinstance(answer.body, bytes):
            start(answer.status, [])
            return answer.body
        start(answer.status, [("Content-Length", str(len(answer.body)))])
        return [answer.body]

    def close(self):
        """End the server."""
        self._server.stop()


def certificates(paths):
    """Write the cluster's certificate and this node's; return their digests."""
    os.makedirs(paths.data_dir)
    server = x509.write_cluster_certificate(paths.server_pem)
    client = x509.write_client_certificate(
        paths.client_pem, server_pem=paths.server_pem, name="n1", serial=5
    )
    return {"server": server, "client": client}


def runner(paths, snapshot, port, term=None):
    """Return the master's real runner for nodes that all listen on one port."""
    return rpc.NetworkRunner(lambda: snapshot, paths, term, port=port)
