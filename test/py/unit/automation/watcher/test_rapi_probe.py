"""The version request to RAPI, against real TLS servers on loopback."""

import socket

import pytest

from ganeti.automation.watcher import rapi_probe
from ganeti.base.tls import x509
from ganeti.protocols.http import server


@pytest.fixture
def serve(tmp_path):
    pem = str(tmp_path / "server.pem")
    x509.write_cluster_certificate(pem)
    made = []

    def start(status, *, tls=True):
        def app(environ, answer):
            assert environ["PATH_INFO"] == "/version"
            answer(status, [("Content-Length", "1")])
            return [b"2"]

        context = tls_context(pem) if tls else None
        http = server.Server(("127.0.0.1", 0), app, context=context, threads=2)
        made.append(http)
        return http.start_serving()

    yield start
    for http in made:
        server.wait_until_stopped(http, 10.0)


def tls_context(pem):
    from OpenSSL import SSL

    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.use_certificate_file(pem)
    context.use_privatekey_file(pem)
    return context


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
def test_an_answer_and_the_demand_for_a_password_are_signs_of_life(serve, status):
    assert rapi_probe.problem("127.0.0.1", serve(status)) is None


def test_a_daemon_without_tls_is_alive(serve):
    assert rapi_probe.problem("127.0.0.1", serve("200 OK", tls=False)) is None


def test_an_error_is_a_problem(serve):
    assert "status 500" in rapi_probe.problem("127.0.0.1", serve("500 Oops"))


def test_silence_is_a_problem():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        assert "no answer at 127.0.0.1" in rapi_probe.problem("127.0.0.1", port)
