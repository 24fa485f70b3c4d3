"""Plans over the remote API: of each resource that changes something, or a refusal."""

import base64
import json
import logging
import pathlib
import re

import jsonschema
import pytest

from fakes import named_objects
from fakes.clocks import FakeClock
from fakes.named_objects import names_of, plain
from fakes.rapi_master import CREATE, Browser, RapiMaster
from ganeti.daemons.rapi import openapi, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.pool import Pool
from ganeti.daemons.rapi.waits import Waits
from ganeti.model import opcodes
from ganeti.operations.unit_table import UNITS
from ganeti.protocols.luxi import Client
from ganeti.protocols.rapi.model import PLAN
from ganeti.protocols.rapi.resource_table import RESOURCES

TEXT = """\
owner pw write,root
writer pw write
reader pw read
web pw write:/2/instances/web*
"""
COMPONENTS = openapi.document()["components"]
SCHEMAS = (
    {"components": COMPONENTS, "$ref": "#/components/schemas/Plan"},
    json.loads(
        (pathlib.Path(__file__).parents[5] / "doc/schema/plan.json").read_text()
    ),
)
CHANGES = sorted((r for r in RESOURCES if r.changes), key=lambda r: (r.path, r.method))
#: Bodies of requests that name no object.
BODIES = {
    "/2/modify": {"candidate_pool_size": 3},
    "/2/groups": {"name": "row"},
    "/2/networks": {"name": "wide", "network": "203.0.113.0/24"},
}


