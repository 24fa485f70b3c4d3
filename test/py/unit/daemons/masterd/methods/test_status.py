"""``QueryStatus``: facts of the store, of the queue and of the nodes, with a verdict."""

import threading

import pytest

from fakes import clusters
from fakes.master import Master
from fakes.patience import PATIENCE_S, job_status, until
from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.protocols.rpc import Result

REASON = "no route to host" + "!" * 4000
SILENT = Result("node_status", "n", fail_msg=REASON, is_silent=True)
GUEST = {"memory": 512, "vcpus": 1, "state": 0, "time": 5.0}


class Site:
    """Two nodes with three instances, of which the second one does not run."""

    def __init__(self, root):
        snapshot = clusters.snapshot(nodes=2, instances=2)
        stopped = clusters.instance(3, admin_state="down")
        self.uuids = [clusters.node_uuid(1), clusters.node_uuid(2)]
        self.guests = {self.uuids[0]: {"inst1.example.com": GUEST}}
        self.release = versions.RELEASE_VERSION
        self.silent = set()
        script = {"node_status": self.status}
        self.master = Master(root, clusters.changed(snapshot, stopped), script)

    def status(self, node, _args):
        if node in self.silent:
            return SILENT
        return {
            "release": self.release,
            "guests": self.guests.get(node, {}),
            "host": {"memory_total": 8192, "memory_free": 4096, "cpu_total": 8},
            "certificates": {"client.pem": 1e9},
        }


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "node1.example.com")
    made.master.start()
    with made.master.client() as made.client:
        yield made
    made.master.stop()


def ask(site):
    """Return the state without findings about the certificates, which do not exist."""
    answer = site.client.call("QueryStatus")
    rest = [each for each in answer["findings"] if each["kind"] != "certificate"]
    return {**answer, "findings": rest}


def subjects(answer, kind):
    return [each["object"] for each in answer["findings"] if each["kind"] == kind]


def test_an_instance_that_does_not_run_is_critical(site):
    answer = ask(site)
    (finding,) = [each for each in answer["findings"] if each["kind"] == "instance"]
    assert finding["object"] == "inst2.example.com"
    assert finding["severity"] == answer["severity"] == "critical"
    assert answer["instances"] == {
        "total": 3,
        "running": 1,
        "ERROR_down": 1,
        "ADMIN_down": 1,
    }
    assert answer["nodes"]["online"] == 2
    assert answer["capacity"]["memory_total"] == 16384
    assert answer["releases"] == {versions.RELEASE_VERSION: 2}
    assert answer["master"]["name"] == "node1.example.com"
    assert answer["master"]["accepts_changes"]


def test_each_node_is_asked_once_and_for_two_seconds(site):
    ask(site)
    called = sorted(site.master.rpc.called("node_status"))
    assert called == [(uuid, (["kvm", "fake"],)) for uuid in site.uuids]
    assert site.master.rpc.limits["node_status"] == {2.0}
    assert not site.master.rpc.called("all_instances_info")


def test_a_silent_node_is_one_finding_that_names_its_instances(site):
    site.silent = {site.uuids[0]}
    answer = ask(site)
    node, *_more = [each for each in answer["findings"] if each["kind"] == "node"]
    assert node["object"] == "node1.example.com"
    assert "should run inst1.example.com, inst2.example.com" in node["text"]
    assert "no route to host" in node["text"]
    assert len(node["text"]) < 400
    assert subjects(answer, "instance") == []
    assert answer["instances"]["ERROR_nodedown"] == 3
    assert answer["nodes"]["silent"] == 1


def test_running_and_failed_jobs_are_shown(site):
    begun, go_on = threading.Event(), threading.Event()

    def start(_node, _args):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return Result("instance_info", "n", fail_msg="no memory")

    site.master.rpc.script["instance_info"] = start
    op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "inst2.example.com"}
    with site.master.client() as client:
        job = client.call("SubmitJob", [[op | {"force": True}]])
        try:
            until("the start", begun.is_set)
            answer = ask(site)
        finally:
            go_on.set()
        assert [each["id"] for each in answer["running_jobs"]] == [job]
        assert answer["jobs"]["running"] == 1
        (finding,) = [each for each in answer["findings"] if each["kind"] == "instance"]
        assert finding["severity"] == "warning"
        assert f"job {job} works on it" in finding["text"]
        assert job_status(client, job) == "error"
    answer = ask(site)
    assert answer["jobs"]["failed"] == 1
    (finding,) = [each for each in answer["findings"] if each["kind"] == "job"]
    assert finding["object"] == str(job)
    assert "INSTANCE_STARTUP(inst2.example.com) failed" in finding["text"]
    assert "no memory" in finding["text"]


def test_what_is_switched_off_is_shown(site):
    site.client.call("FreezeAutomation", ["work in rack 2"])
    site.client.call("SetDrainFlag", [True])
    answer = ask(site)
    assert answer["automation"]["freeze"]["reason"] == "work in rack 2"
    assert answer["automation"]["queue_drained"]
    texts = [each["text"] for each in answer["findings"] if each["kind"] == "cluster"]
    assert any("frozen: work in rack 2" in text for text in texts)
    assert any("queue is drained" in text for text in texts)


def test_a_deposed_master_says_so(site):
    def refuse(_node, _args):
        raise errors.TermError("term 3 is over")

    site.master.rpc.script["node_status"] = refuse
    answer = ask(site)
    assert answer["nodes"]["failing"] == 2
    assert "term 3 is over" in answer["findings"][0]["text"]


def test_no_majority_is_shown_and_does_not_keep_the_answer(site, monkeypatch):
    text = "changes are refused: 2 of 3 candidates are silent"
    monkeypatch.setattr(type(site.master.store), "stall", lambda _self: text)
    answer = ask(site)
    assert answer["findings"][0]["text"] == f"no change is accepted: {text}"
    assert not answer["master"]["accepts_changes"]
    assert answer["master"]["warning"] == text
