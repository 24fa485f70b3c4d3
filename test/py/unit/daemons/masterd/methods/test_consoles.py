"""Tickets for consoles on the master: what the node gets, what the client gets."""

import hashlib
import json

import pytest

from fakes.master import Master
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.base.filesystem import files


@pytest.fixture
def master(tmp_path):
    made = Master(tmp_path, script={"console_ticket": None})
    made.start()
    yield made
    made.stop()


@pytest.fixture
def instance(master):
    return next(iter(master.store.snapshot().instances.values()))


def asked(master):
    """Return the request that the node got."""
    ((_node, (request,)),) = master.rpc.called("console_ticket")
    return request


@pytest.mark.parametrize("session", [[], ["mine"]])
@pytest.mark.parametrize("given", ["name", "uuid"])
def test_the_node_gets_the_digest_and_the_client_the_ticket(
    master, instance, session, given
):
    with master.client() as client:
        answer = client.call("OpenConsole", [getattr(instance, given), "vnc", *session])
    request = asked(master)
    node = master.store.snapshot().nodes[instance.primary_node]
    assert len(answer["ticket"]) == 43  # 256 bits
    digest = hashlib.sha256(answer["ticket"].encode()).hexdigest()
    assert request["digest"] == digest
    assert answer["ticket"] not in json.dumps(request)
    assert (request["kind"], request["session"]) == ("vnc", "".join(session))
    assert (request["instance"], request["name"]) == (instance.uuid, instance.name)
    assert request["holder"] == "root"
    assert request["seconds"] == answer["seconds"] == 30
    assert (answer["node"], answer["node_uuid"]) == (node.name, node.uuid)
    assert (answer["address"], answer["port"]) == (node.primary_ip, 1811)
    master.service.deps.audit.stop()
    log = files.read_file(f"{master.paths.log_dir}/audit.log").decode()
    assert '"method":"OpenConsole"' in log
    assert answer["ticket"] not in log
    assert digest not in log


def test_tickets_differ(master, instance):
    with master.client() as client:
        answers = [client.call("OpenConsole", [instance.name, "vnc"]) for _ in "ab"]
    assert len({answer["ticket"] for answer in answers}) == 2


@pytest.mark.parametrize(
    "args", [["none", "vnc"], ["web1", "spice"], ["web1", "vnc", "x" * 65], ["web1"]]
)
def test_other_requests_issue_nothing(master, args):
    with master.client() as client, pytest.raises(errors.GenericError):
        client.call("OpenConsole", args)
    assert not master.rpc.called("console_ticket")


def test_the_reason_of_the_node_is_passed_on(master, instance):
    master.rpc.script["console_ticket"] = failure("instance x: not running")
    with (
        master.client() as client,
        pytest.raises(errors.OpExecError, match=r"vnc console of .*: not running"),
    ):
        client.call("OpenConsole", [instance.name, "vnc"])
