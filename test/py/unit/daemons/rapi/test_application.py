"""The application: every resource, the order of checks, bad input, rights."""

import base64
import itertools
import logging
import urllib.parse

import pytest

from fakes.clocks import FakeClock
from fakes.fuzz_inputs import NAMES
from fakes.rapi_master import BODIES, CREATE, Browser, RapiMaster, Streams
from ganeti.base import errors
from ganeti.daemons.rapi import handlers, openapi, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.pool import Stream
from ganeti.daemons.rapi.waits import Waits
from ganeti.protocols.rapi import resource_table as resources
from ganeti.protocols.rapi import row_parts
from ganeti.protocols.rapi.model import Body

TEXT = """\
reader pw read
writer pw write
plain pw
owner pw write,root
web pw write:/2/instances/web*
poster pw post:*
"""
#: Query arguments and bodies without which a resource answers 400.
ARGUMENTS = {
    "/2/query/[resource]": "fields=name",
    "/2/search": "q=web",
    "/2/nodes/[node_name]/storage": "output_fields=name&storage_type=lvm-vg",
    "/2/nodes/[node_name]/storage/modify": "name=x&storage_type=lvm-vg",
    "/2/nodes/[node_name]/storage/repair": "name=x&storage_type=lvm-vg",
    "/2/instances/[instance_name]/prepare-export": "mode=local",
}
ALL = sorted(resources.RESOURCES, key=lambda each: (each.path, each.method))


def name_of(resource):
    return f"{resource.path} {resource.method}"


def uri_of(resource):
    uri = resource.path
    for variable, value in NAMES.items():
        uri = uri.replace(variable, value)
    argument = ARGUMENTS.get(resource.path)
    return f"{uri}?{argument}" if argument else uri


def body_of(resource):
    is_empty = resource.method in {"GET", "DELETE"} and "wait" not in resource.path
    return None if is_empty else BODIES.get(resource.path)


def basic(name, password="pw"):
    text = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {text}"}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def master():
    master = RapiMaster()
    master.call("SubmitJob", [[{"OP_ID": "OP_CLUSTER_REDIST_CONF"}]])
    master.calls.clear()
    return master


@pytest.fixture
def authenticator(clock):
    return Authenticator(clock, users.parse(TEXT))


@pytest.fixture
def browser(master, authenticator, clock):
    waits, streams = Waits(master), Streams()
    return Browser(
        Application(master, authenticator, clock, waiting=waits, streams=streams)
    )


def test_the_openapi_document_is_served_to_anybody_who_may_connect(
    browser, master, authenticator, clock
):
    for more in ({}, basic("plain")):
        status, headers, value = browser.send("GET", "/openapi.json", **more)
        assert (status, value) == (200, openapi.document())
        assert headers["Content-Type"] == "application/json"
    assert browser.send("GET", "/openapi.json", **basic("plain", "wrong"))[0] == 401
    assert browser.send("PUT", "/openapi.json")[0] == 501
    app = Application(
        master,
        authenticator,
        clock,
        waiting=Waits(master),
        requires_authentication=lambda: True,
    )
    strict = Browser(app)
    assert strict.send("GET", "/openapi.json")[0] == 401
    assert strict.send("GET", "/openapi.json", **basic("plain"))[0] == 200
    assert master.calls == []


@pytest.mark.parametrize("resource", ALL, ids=name_of)
def test_every_resource_answers(browser, master, resource):
    status, headers, value = browser.send(
        resource.method, uri_of(resource), body_of(resource), **basic("owner")
    )
    assert status == 200, value
    kind = resource.options.get("media", "application/json")
    assert headers["Content-Type"] == kind
    if resource.job is not None:
        assert value == 2
        assert {op.op_id() for op in master.jobs[2]} >= {resource.job.op_id}
        for op in master.jobs[2]:
            entries = [entry[:2] for entry in op.reason]
            request = headers["X-Request-Id"]
            text = f"user owner, address 192.0.2.9, request {request}"
            assert ("gnt:daemon:rapi", text) in entries
            library = (f"gnt:library:rlib2:{resource.name}", "")
            assert (library in entries) is resource.job.traced