def who(user):
    text = base64.b64encode(f"{user}:pw".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {text}"}


def browser_of(master):
    authenticator = Authenticator(FakeClock(), users.parse(TEXT))
    app = Application(master, authenticator, FakeClock(), waiting=Waits(master))
    return Browser(app)


class Recording(Pool):
    """Calls of a real master daemon; keeps them."""

    def __init__(self, connect, clock):
        super().__init__(connect, clock)
        self.calls = []

    def call(self, method, args=(), *, timeout_s=None):
        self.calls.append((method, args))
        return super().call(method, args, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = named_objects.open_master(tmp_path_factory.mktemp("plans"))
    yield made
    made.stop()


@pytest.fixture
def pool(daemon):
    path = daemon.paths.query_socket
    made = Recording(lambda: Client(path, retries=0, timeout_s=60), FakeClock())
    yield made
    made.close()


def request_of(resource):
    named = named_objects.request_of(resource)
    uri, body = named or (resource.path, BODIES.get(resource.path))
    uri = re.sub(r"\[\w+\]", "1", uri)  # of something without a name
    return f"{uri}{'&' if '?' in uri else '?'}plan=1", body


@pytest.mark.parametrize("resource", CHANGES, ids=openapi.operation_id)
def test_each_change_is_planned_as_its_job_or_refused(daemon, pool, resource):
    before = daemon.store.snapshot().revision
    uri, body = request_of(resource)
    status, _headers, value = browser_of(pool).send(
        resource.method, uri, body, **who("owner")
    )
    assert [row for row in pool.calls if row[0] == "SubmitJob"] == []
    assert daemon.store.snapshot().revision == before
    assert daemon.service.deps.queue.jobs() == []
    if resource.job is None:
        assert status == 400
        assert "cannot be planned, because it changes something" in value["message"]
        assert pool.calls == []
        return
    assert status == 200, value
    for schema in SCHEMAS:
        jsonschema.Draft202012Validator(schema).validate(value)
    [planned] = [args for method, args in pool.calls if method == "PlanJob"]
    [job] = value["jobs"]
    ids = [op["op_id"] for op in job["opcodes"]]
    assert set(ids) <= set(resource.op_ids)
    # An error ends a plan; without one it has all opcodes of the job.
    assert job["opcodes"][-1]["error"] or len(ids) == len(planned[0])
    with daemon.client() as client:
        again = client.call("PlanJob", planned)
    names = names_of(daemon.store.snapshot())
    assert plain(job, names) == plain(again, names)


@pytest.mark.parametrize("op_id", sorted({i for r in CHANGES for i in r.op_ids}))
def test_an_opcode_of_a_change_can_be_planned(op_id):
    """Give its row no argument ``plan``, and a test of the refusal, if it cannot."""
    assert UNITS[op_id].can_plan(opcodes.OPCODES[op_id])


def test_every_change_by_a_job_has_the_argument_and_nothing_else():
    for resource in RESOURCES:
        is_planned = resource.changes and resource.job is not None
        assert (PLAN in resource.arguments) is is_planned, resource


# Against a fake master daemon

TAGS = "/2/tags?tag=a"


@pytest.fixture
def master():
    return RapiMaster()


@pytest.fixture
def browser(master):
    return browser_of(master)


def methods(master):
    return [method for method, _args in master.calls]


@pytest.mark.parametrize("text", ["", "=", "=x", "=1.5", "=true"])
def test_a_plan_that_is_not_understood_changes_nothing(browser, master, text):
    for method, uri in (("PUT", TAGS), ("DELETE", "/2/jobs/1?kill=1")):
        status, _headers, value = browser.send(
            method, f"{uri}&plan{text}", **who("owner")
        )
        assert status == 400
        assert "'plan' parameter: wanted a number, such as 0 or 1" in value["message"]
    assert master.calls == []


def test_contradictory_plans_change_nothing(browser, master):
    status, _headers, value = browser.send(
        "PUT", f"{TAGS}&plan=0&plan=1", **who("owner")
    )
    assert (status, "plan: given more than once" in value["message"]) == (400, True)
    assert master.calls == []


def test_no_plan_is_a_job(browser, master):
    assert browser.send("PUT", f"{TAGS}&plan=0&reason=", **who("owner"))[2] == 1
    assert methods(master) == ["SubmitJob"]
    assert master.jobs[1][0].reason[0][0] == "gnt:daemon:rapi"


def test_reading_ignores_the_argument(browser, master):
    uri = "/2/query/node?fields=name&plan"
    assert browser.send("PUT", uri, {}, **who("reader"))[0] == 200
    uri = "/2/instances/web1/info?plan=1"
    assert browser.send("GET", uri, **who("reader"))[2] == 1
    assert methods(master) == ["Query", "SubmitJob"]


def test_a_plan_needs_the_rights_of_its_job(browser, master):
    uri = "/2/instances?plan=1"
    web, other = CREATE | {"name": "web9"}, CREATE | {"name": "db9"}
    wanted = {
        ("reader", "web9"): 403,
        ("writer", "db9"): 200,
        ("web", "web9"): 200,
        ("web", "db9"): 403,
    }
    bodies = {"web9": web, "db9": other}
    actual = {
        (user, name): browser.send("POST", uri, bodies[name], **who(user))[0]
        for user, name in wanted
    }
    assert actual == wanted
    assert browser.send("POST", uri, web)[0] == 401
    body = web | {"hvparams": {"kvm_path": "/bin/sh"}}
    status, _headers, value = browser.send("POST", uri, body, **who("writer"))
    assert (status, "kvm_path" in value["message"]) == (403, True)
    assert browser.send("POST", uri, body, **who("owner"))[0] == 200
    assert set(methods(master)) == {"PlanJob"}


def test_plans_leave_threads_to_others(browser, master, monkeypatch):
    limit, call, seen = 4, master.call, []

    def nested(method, *args, **options):
        if method == "PlanJob":
            seen.append(browser.send("PUT", f"{TAGS}&plan=1", **who("writer")))
        return call(method, *args, **options)

    monkeypatch.setattr(master, "call", nested)
    assert browser.send("PUT", f"{TAGS}&plan=1", **who("writer"))[0] == 200
    assert [status for status, *_ in seen] == [503, *[200] * (limit - 1)]
    assert seen[0][2]["message"] == f"{limit} requests wait for plans already"
    assert seen[0][1]["Retry-After"] == "10"


def test_plans_have_the_limit_of_jobs_that_read(browser, master):
    statuses = [
        browser.send("PUT", f"{TAGS}&plan=1", **who("writer"))[0] for _ in range(201)
    ]
    assert statuses == [200] * 200 + [429]
    # Changes have another one.
    assert browser.send("PUT", TAGS, **who("writer"))[0] == 200


def test_the_log_distinguishes_a_plan(browser, caplog):
    caplog.set_level(logging.INFO)
    browser.send("PUT", f"{TAGS}&plan=1", **who("writer"))
    browser.send("PUT", TAGS, **who("writer"))
    lines = [message.partition(": ")[2] for message in caplog.messages]
    assert [line.rpartition(": ")[0] for line in lines] == [
        "plan of PUT /2/tags",
        "PUT /2/tags",
    ]
