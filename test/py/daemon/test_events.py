"""Events of a real cluster: the command and the client that follow it, and restarts."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import jsonschema
import pytest

from ganeti.daemons.rapi import users
from ganeti.protocols.rapi import modern

TOP = pathlib.Path(__file__).resolve().parents[3]
SCHEMA = json.loads((TOP / "doc" / "schema" / "gnt-cluster-monitor.json").read_text())
TOKEN = "0123456789abcdef" * 4
#: Whoever runs the tests may ignore interrupts, which programs leave so.
_MINDING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)"
    "; os.execvp(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(1)


def checked(line):
    """Return an object that was printed, if it is as its schema promises."""
    event = json.loads(line)
    jsonschema.Draft202012Validator(SCHEMA).validate(event)
    return event


@contextlib.contextmanager
def monitor(cluster, *words):
    """Run the command until the end of the block; yields its objects, and the process."""
    node = cluster.node("node1")
    argv = cluster.control.argv(node, ["gnt-cluster", "monitor", "--json", *words])
    with subprocess.Popen(
        [sys.executable, "-c", _MINDING, *argv],
        env=cluster.control.environment(node),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            yield map(checked, child.stdout), child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def tag(cluster, name):
    """Change the cluster by a job; return its id."""
    done = cluster.check("gnt-cluster", "add-tags", "--print-jobid", name)
    return done.split()[0]


@pytest.mark.timeout(600)
def test_the_monitor_follows_a_cluster_through_a_restart_of_the_master(cluster):
    with monitor(cluster) as (events, child):
        begin = next(events)
        assert (begin["kind"], begin["lost"]) == ("position", False)
        job = tag(cluster, "first")
        seen = []
        for event in events:
            seen.append((event["kind"], event["object"], event["change"]))
            if event["kind"] == "job" and event["change"] == "success":
                assert event["name"] == job
                break
        assert seen.index(("job", "job", "queued")) < len(seen)
        assert ("object", "cluster", "changed") in seen
        cluster.check("daemon-util", "stop", "ganeti-masterd")
        cluster.check("daemon-util", "start", "ganeti-masterd")
        again = next(events)
        assert (again["kind"], again["lost"]) == ("position", True)
        job = tag(cluster, "second")
        assert any(e["name"] == job and e["change"] == "success" for e in events)
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(60) == 0


@pytest.mark.timeout(600)
def test_only_the_wanted_kinds_are_printed(cluster):
    with monitor(cluster, "--type", "freeze") as (events, child):
        next(events)
        tag(cluster, "third")
        cluster.check("gnt-cluster", "freeze", "rack", "2")
        cluster.check("gnt-cluster", "thaw")
        both = [next(events), next(events)]
        assert [each["change"] for each in both] == ["frozen", "thawed"]
        assert both[0]["details"] == {"reason": "rack 2"}
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(60) == 0


@pytest.fixture
def remote(cluster):
    """Sign in to the remote API with a token; return the client and the users file."""
    path = pathlib.Path(cluster.paths().data("rapi/users"))
    path.write_text(f"ci {users.format_token(TOKEN)} read\n")
    path.chmod(0o640)
    cluster.check("daemon-util", "stop", "ganeti-rapi")
    cluster.check("daemon-util", "start", "ganeti-rapi")
    pem = cluster.paths().data("rapi.pem")
    address = cluster.node("node1").address
    return modern.Cluster(address, token=TOKEN, cafile=pem), path


def until_success(stream, job):
    """Return the values of a stream until a job has succeeded."""
    seen = []
    for value in stream:
        seen.append(value)
        is_event = isinstance(value, modern.Event)
        if is_event and (value.name, value.change) == (job, "success"):
            return seen
    raise AssertionError("the stream has ended")


@pytest.mark.timeout(600)
def test_a_client_of_the_remote_api_follows_through_restarts(cluster, remote):
    client, _path = remote
    stream = client.events()
    assert isinstance(next(stream), modern.Position)
    job = tag(cluster, "remote")
    seen = until_success(stream, job)
    kinds = {value.kind for value in seen}
    assert {"object", "job"} <= kinds
    revisions = [value.revision for value in seen]
    assert revisions == sorted(revisions)
    # The remote API begins again: the client misses nothing.
    cluster.check("daemon-util", "stop", "ganeti-rapi")
    job = tag(cluster, "meanwhile")
    cluster.check("daemon-util", "start", "ganeti-rapi")
    seen = until_success(stream, job)
    assert not any(value.lost for value in seen if isinstance(value, modern.Position))
    # The master daemon begins again: the client learns it on the same connection.
    cluster.check("daemon-util", "stop", "ganeti-masterd")
    cluster.check("daemon-util", "start", "ganeti-masterd")
    places = (value for value in stream if isinstance(value, modern.Position))
    assert any(value.lost for value in places)
    until_success(stream, tag(cluster, "later"))
    stream.close()


@pytest.mark.timeout(600)
def test_a_user_who_is_removed_gets_no_more_events(cluster, remote):
    client, path = remote
    stream = client.events(kinds=["freeze"])
    next(stream)
    path.write_text("")
    with pytest.raises(modern.client.GanetiApiError) as caught:
        next(stream)
    assert caught.value.code == 401
