"""Reservations on real daemons: over the remote API, by commands, across a kill."""

import contextlib
import http.client
import json
import pathlib
import ssl

import pytest

from fakes.patience import until

pytestmark = pytest.mark.daemon

USERS = "jack {HA1}ce9ed419740789a9a91375eda3722642 write\n"
JACK = {"Authorization": "Basic amFjazpleGFtcGxl"}
NAME = "web1.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(2)
    path = pathlib.Path(made.paths().data("rapi/users"))
    path.write_text(USERS)
    path.chmod(0o640)
    made.check("gnt-cluster", "redist-conf")
    until("users are read", lambda: ask(made, "GET", "/2/info")[0] == 200)
    return made


def ask(cluster, method, path, body=None):
    """Return status and decoded body of one request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    conn = http.client.HTTPSConnection(
        cluster.node("node1").address, 5080, context=context, timeout=60
    )
    with contextlib.closing(conn):
        headers = {"Content-Type": "application/json", **JACK}
        data = None if body is None else json.dumps(body)
        conn.request(method, path, body=data, headers=headers)
        answer = conn.getresponse()
        return answer.status, json.loads(answer.read())


def done(cluster, method, path, body=None):
    """Return the result of the job of a request."""
    status, job = ask(cluster, method, path, body)
    assert status == 200, job

    def ended():
        state = ask(cluster, "GET", f"/2/jobs/{job}")[1]
        return state if state["status"] in ("success", "error") else None

    state = until("the job has ended", ended)
    assert state["status"] == "success", state["opresult"]
    return state["opresult"][0]


def disks(cluster):
    return list(cluster.file("/srv/ganeti/file-storage", "node2").glob("*/*"))


@pytest.mark.sampled
def test_a_nameless_reservation_becomes_an_instance_that_runs(cluster):
    reserve = {
        "__version__": 1,
        "forthcoming": True,
        "pnode": cluster.node("node2").name,
        "hypervisor": "fake",
        "disk_template": "file",
        "disks": [{"size": 16}],
        "owner": "web-team",
        "expires": 3600,
        "request_key": "order-1",
        "ignore_ipolicy": True,
    }
    uuid = done(cluster, "POST", "/2/instances", reserve)
    assert disks(cluster) == []
    cluster.command("kill", "node1", "ganeti-masterd")
    cluster.command("start", "node1", "ganeti-masterd")
    until("the master is back", lambda: ask(cluster, "GET", "/2/info")[0] == 200)
    # The client did not see the answer, and repeats the request.
    assert done(cluster, "POST", "/2/instances", reserve) == uuid
    path = f"/2/instances/{uuid}"
    changes = {"os_name": "tiny+default", "beparams": {"maxmem": 192, "minmem": 128}}
    done(cluster, "PUT", f"{path}/modify", changes | {"force": True})
    assert done(cluster, "PUT", f"{path}/rename", {"new_name": NAME}) == NAME
    table = cluster.check(
        *("gnt-instance", "list", "--no-headers", "--separator=:"),
        *("-o", "name,uuid,forthcoming,owner,status,be/maxmem", "--units=m"),
    )
    assert table.split() == [f"{NAME}:{uuid}:Y:web-team:ADMIN_down:192"]
    shown = cluster.check("gnt-instance", "info", uuid)
    assert "resources are reserved, nothing is created yet" in shown
    refused = cluster.run("gnt-instance", "startup", NAME)
    assert "is forthcoming, so it cannot be started" in refused.stderr
    cluster.check("gnt-cluster", "verify")
    body = {"no_install": False, "ignore_ipolicy": True}
    nodes = done(cluster, "POST", f"/2/instances/{NAME}/create", body)
    assert nodes == [cluster.node("node2").name]
    made = ask(cluster, "GET", f"/2/instances/{NAME}")[1]
    assert (made["status"], made["uuid"]) == ("running", uuid)
    assert len(disks(cluster)) == 1
    cluster.check("gnt-instance", "remove", "-f", NAME)


def test_an_expired_reservation_is_released_by_the_watcher(cluster):
    uuid = cluster.check(
        *("gnt-instance", "add", "--forthcoming", "-n", "node2", "-H", "fake"),
        *("-t", "diskless", "--no-nics", "--ignore-ipolicy", "--expires", "1s"),
    ).split()[-1]
    again = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,expires")
    assert again.split()[0] == uuid

    def released():
        cluster.check("ganeti-watcher", "--no-wait-children", "--no-verify-disks")
        return uuid not in cluster.check("gnt-instance", "list", "-o", "uuid")

    until("the watcher has released it", released)
    shown = cluster.check("gnt-job", "list", "--no-headers", "-o", "summary")
    assert f"INSTANCE_REMOVE({uuid})" in shown
