"""The typed client, against a real HTTPS server."""

import base64
import hashlib
import pathlib
import re

import pytest
from cryptography.hazmat.primitives import serialization

from fakes import pages, rapi_recorder
from ganeti.protocols.rapi import api as client
from ganeti.protocols.rapi import modern

DOC = pathlib.Path(__file__).parents[5] / "doc/rapi-client.rst"
INSTANCE = {"name": "web1", "pnode": "n1", "disk.sizes": [512], "other": 1}


@pytest.fixture
def server(tmp_path):
    with rapi_recorder.serving(tmp_path) as recorder:
        yield recorder


@pytest.fixture(autouse=True)
def slept(monkeypatch):
    waits = []
    monkeypatch.setattr(modern.time, "sleep", waits.append)
    return waits


def made(server, **options):
    options = {"cafile": server.pem} | options
    return modern.Cluster("127.0.0.1", port=server.port, **options)


def pin(pair):
    der = pair.certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "sha256//" + base64.b64encode(hashlib.sha256(der).digest()).decode()


def test_objects_are_typed_values(server):
    server.answers["/2/instances"] = [INSTANCE]
    server.answers["/2/instances/web1"] = INSTANCE
    server.answers["/2/nodes"] = [{"name": "n1", "mfree": None, "mtotal": 64}]
    server.answers["/2/nodes/n1"] = {"name": "n1", "role": "M"}
    cluster = made(server)
    (one,) = cluster.instances()
    assert one == cluster.instance("web1")
    assert (one.primary_node, one.disk_sizes_mib, one.status) == ("n1", [512], None)
    (node,) = cluster.nodes()
    assert (node.total_memory_mib, node.free_memory_mib) == (64, None)
    assert cluster.node("n1").role == "M"
    server.answers["/2/nodes/n1"] = {"name": 5}
    with pytest.raises(client.Error, match="no Node"):
        cluster.node("n1")


def states(server, *wanted):
    """Let job 4711 have one state per question; the last one stays."""
    left = list(wanted)

    def answer(_request):
        return {"id": 4711, **(left.pop(0) if len(left) > 1 else left[0])}

    server.answers["/2/jobs/4711"] = answer


def test_a_job_is_waited_for_by_long_polls(server, slept):
    done = {"status": "success", "opresult": [["n1"]]}
    states(server, {"status": "queued"}, {"status": "running"}, done)
    server.answers["/2/jobs/4711/wait"] = {"job_info": ["running"], "log_entries": None}
    cluster = made(server)
    job = cluster.submit(cluster.api.RebootInstance, "web1")
    assert job.wait() == [["n1"]]
    polls = [r["body"] for r in server.take() if r["path"].endswith("/wait")]
    assert [each["previous_job_info"] for each in polls] == [["queued"], ["running"]]
    assert slept == []


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ({"status": "error", "opstatus": ["success", "error"], "opresult": [None, ["OpExecError", ["disk is gone"]]]}, modern.JobFailed, "job 4711: error: disk is gone"),
        ({"status": "canceled"}, modern.JobFailed, "job 4711: canceled: no reason"),
        ({"status": "running"}, modern.JobUnfinished, "not ended in time"),
        ({"status": None}, client.Error, "does not know it"),
    ],
)  # fmt: skip
def test_jobs_that_do_not_succeed_are_errors(server, state, error, text):
    states(server, state)
    with pytest.raises(error, match=re.escape(text)):
        made(server).job(4711).wait(timeout_s=0)


def test_a_job_is_canceled(server):
    server.answers["DELETE", "/2/jobs/4711"] = [True, "canceled"]
    assert made(server).job(4711).cancel() is True


def failing(server, path, count, answer):
    """Let a number of requests for a path fail with status 503."""
    left = [rapi_recorder.error(503, "busy")] * count
    server.answers[path] = lambda _request: left.pop() if left else answer


