"""Sessions of the remote API on real daemons: restarts, a failover, revocations."""

import base64
import json
import pathlib
import threading

import pytest

from fakes.patience import until
from fakes.rapi_requests import ask

pytestmark = pytest.mark.daemon
USERS = "jack {HA1}ce9ed419740789a9a91375eda3722642 write\nann secret read\n"
JACK = {"Authorization": "Basic amFjazpleGFtcGxl"}
ANN = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}


@pytest.fixture(scope="module")
def cluster(cluster_of):
    cluster = cluster_of(3)
    path = pathlib.Path(cluster.paths().data("rapi/users"))
    path.write_text(USERS)
    path.chmod(0o640)
    cluster.check("gnt-cluster", "redist-conf")
    until("users are read", lambda: ask(cluster, "GET", "/2/info", ANN)[0] == 200)
    return cluster


def sign_in(cluster, who=JACK):
    status, value = ask(cluster, "POST", "/2/session", who)
    assert status == 200, value
    return value["id"], {"Authorization": f"Bearer {value['token']}"}


def status(cluster, who, path="/2/info", node="node1"):
    return ask(cluster, "GET", path, who, node=node)[0]


def restart(cluster, daemon):
    cluster.check("daemon-util", "stop", daemon)
    cluster.check("daemon-util", "start", daemon)


def audited(cluster):
    lines = json.loads(cluster.check("gnt-cluster", "audit", "--json"))
    return [line for line in lines if line.get("method", "").endswith("Session")]


def test_a_session_outlives_restarts_and_a_failover_until_it_is_revoked(cluster):
    session, bearer = sign_in(cluster)
    assert status(cluster, bearer) == 200
    # Its user is that of every line; the token is in none.
    (line,) = audited(cluster)
    assert line["args"][0]["user"] == line["who"]["user"] == "jack"
    assert bearer["Authorization"][9:] not in json.dumps(line)
    for daemon in ("ganeti-rapi", "ganeti-masterd"):
        restart(cluster, daemon)
        until("both answer", lambda: status(cluster, bearer) == 200)
    cluster.wait_until_clean()
    cluster.check("gnt-cluster", "master-failover", node="node2")
    until("node2 serves", lambda: status(cluster, bearer, node="node2") == 200)
    words = ("gnt-cluster", "sessions")
    (shown,) = json.loads(cluster.check(*words, "--json", "list", node="node2"))
    assert (shown["id"], shown["user"]) == (session, "jack")
    done = cluster.check(*words, "revoke", session, node="node2")
    assert done == f"Revoked: {session} of jack.\n"
    assert status(cluster, bearer, node="node2") == 401
    # Nor does the next master know it.
    cluster.check("gnt-cluster", "master-failover", node="node1")
    until("node1 serves", lambda: status(cluster, JACK) == 200)
    assert status(cluster, bearer) == 401


def test_a_wait_ends_with_its_session(cluster):
    words = ("gnt-filter", "add", "--priority", "5", "--action", "PAUSE")
    rule = cluster.check(*words).split()[-1]
    job = cluster.run("gnt-cluster", "add-tags", "--submit", "x").output.split()[-1]
    session, bearer = sign_in(cluster)
    answers = []

    def wait():
        body = {"fields": ["status"], "previous_job_info": ["queued"]}
        path = f"/2/jobs/{job}/wait"
        answers.append(ask(cluster, "GET", path, bearer, body)[0])

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        # Without its end the session would see the job as it is, after ten seconds.
        assert ask(cluster, "DELETE", f"/2/session/{session}", bearer)[0] == 200
        thread.join()
        assert answers == [401]
    finally:
        thread.join()
        cluster.check("gnt-filter", "delete", rule)
        cluster.check("gnt-job", "wait", job)


def test_a_change_of_its_user_ends_it(cluster):
    (_, jack), (_, ann) = sign_in(cluster), sign_in(cluster, ANN)
    cluster.check("gnt-rapi-token", "remove", "ann")
    # The master daemon ends it, even before the remote API has read the file.
    assert status(cluster, ann) == 401
    assert status(cluster, jack) == 200
    # People edit the file, too.
    path = pathlib.Path(cluster.paths().data("rapi/users"))
    path.write_text(USERS.replace("write", "read"))
    until("the change is read", lambda: status(cluster, jack) == 401)
    path.write_text(USERS)
    until("it is read again", lambda: status(cluster, ANN) == 200)
    assert status(cluster, jack) == 401
