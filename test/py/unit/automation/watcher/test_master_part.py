"""The part on the master: expired reservations are released, RAPI is asked."""

import socket

import pytest

from ganeti.automation.watcher import master_part
from ganeti.base import errors
from ganeti.base.tls import x509
from ganeti.protocols.http import server

UUID = "3f1d0b9a-2c8e-4b43-9d4e-0f5b6f3c8a11"


@pytest.fixture
def reserved(node):
    """A node whose master has one reservation that expires in a minute."""
    node.master.objects["instance"] = [
        {
            "name": UUID,
            "uuid": UUID,
            "forthcoming": True,
            "expires": node.clock.now + 60,
            "owner": "web",
        }
    ]
    node.master.results["OP_INSTANCE_REMOVE"] = None
    return node


def run(node):
    watch = node.watch()
    with watch.connect() as client:
        return master_part.release_expired(watch, client)


def ops(node):
    return [op for ops in node.master.jobs.values() for op in ops]


def test_nothing_is_released_before_its_time(reserved):
    reserved.clock.now += 59
    assert run(reserved)
    assert ops(reserved) == []


def test_an_expired_reservation_is_released_by_a_job_with_a_reason(reserved):
    reserved.clock.now += 60
    assert run(reserved)
    (op,) = ops(reserved)
    assert (op.op_id(), op.instance_name, op.if_expired) == (
        "OP_INSTANCE_REMOVE",
        UUID,
        True,
    )
    ((source, text, _when),) = op.reason
    assert source == "gnt:watcher"
    assert text == "reservation of web expired at 2023-11-14 22:14:20 UTC"


@pytest.mark.parametrize("changes", [{"expires": None}, {"forthcoming": False}])
def test_what_does_not_expire_stays(reserved, changes):
    reserved.clock.now += 1000
    reserved.master.objects["instance"][0] |= changes
    assert run(reserved)
    assert ops(reserved) == []


def test_a_job_that_waits_is_not_repeated(reserved):
    reserved.clock.now += 60
    reserved.master.objects["job"] = [
        {"id": 7, "summary": [f"INSTANCE_REMOVE({UUID})"], "status": "waiting"}
    ]
    assert run(reserved)
    assert ops(reserved) == []


def test_a_full_queue_is_no_failure_of_the_watcher(reserved, monkeypatch):
    reserved.clock.now += 60

    def refuse(*_args):
        raise errors.JobQueueFull("full")

    monkeypatch.setattr(reserved.master, "_SubmitManyJobs", refuse, raising=False)
    assert run(reserved)


# The version request to RAPI, against real TLS servers on loopback.


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
    assert master_part.rapi_problem("127.0.0.1", serve(status)) is None


def test_a_daemon_without_tls_is_alive(serve):
    assert master_part.rapi_problem("127.0.0.1", serve("200 OK", tls=False)) is None


def test_an_error_is_a_problem(serve):
    assert "status 500" in master_part.rapi_problem("127.0.0.1", serve("500 Oops"))


def test_silence_is_a_problem():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        assert "no answer at 127.0.0.1" in master_part.rapi_problem("127.0.0.1", port)