def outcome(browser, resource, user):
    who = basic(user) if user else {}
    return browser.send(resource.method, uri_of(resource), body_of(resource), **who)[0]


@pytest.mark.parametrize("resource", ALL, ids=name_of)
def test_the_matrix_of_roles_and_resources(browser, master, resource):
    path = uri_of(resource).partition("?")[0]
    is_write = resource.access == ("write",)
    is_web = path.startswith("/2/instances/web") or path == "/2/instances"
    # A role for new names permits the creation of no instances at all, too.
    nothing_new = path == "/2/instances-multi-alloc"
    wanted = {
        "": 401 if resource.access or resource.signed_in else 200,
        "nobody": 401,
        "plain": 403 if resource.access else 200,
        "reader": 403 if is_write else 200,
        "writer": 200,
        "owner": 200,
        "web": 200 if not resource.access or (is_web and not nothing_new) else 403,
        "poster": 200 if not resource.access or resource.method == "POST" else 403,
    }
    actual = {user: outcome(browser, resource, user) for user in wanted}
    assert actual == wanted
    if resource.job is not None:
        permitted = sum(status == 200 for status in wanted.values())
        assert len(master.jobs) - 1 == permitted


@pytest.mark.parametrize("resource", ALL, ids=name_of)
def test_with_required_authentication_nothing_is_open(
    master, authenticator, clock, resource
):
    browser = Browser(
        Application(
            master,
            authenticator,
            clock,
            waiting=Waits(master),
            requires_authentication=lambda: True,
        )
    )
    assert outcome(browser, resource, "") == 401
    assert browser.send("GET", "/nothing")[0] == 401
    assert browser.send("GET", "/nothing", **basic("plain"))[0] == 404
    if not resource.access:
        assert outcome(browser, resource, "plain") == 200


METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get")


def test_other_methods_are_not_implemented(browser):
    known = {(each.path, each.method) for each in ALL}
    for path, method in itertools.product({each.path for each in ALL}, METHODS):
        if (path, method) in known:
            continue
        uri = path
        for variable, value in NAMES.items():
            uri = uri.replace(variable, value)
        status, _, value = browser.send(method, uri)
        assert status == 501, (path, method)
        assert value is None if method == "HEAD" else value["code"] == 501


def test_errors_have_the_documented_body(browser):
    assert browser.send("GET", "/2/nothing")[2] == {
        "code": 404,
        "message": "Not Found",
        "explain": "Nothing matches the given URI",
    }
    status, headers, value = browser.send("PUT", "/2/tags")
    assert (status, value["message"]) == (401, "Unauthorized")
    assert headers["WWW-Authenticate"] == 'Basic realm="Ganeti Remote API"'
    value = browser.send("PUT", "/2/tags?dry-run=<b>", **basic("writer"))[2]
    assert "&lt;b&gt;" in value["message"]


def test_the_order_of_checks(browser):
    bad = {"raw": b"{", "CONTENT_TYPE": "text/plain"}
    assert browser.send("PATCH", "/nothing", **bad)[0] == 404
    assert browser.send("PATCH", "/2/modify", **bad)[0] == 501
    assert browser.send("PUT", "/2/modify", **bad)[0] == 401
    assert browser.send("PUT", "/2/modify", **bad, **basic("reader"))[0] == 403
    assert browser.send("PUT", "/2/modify", **bad, **basic("writer"))[0] == 415
    bad["CONTENT_TYPE"] = "application/json; charset=utf-8"
    assert browser.send("PUT", "/2/modify", **bad, **basic("writer"))[0] == 400
    assert (
        browser.send("GET", "/version", raw=b"x", CONTENT_TYPE="text/plain")[0] == 415
    )


