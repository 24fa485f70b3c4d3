"""Drives a cluster with the remote API client of Debian's package, unmodified.

``python debian_rapi_client.py PEERS ADDRESS NODE SECOND`` runs with nothing of this project
on its path and prints one line per step.
"""

import sys
import time


def wait(client, job_id):
    for _ in range(600):
        job = client.GetJobStatus(job_id)
        if job["status"] in {"success", "error", "canceled"}:
            assert job["status"] == "success", (job["summary"], job["opresult"])
            return job["opresult"]
        time.sleep(0.1)
    raise TimeoutError(job_id)


def read(client, node, second):
    assert client.GetVersion() == 2
    assert "instance-create-reqv1" in client.GetFeatures()
    assert "vg_name" in client.GetInfo()
    assert set(client.GetNodes()) >= {node, second}
    assert {each["name"] for each in client.GetNodes(bulk=True)} >= {node, second}
    assert client.GetNodeRole(node) == "master"
    assert client.GetNode(node)["secondary_ip"]
    assert "tiny+default" in client.GetOperatingSystems()
    assert client.GetGroups() == ["default"]
    assert client.GetNetworks() == []
    assert client.QueryFields("node", fields=["name"])["fields"][0]["name"] == "name"


def create(client, node):
    job = client.CreateInstance(
        "create",
        "web1",
        "diskless",
        [],
        [],
        os="tiny+default",
        pnode=node,
        hypervisor="fake",
        name_check=False,
        ip_check=False,
        no_install=True,
        beparams={"maxmem": 128, "minmem": 128},
    )
    wait(client, job)
    [web1] = client.GetInstances(bulk=True)
    assert (web1["name"], web1["pnode"]) == ("web1", node)
    assert (web1["status"], web1["beparams"]["memory"]) == ("ADMIN_down", 128)
    assert client.GetInstance("web1")["uuid"] == web1["uuid"]


def modify(client):
    wait(client, client.ModifyInstance("web1", beparams={"maxmem": 256}))
    assert client.GetInstance("web1")["beparams"]["maxmem"] == 256
    wait(client, client.AddInstanceTags("web1", ["a", "b"]))
    wait(client, client.DeleteInstanceTags("web1", ["a"]))
    assert client.GetInstanceTags("web1") == ["b"]


def power(client):
    wait(client, client.StartupInstance("web1"))
    assert client.GetInstance("web1")["status"] == "running"
    wait(client, client.RebootInstance("web1", reboot_type="hard"))
    [[info]] = [each.values() for each in wait(client, client.GetInstanceInfo("web1"))]
    assert info["name"] == "web1"
    job = client.ShutdownInstance("web1")
    while True:
        changed = client.WaitForJobChange(job, ["status"], None, None)
        if changed["job_info"] == ["success"]:
            break
    assert client.Query("instance", ["name", "status"])["data"] == [
        [[0, "web1"], [0, "ADMIN_down"]]
    ]


def move(client, second):
    """Migrate: a diskless instance has nowhere to go, and the job says so."""
    wait(client, client.StartupInstance("web1"))
    job = client.MigrateInstance("web1", target_node=second)
    while client.GetJobStatus(job)["status"] not in {"success", "error"}:
        time.sleep(0.1)
    assert client.GetJobStatus(job)["summary"] == ["INSTANCE_MIGRATE(web1)"]
    ok, _text = client.CancelJob(job)
    assert ok is False


def nodes(client, second):
    wait(client, client.RedistributeConfig())
    wait(client, client.ModifyGroup("default", alloc_policy="last_resort"))
    assert client.GetGroup("default")["alloc_policy"] == "last_resort"
    wait(client, client.ModifyGroup("default", alloc_policy="preferred"))
    wait(client, client.SetNodeRole(second, "drained"))
    assert client.GetNodeRole(second) == "drained"
    wait(client, client.SetNodeRole(second, "regular", auto_promote=True))


def remove(client, api):
    job = client.DeleteInstance("web1")
    wait(client, job)
    assert client.GetInstances() == []
    assert int(job) in [int(each) for each in client.GetJobs()]
    for call in (client.GetInstance, client.GetNode):
        code = None
        try:
            call("none")
        except api.GanetiApiError as err:
            code = err.code
        assert code == 404, call


def main(peers, address, node, second):
    sys.path.insert(0, f"{peers}/usr/share/ganeti/3.0")
    from ganeti.rapi import client as api

    assert api.__file__.startswith(peers), api.__file__

    @api.UsesRapiClient
    def run():
        client = api.GanetiRapiClient(address, username="jack", password="example")
        for step, args in (
            (read, (client, node, second)),
            (create, (client, node)),
            (modify, (client,)),
            (power, (client,)),
            (move, (client, second)),
            (nodes, (client, second)),
            (remove, (client, api)),
        ):
            step(*args)
            print(step.__name__)

    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