def test_reading_is_repeated_and_changes_are_not(server, slept):
    failing(server, "/2/instances/web1", 2, INSTANCE)
    cluster = made(server)
    assert cluster.instance("web1").name == "web1"
    assert slept == [0.5, 1.0]
    failing(server, "/2/instances/web1/reboot", 1, 1)
    server.take()
    with pytest.raises(client.GanetiApiError, match="503"):
        cluster.submit(cluster.api.RebootInstance, "web1")
    assert len(server.take()) == 1
    failing(server, "/2/instances/web1", 9, INSTANCE)
    with pytest.raises(client.GanetiApiError, match="503"):
        cluster.instance("web1")
    assert len(server.take()) == 4
    server.answers["/2/instances/web1"] = rapi_recorder.error(404, "Not Found")
    with pytest.raises(client.GanetiApiError, match="404"):
        cluster.instance("web1")
    assert len(server.take()) == 1


def test_tokens_and_credentials_are_sent(server):
    made(server, token="t" * 40).api.GetInfo()
    made(server, credentials=("jack", "pw")).api.GetInfo()
    sent = [each["authorization"] for each in server.take()]
    assert sent == [f"Bearer {'t' * 40}", "Basic amFjazpwdw=="]
    with pytest.raises(client.Error, match="either credentials or a token"):
        made(server, token="t", credentials=("a", "b"))


def test_certificates_are_always_verified(server):
    assert made(server, cafile=None, public_key=pin(server.pair)).api.GetVersion() == 2
    wrong = "sha256//" + base64.b64encode(b"x" * 32).decode()
    for options in ({"public_key": wrong}, {}):
        server.take()
        with pytest.raises(client.GanetiApiError):
            made(server, cafile=None, **options).api.GetVersion()
        assert server.take() == []
    with pytest.raises(client.Error, match="either cafile or public_key"):
        made(server, public_key=wrong)


def test_the_documented_example_works(server, capsys):
    code = pages.code_block(DOC.read_text(), "typed-client")
    states(server, {"status": "success", "opresult": [None]})
    server.answers["/2/instances"] = [INSTANCE]
    names = {
        "HOST": "127.0.0.1",
        "PORT": server.port,
        "CA_FILE": server.pem,
        "TOKEN": "t" * 40,
    }
    exec(compile(code, "rapi-client.rst", "exec"), names)
    assert capsys.readouterr().out == "web1 n1\n"
    assert server.take()[1]["path"] == "/2/instances/web1/migrate"


@pytest.mark.parametrize(
    ("method", "args", "path"),
    [
        ("MigrateInstance", ["web1"], "/2/instances/web1/migrate"),
        ("DeleteGroupTags", ["g1", ["a"]], "/2/groups/g1/tags"),
        ("EvacuateNode", ["n1"], "/2/nodes/n1/evacuate"),
        ("CreateInstance", ["create", "web2", "plain", [], []], "/2/instances"),
    ],
)
def test_plans_are_asked_for_and_repeated(server, slept, method, args, path):
    server.answers["/2/features"] = [*rapi_recorder.FEATURES, "plan"]
    plan = {"jobs": [{"revision": 7}]}
    left = [(503, {}), plan, 5]
    for verb in ("PUT", "POST", "DELETE"):
        server.answers[verb, path] = lambda _request: left.pop(0)
    cluster = made(server)
    call = getattr(cluster.api, method)
    assert cluster.plan(call, *args, reason="r") == plan
    sent = [row for row in server.take() if row["path"] == path]
    assert [("plan", "1") in row["query"] for row in sent] == [True, True]
    assert slept == [0.5]
    with pytest.raises(client.Error, match="wanted a plan, found 5"):
        cluster.plan(call, *args)
    # Other calls of the thread are no plans.
    server.take()
    left.append(4711)
    assert cluster.submit(call, *args).id == 4711
    assert ("plan", "1") not in server.take()[-1]["query"]


def test_a_server_without_plans_gets_no_request(server):
    cluster = made(server)
    with pytest.raises(client.Error, match="makes no plans; nothing was sent"):
        cluster.plan(cluster.api.DeleteInstance, "web1")
    assert [row["path"] for row in server.take()] == ["/2/features"]