@pytest.mark.parametrize(
    "raw",
    [
        *(b"{", b"nul", b"[1,]", b"\xff", b'"\xc3"', b"NaN", b"{1: 2}", b"'a'", b"1 2"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5000 + b"e",
    ],
)
def test_malformed_json_is_refused(browser, master, raw):
    status, _, value = browser.send("PUT", "/2/modify", raw=raw, **basic("writer"))
    assert status == 400, value
    assert len(master.jobs) == 1


def test_large_truncated_and_odd_bodies_are_refused(browser):
    who = basic("writer")
    large = b'"' + b"x" * (20 << 20) + b'"'
    assert browser.send("PUT", "/2/modify", raw=large, **who)[0] == 413
    assert (
        browser.send("PUT", "/2/modify", raw=b"{}", CONTENT_LENGTH="9", **who)[0] == 400
    )
    assert browser.send("PUT", "/2/modify", raw=b"", **who)[0] == 200


@pytest.mark.parametrize(
    "uri", ["/2/tags?tag=%ff", "/2/tags?" + "a=1&" * 10_001, "/2/tags?tag=\xff"]
)
def test_malformed_query_arguments_are_refused(browser, uri):
    assert browser.send("PUT", uri, **basic("writer"))[0] == 400


def test_a_path_that_is_no_text_is_not_found(browser):
    assert browser.send("GET", "/2/nodes/%ff")[0] == 404
    assert browser.send("GET", "/", REQUEST_URI="/2/nodes/\xff")[0] == 404


def test_a_path_with_scheme_and_host_is_the_same(browser):
    assert browser.send("GET", "https://rapi.example.com/version")[2] == 2
    assert browser.send("GET", "https://rapi.example.com")[0] == 200
    assert browser.send("GET", "//rapi.example.com/version")[0] == 404


ODD_NAMES = ("rack 1", "a,b", "a/b", "a%2Fb", "x/rename", "\u00fc", "50%", "what?")


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("kind", ["group", "network"])
def test_names_of_any_characters_are_found_by_the_uri_in_the_list(
    browser, master, kind, name
):
    master.objects[kind][0] |= {"name": name}
    [listed] = browser.send("GET", f"/2/{kind}s")[2]
    assert listed == {
        "name": name,
        "uri": f"/2/{kind}s/{urllib.parse.quote(name, safe='')}",
    }
    assert browser.send("GET", listed["uri"])[2]["name"] == name
    uri = f"{listed['uri']}/rename"
    body = {"new_name": "next"}
    assert browser.send("PUT", uri, body, **basic("writer"))[0] == 200
    [op] = master.jobs[2]
    assert getattr(op, f"{kind}_name") == name


def test_a_right_for_what_is_below_a_group_is_none_for_a_name_with_a_slash(
    master, clock
):
    text = "below pw write:/2/groups/x/*,write:/2/groups/new\n"
    app = Application(
        master, Authenticator(clock, users.parse(text)), clock, waiting=Waits(master)
    )
    browser, who = Browser(app), basic("below")
    for name in ("x", "x%2Fy"):
        master.objects["group"][0] |= {"name": urllib.parse.unquote(name)}
        uri = f"/2/groups/{name}/rename"
        status = browser.send("PUT", uri, {"new_name": "new"}, **who)[0]
        assert status == (200 if name == "x" else 403)
    add = {"name": "x/y"}
    assert browser.send("POST", "/2/groups", add, **who)[0] == 403


def test_credentials_are_checked_where_none_are_needed(browser):
    assert browser.send("GET", "/version", **basic("writer", "wrong"))[0] == 401


def test_lists_have_names_and_uris_or_whole_objects(browser):
    assert browser.send("GET", "/2/instances")[2] == [
        {"id": "web1", "uri": "/2/instances/web1"},
        {"id": "web2", "uri": "/2/instances/web2"},
    ]
    assert browser.send("GET", "/2/groups")[2] == [
        {"name": "default", "uri": "/2/groups/default"}
    ]
    assert browser.send("GET", "/2/filters")[2] == [
        {"uuid": "rule-1", "uri": "/2/filters/rule-1"}
    ]
    assert browser.send("GET", "/2/jobs")[2] == [{"id": 1, "uri": "/2/jobs/1"}]
    bulk = browser.send("GET", "/2/instances?bulk=1")[2]
    assert [tuple(each) for each in bulk] == [row_parts.INSTANCE] * 2
    assert bulk[0]["beparams"] == {
        "maxmem": 512,
        "minmem": 512,
        "vcpus": 1,
        "memory": 512,
    }
    assert [each["id"] for each in browser.send("GET", "/2/jobs?bulk=1")[2]] == [1]


def test_an_empty_list_is_a_list(browser, master):
    master.objects = {}
    for path in ("/2/instances", "/2/nodes", "/2/networks"):
        for uri in (path, f"{path}?bulk=1"):
            assert browser.send("GET", uri)[2] == []


def test_many_rows_are_one_list(browser, master):
    one = master.objects["instance"][0]
    master.objects["instance"] = [one | {"name": f"web{k}"} for k in range(1001)]
    bulk = browser.send("GET", "/2/instances?bulk=1")[2]
    assert [each["name"] for each in bulk] == [f"web{k}" for k in range(1001)]


def test_an_answer_that_the_master_does_not_complete_is_cut_off(
    browser, master, monkeypatch, caplog
):
    released = []

    def broken():
        yield b'{"name":'
        raise errors.ConnectionClosedError("closed")

    stream = Stream(b"[", broken(), lambda: released.append(1))
    monkeypatch.setattr(master, "stream", lambda _method, _args: stream)
    with pytest.raises(ConnectionResetError):
        browser.send("GET", "/2/instances?bulk=1")
    assert released == [1]
    assert "the answer is cut off: closed" in caplog.text


def test_single_objects_have_their_copies(browser):
    assert browser.send("GET", "/2/nodes/n1")[2]["secondary_ip"] == "192.0.2.1"
    assert browser.send("GET", "/2/instances/web1")[2]["beparams"]["memory"] == 512
    info = browser.send("GET", "/2/info")[2]
    assert info["vg_name"] == "xenvg"
    assert info["drbd_helper"] is None
    assert browser.send("GET", "/2/nodes/n1/role")[2] == "master"
    assert browser.send("GET", "/2/nodes/n2/role")[2] == "regular"


@pytest.mark.parametrize(
    "path",
    [
        *("/2/instances/x", "/2/nodes/x", "/2/groups/x", "/2/networks/x"),
        *("/2/filters/x", "/2/nodes/x/role", "/2/instances/x/console"),
    ],
)
def test_unknown_objects_are_not_found(browser, path):
    status, _, value = browser.send("GET", path, **basic("reader"))
    assert status == 404
    assert f"{value['code']} {value['message']}: {value['explain']}" == (
        "404 Not Found: Nothing matches the given URI"
    )


def test_incidents_are_listed_with_the_names_of_their_nodes(browser, master):
    path = "/2/maintenance/incidents"
    assert browser.send("GET", path, **basic("reader"))[::2] == (200, [])
    known, gone = master.objects["node"][0]["uuid"], "uuid-of-a-removed-node"
    report = {"status": "evacuate", "details": {"part": "psu2"}}
    common = {"original": report, "action": "evacuate", "state": "pending"}
    master.incidents = [
        {"uuid": "i2", "node": known, "jobs": [900], "note": "no room", **common},
        {"uuid": "i1", "node": gone, **common},
    ]
    status, _, (second, first) = browser.send("GET", path, **basic("reader"))
    assert status == 200
    assert (second["id"], second["node"], second["node_name"]) == ("i2", known, "n1")
    assert second["original"] == report
    assert (second["repair-status"], second["jobs"]) == ("pending", [900])
    assert second["note"] == "no room"
    assert (first["node"], first["node_name"]) == (gone, None)


def test_the_journal_is_listed_by_the_arguments_of_the_request(browser, master):
    path = "/2/journal?since=1700000000.5&node=n1&job=7&limit=2&node="
    assert browser.send("GET", path, **basic("reader"))[::2] == (200, [{"id": 3}])
    (selection,) = master.selections
    given = {name: value for name, value in selection.items() if value is not None}
    assert given == {"since": 1700000000.5, "node": "n1", "job": 7, "limit": 2}


@pytest.mark.parametrize("query", ["since=noon", "job=x", "limit=1.5"])
def test_a_wrong_argument_of_the_journal_is_refused(browser, master, query):
    path = f"/2/journal?{query}"
    status, _, value = browser.send("GET", path, **basic("reader"))
    assert (status, master.selections) == (400, [])
    assert query.partition("=")[0] in value["message"]


def test_the_journal_is_not_for_everybody(browser):
    assert browser.send("GET", "/2/journal")[0] == 401
    assert browser.send("GET", "/2/journal", **basic("plain"))[0] == 403


def test_incidents_are_not_for_everybody(browser):
    path = "/2/maintenance/incidents"
    assert browser.send("GET", path)[0] == 401
    assert browser.send("GET", path, **basic("plain"))[0] == 403


def test_deaths_of_nodes_are_listed_and_not_for_everybody(browser, master):
    path = "/2/maintenance/node-deaths"
    master.deaths = [{"name": "n1", "phase": "fencing"}]
    assert browser.send("GET", path, **basic("reader"))[::2] == (200, master.deaths)
    assert browser.send("GET", path)[0] == 401
    assert browser.send("GET", path, **basic("plain"))[0] == 403


def test_the_state_of_the_cluster_is_for_who_may_read(browser):
    path = "/2/status"
    answer = browser.send("GET", path, **basic("reader"))
    assert answer[::2] == (200, {"severity": "ok", "status": 0, "findings": []})
    assert browser.send("GET", path, **basic("writer"))[0] == 200
    assert browser.send("GET", path)[0] == 401
    assert browser.send("GET", path, **basic("plain"))[0] == 403


def test_automatons_are_frozen_and_thawed_by_who_may_write(browser, master):
    path = "/2/maintenance/freeze"
    for user in ("reader", "plain"):
        for method in ("PUT", "DELETE"):
            assert browser.send(method, path, **basic(user))[0] == 403
    assert browser.send("PUT", path)[0] == 401
    assert master.freezes == []
    answer = browser.send("PUT", f"{path}?why=new%20switches", **basic("writer"))
    assert answer[::2] == (200, None)
    assert browser.send("PUT", path, **basic("writer"))[0] == 200
    assert browser.send("DELETE", path, **basic("writer"))[::2] == (200, None)
    assert master.freezes == ["new switches", "", None]


def test_an_unknown_incident_is_not_found(browser):
    path = "/2/maintenance/incidents/x/cancel"
    status, _, value = browser.send("PUT", path, **basic("writer"))
    assert (status, value["detail"]) == (404, "incident 'x' not known")


def test_an_unknown_job_has_no_values(browser):
    status, headers, value = browser.send("GET", "/2/jobs/77")
    assert status == 200
    assert value == dict.fromkeys(row_parts.JOB) | {"id": 77}
    assert "Retry-After" not in headers


def test_an_unfinished_job_states_when_to_ask_again(browser, master):
    master.still[1] = "running"
    assert browser.send("GET", "/2/jobs/1")[1]["Retry-After"] == "1"
    del master.still[1]
    assert "Retry-After" not in browser.send("GET", "/2/jobs/1")[1]


def test_the_console_of_a_stopped_instance_is_unavailable(browser):
    who = basic("reader")
    assert browser.send("GET", "/2/instances/web1/console", **who)[2]["kind"] == "vnc"
    assert browser.send("GET", "/2/instances/web2/console", **who)[0] == 503


def test_operating_systems_are_listed_with_their_variants(browser, master):
    assert browser.send("GET", "/2/os")[2] == ["tiny", "big+a", "big+b"]
    master.results["OP_OS_DIAGNOSE"] = errors.OpExecError("no node answers")
    status, _, value = browser.send("GET", "/2/os")
    assert (status, value["message"]) == (500, "no node answers")


def test_lists_of_operating_systems_leave_threads_to_others(
    browser, master, monkeypatch
):
    """Each of them waits for a job; anybody may send them."""
    limit, call, seen = 4, master.call, []

    def nested(method, *args, **options):
        if method == "SubmitJob":
            seen.append(browser.send("GET", "/2/os"))
        return call(method, *args, **options)

    monkeypatch.setattr(master, "call", nested)
    assert browser.send("GET", "/2/os")[0] == 200
    assert [status for status, *_ in seen] == [503, *[200] * (limit - 1)]
    assert seen[0][1]["Retry-After"] == "10"
    # Those that have ended do not count.
    monkeypatch.undo()
    master.results["OP_OS_DIAGNOSE"] = errors.OpExecError("no node answers")
    assert [browser.send("GET", "/2/os")[0] for _ in range(limit + 1)] == [500] * 5


def test_a_wait_needs_a_body_and_a_known_job(browser):
    who = basic("writer")
    body = {
        "fields": ["status"],
        "previous_job_info": None,
        "previous_log_serial": None,
    }
    value = browser.send("GET", "/2/jobs/1/wait", body, **who)[2]
    assert value == {"job_info": ["success"], "log_entries": []}
    assert browser.send("GET", "/2/jobs/1/wait", **who)[0] == 500
    assert browser.send("GET", "/2/jobs/77/wait", body, **who)[0] == 500
    for bad in ({}, {"fields": "status"}, {"fields": [1]}, [], "x"):
        assert browser.send("GET", "/2/jobs/1/wait", bad, **who)[0] == 400


def test_a_query_has_its_fields_in_the_uri_or_the_body(browser, master):
    who = basic("reader")
    for method, uri, body in (
        ("GET", "/2/query/node?fields=name,role", None),
        ("PUT", "/2/query/node?fields=name,role", {}),
        ("PUT", "/2/query/node", {"fields": ["name", "role"]}),
    ):
        data = browser.send(method, uri, body, **who)[2]["data"]
        assert data == [[[0, "n1"], [0, "M"]], [[0, "n2"], [0, "R"]]]
    for key in ("qfilter", "filter"):
        body = {"fields": ["name"], key: ["|", ["==", "name", "n2"]]}
        data = browser.send("PUT", "/2/query/node", body, **who)[2]["data"]
        assert data == [[[0, "n2"]]]
    wrong = {"fields": ["name"], "qfilter": ["=", "name"]}
    status, _, answer = browser.send("PUT", "/2/query/node", wrong, **who)
    assert (status, answer["message"]) == (400, "filter: '=' wants 2 operands, found 1")
    assert browser.send("PUT", "/2/query/node", {}, **who)[0] == 400
    assert browser.send("GET", "/2/query/node", **who)[0] == 400


def test_a_filter_rule_has_the_trail_of_its_user(browser, master):
    body = {"priority": 5, "action": "PAUSE", "reason": [["me", "x", 1]]}
    uri = "/2/filters/rule-9?reason=why"
    assert browser.send("PUT", uri, body, **basic("writer"))[2] == "rule-9"
    [(method, args)] = master.calls
    assert (method, args[:4]) == ("ReplaceFilter", ["rule-9", 5, [], "PAUSE"])
    sources = [entry[0] for entry in args[4]]
    assert sources == [
        "me",
        "gnt:user",
        "gnt:daemon:rapi",
        "gnt:library:rlib2:filters_uuid",
    ]
    by_client = {"reason": [["me", "x", 1], ["gnt:client", "", 2]]}
    assert browser.send("POST", "/2/filters", by_client, **basic("writer"))[0] == 200
    assert master.calls[-1][1][4][:2] == by_client["reason"]
    bad = {"reason": [["gnt:client", "x", 1]]}
    assert browser.send("POST", "/2/filters", bad, **basic("writer"))[0] == 400
    by_user = {"reason": [["gnt:user", "x", 1]]}
    assert browser.send("POST", "/2/filters", by_user, **basic("writer"))[0] == 200
    assert master.calls[-1][1][4][:1] == by_user["reason"]
    assert browser.send("POST", "/2/filters", {"x": 1}, **basic("writer"))[0] == 400
    assert browser.send("POST", "/2/filters", **basic("writer"))[2] == "new-uuid"


@pytest.mark.parametrize(
    ("err", "status"),
    [
        (errors.GenericError("no"), 500),
        (errors.OpPrereqError("no", "wrong_input"), 500),
        (errors.JobQueueError("no"), 500),
        (errors.LuxiPermissionError("/path"), 500),
        (errors.NoMasterError("/path"), 502),
        (errors.ConnectionClosedError("no"), 502),
        (errors.RequestError("no"), 502),
        (errors.LuxiTimeoutError("no"), 504),
        (errors.JobQueueFull(), 503),
        (errors.JobQueueDrainError("no"), 503),
    ],
)
def test_errors_of_the_master_have_their_status(browser, master, err, status):
    master.down = err
    for method, uri in (
        ("GET", "/2/info"),
        ("PUT", "/2/tags"),
        ("GET", "/2/nodes?bulk=1"),
    ):
        actual, headers, value = browser.send(method, uri, **basic("writer"))
        assert (actual, value["code"]) == (status, status)
        assert value["message"]
        assert ("Retry-After" in headers) is (status == 503)


def test_a_refusal_of_the_master_is_a_sentence_with_its_code(browser, master):
    master.down = errors.OpPrereqError("tag x: is malformed", "wrong_input")
    value = browser.send("PUT", "/2/tags", **basic("writer"))[2]
    assert value["message"] == "tag x: is malformed (wrong_input)"


def test_a_defect_is_one_clear_error(browser, master, caplog):
    master.down = KeyError("secret detail")
    status, headers, value = browser.send("GET", "/2/info")
    assert status == 500
    assert headers["X-Request-Id"] in value["message"]
    assert "secret detail" not in value["message"]
    assert headers["X-Request-Id"] in caplog.text


def test_parameters_that_mean_root_need_their_right(browser, master):
    uri, body = "/2/instances/web1/modify", {"hvparams": {"kvm_path": "/tmp/x"}}
    for user in ("writer", "web"):
        status, _, value = browser.send("PUT", uri, body, **basic(user))
        assert status == 403
        assert "kvm_path" in value["message"]
        assert "'root'" in value["message"]
    assert browser.send("PUT", uri, body, **basic("owner"))[0] == 200
    assert len(master.jobs) == 2


def test_a_pattern_does_not_match_the_uuid_of_another_instance(master, clock):
    text = "db pw write:/2/instances/db*\n"
    app = Application(
        master, Authenticator(clock, users.parse(text)), clock, waiting=Waits(master)
    )
    browser, who = Browser(app), basic("db")
    uuid = "db000000-0000-4000-8000-000000000001"
    uri = f"/2/instances/{uuid}/startup"
    master.objects["instance"][0]["uuid"] = uuid
    status = browser.send("PUT", uri, **who)[0]
    master.objects["instance"][0]["name"] = "db1"
    assert (status, browser.send("PUT", uri, **who)[0]) == (403, 200)


def test_a_disk_without_an_owner_needs_a_right_of_its_own(browser, master, clock):
    uri, who = "/2/instances/web1/modify", basic("web")
    body = {"disks": [["attach", {"name": "web-data"}]]}
    assert browser.send("PUT", uri, body, **who)[0] == 403
    assert browser.send("PUT", uri, body, **basic("writer"))[0] == 200
    browser.application._authenticator.replace(
        users.parse("web pw write:/2/instances/web*,write:/2/disks/web-*\n")
    )
    assert browser.send("PUT", uri, body, **who)[0] == 200
    body = {"disks": [["attach", {"name": "db-data"}]]}
    assert browser.send("PUT", uri, body, **who)[0] == 403
    # A UUID counts as the name of its disk.
    own, others = (f"{n:08d}-0000-4000-8000-000000000000" for n in (1, 2))
    master.disk_names = {own: "web-old", others: "db-old"}
    for uuid, status in ((own, 200), (others, 403), (others.replace("2", "3"), 403)):
        body = {"disks": [["attach", {"uuid": uuid}]]}
        assert browser.send("PUT", uri, body, **who)[0] == status


def test_what_is_written_back_needs_no_right(browser, master):
    uri = "/2/instances/web1/modify"
    master.objects["instance"][0]["hvparams"] = {"kvm_path": "/x", "use_chroot": True}
    same = {"hvparams": {"kvm_path": "/x", "use_chroot": True, "acpi": False}}
    assert browser.send("PUT", uri, same, **basic("web"))[0] == 200
    # An administrator may change it before the job runs: it does not change it back.
    [op] = master.calls[-1][1][0]
    assert op["hvparams"] == {"acpi": False, "use_chroot": True}
    for name, value in (("kvm_path", "/y"), ("use_chroot", False)):
        body = {"hvparams": {**same["hvparams"], name: value}}
        status, _, answer = browser.send("PUT", uri, body, **basic("web"))
        assert status == 403
        assert answer["message"].startswith(f"parameter {name}: gives control of nodes")
    master.cluster["use_external_mip_script"] = True
    body = {"use_external_mip_script": True, "drbd_helper": "/x"}
    status, _, answer = browser.send("PUT", "/2/modify", body, **basic("writer"))
    assert (status, answer["message"].partition(":")[0]) == (
        403,
        "parameter drbd_helper",
    )
    del body["drbd_helper"]
    assert browser.send("PUT", "/2/modify", body, **basic("writer"))[0] == 200


def test_a_number_that_no_job_has_is_not_found(browser, master):
    for number in ("9" * 19, "9" * 5000):
        for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/wait")):
            status = browser.send(method, f"/2/jobs/{number}{rest}", **basic("writer"))
            assert status[0] == 404
    assert master.calls == []


def test_a_role_covers_new_names_only_if_its_pattern_does(browser):
    who = basic("web")
    assert browser.send("POST", "/2/instances", CREATE, **who)[0] == 200
    assert (
        browser.send("POST", "/2/instances", CREATE | {"name": "db"}, **who)[0] == 403
    )
    uri = "/2/instances/web1/rename"
    assert browser.send("PUT", uri, {"new_name": "web3"}, **who)[0] == 200
    assert browser.send("PUT", uri, {"new_name": "db"}, **who)[0] == 403
    many = {
        "instances": [
            {"name": n, "mode": "create", "disks": [], "nics": []}
            for n in ("web5", "db")
        ]
    }
    assert browser.send("POST", "/2/instances-multi-alloc", many, **who)[0] == 403


def test_bodies_of_the_wrong_type_have_a_documented_status(browser):
    wrong = [None, True, 1, -1, 1.5, "x", "", [], {}, [[]], {"a": 1}, "x" * 10_000]
    for resource in ALL:
        if resource.body not in {Body.PARAMETERS, Body.REQUIRED, Body.OWN}:
            continue
        for value in wrong:
            status = browser.send(
                resource.method, uri_of(resource), value, **basic("owner")
            )[0]
            assert status in {200, 400, 500}
            assert status != 500 or "wait" in resource.path


def test_secrets_of_requests_are_not_logged(browser, caplog):
    caplog.set_level(logging.DEBUG)
    body = CREATE | {"osparams_secret": {"key": "sEcReT"}}
    browser.send("POST", "/2/instances", body, **basic("writer"))
    browser.send("POST", "/2/instances", body | {"disks": 1}, **basic("writer"))
    browser.send("POST", "/2/instances", body, **basic("writer", "sEcReT"))
    assert "sEcReT" not in caplog.text
    assert "/2/instances" in caplog.text


def test_log_lines_cannot_be_forged(browser, caplog):
    caplog.set_level(logging.DEBUG)
    browser.send("GET", "/2/x\nforged: line")
    assert "\nforged" not in caplog.text
    assert "%0Aforged" in caplog.text


def test_handlers_and_table_fit():
    used = {each.direct for each in ALL if each.job is None}
    assert used == set(handlers.HANDLERS)
