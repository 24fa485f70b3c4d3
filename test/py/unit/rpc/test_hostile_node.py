"""A node that lies to the master, over real TLS and through the real runner."""

import pytest

from fakes import clusters, hostile
from ganeti import pathutils, query


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
