"""A node that lies to the master, over real TLS and through the real runner."""

import pytest

from fakes import clusters, hostile
from fakes.hostile import Raw
from ganeti.base import pathutils
from ganeti.master import query
from ganeti.protocols.rpc import calls


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    made = pathutils.Paths(str(tmp_path_factory.mktemp("n") / "n1"), "n1")
    hostile.certificates(made)
    return made


@pytest.fixture
def liar(paths):
    node = hostile.HostileNode(paths.server_pem)
    yield node
    node.close()


@pytest.fixture
def snapshot():
    here = {"primary_ip": "127.0.0.1", "secondary_ip": "127.0.0.1"}
    start = clusters.snapshot(nodes=1, instances=2)
    return clusters.changed(start, clusters.node(1, **here))


@pytest.fixture
def runner(paths, snapshot, liar):
    made = hostile.runner(paths, snapshot, liar.port)
    yield made
    made.close()


NODE = clusters.node_uuid(1)
NAME = "inst1.example.com"
RUNNING = {"memory": 512, "vcpus": 1, "state": 0, "time": 1.0}


def test_no_part_of_a_console_comes_from_the_node(snapshot, runner, liar):
    evil = {
        "instance": NAME,
        "kind": "ssh",
        "host": "192.0.2.66",
        "port": 1,
        "user": "-oProxyCommand=touch /tmp/owned;",
        "command": ["evil"],
    }
    liar.script["all_instances_info"] = {NAME: RUNNING}
    liar.script["instance_console_info"] = {NAME: evil}
    sources = query.Sources(snapshot, runner)
    answer = query.query(sources, "instance", ["console"], ["==", "name", NAME])
    ((status, console),) = answer.data[0]
    assert status == 0
    assert (console["user"], console["host"]) == ("root", "127.0.0.1")
    assert console["command"][0].endswith("/ganeti-kvm-console")
    assert "evil" not in str(answer.data)
    assert "instance_console_info" not in [name for name, _ in liar.calls]


ODD = {
    "nothing": b"",
    "no JSON": b"<html>",
    "no UTF-8": b'[true, "\xff\xfe"]',
    "deep": b"[true, " + b"[" * 500_000,
    "deep objects": b"[true, " + b'{"a":' * 100_000,
    "object": b'{"a": 1}',
    "short": b"[true]",
    "long": b"[true, 1, 2]",
    "not a bool": b"[1, 2]",
    "huge number": b"[true, " + b"9" * 10_000 + b"]",
    "infinite": b"[true, 1e999]",
}


@pytest.mark.parametrize("status", ["200 OK", "409 Conflict", "500 Broken"])
@pytest.mark.parametrize("kind", ODD)
def test_an_odd_answer_is_a_failure_and_never_an_exception(runner, liar, kind, status):
    liar.script["version"] = Raw(ODD[kind], status)
    result = runner.call_node(NODE, calls.version())
    assert result.failed
    assert len(result.fail_msg) < 5000


def test_a_long_reason_is_cut(runner, liar):
    liar.script["version"] = Raw(b'[false, "' + b"x" * 500_000 + b'"]')
    assert len(runner.call_node(NODE, calls.version()).fail_msg) < 5000
    liar.script["version"] = Raw(
        b'{"message": "' + b"x" * 500_000 + b'"}', "409 Conflict"
    )
    assert len(runner.call_node(NODE, calls.version()).fail_msg) < 5000


def test_each_call_has_a_size_limit_of_its_answer(runner, liar):
    big = Raw(b'[true, {"a": "' + b"x" * (2 * 1024 * 1024) + b'"}]')
    liar.script["version"] = liar.script["node_verify_light"] = big
    result = runner.call_node(NODE, calls.version())
    assert "the answer is larger than 1048576 bytes" in result.fail_msg
    assert not runner.call_node(NODE, calls.node_verify_light({}, "c", {})).failed


def test_an_endless_answer_is_broken_off(runner, liar):
    sent = []

    def pieces():
        for _ in range(10_000):
            sent.append(1)
            yield b"x" * 65536

    liar.script["version"] = Raw(pieces())
    assert "larger than" in runner.call_node(NODE, calls.version()).fail_msg
    # One MiB, and whatever the buffers of both kernels take.
    assert len(sent) < 500
