"""Pages of lists and searches over the remote API: arguments, forms, rights."""

import urllib.parse

import pytest

from fakes.clocks import FakeClock
from fakes.rapi_master import Browser, RapiMaster
from ganeti.base import errors
from ganeti.daemons.rapi import pages, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.waits import Waits

READER = {"HTTP_AUTHORIZATION": "Basic cmVhZGVyOnB3"}


@pytest.fixture
def master():
    return RapiMaster()


@pytest.fixture
def get(master):
    clock = FakeClock()
    authenticator = Authenticator(clock, users.parse("reader pw read\n"))
    browser = Browser(Application(master, authenticator, clock, waiting=Waits(master)))

    def ask(path, headers=None, **args):
        query = urllib.parse.urlencode(args)
        uri = f"{path}?{query}" if args else path
        status, _headers, value = browser.send("GET", uri, **(headers or {}))
        return status, value

    return ask


def test_pages_follow_each_other_and_have_whole_objects(get, master):
    status, first = get("/2/instances", limit=1, count=1)
    assert (status, first["next"], first["count"]) == (200, "1", 2)
    [item] = first["items"]
    assert item["name"] == "web1"
    assert item["beparams"]["memory"] == 512
    whole = get("/2/instances", bulk=1)[1]
    assert item == whole[0]
    status, second = get("/2/instances", limit=1, cursor=first["next"])
    assert (second["items"], second["next"]) == ([whole[1]], None)
    assert second["count"] is None
    wanted = {"sort": "", "limit": 1, "cursor": "1", "count": False}
    assert master.calls[-1][1][3] == wanted


def test_requests_without_arguments_of_pages_are_answered_as_before(get, master):
    assert get("/2/nodes")[1] == [
        {"id": "n1", "uri": "/2/nodes/n1"},
        {"id": "n2", "uri": "/2/nodes/n2"},
    ]
    assert {method for method, _args in master.calls} == {"QueryObjects"}


@pytest.mark.parametrize(
    "path",
    ["/2/nodes", "/2/instances", "/2/groups", "/2/networks", "/2/jobs", "/2/filters"],
)
@pytest.mark.parametrize(
    "name", ["limit", "cursor", "sort", "filter", "fields", "count"]
)
def test_each_argument_makes_any_list_a_page(get, path, name):
    key = {"/2/jobs": "id", "/2/filters": "uuid"}.get(path, "name")
    value = {"limit": 5, "cursor": 0, "count": 1}.get(name, key)
    if name == "filter":
        value = f'{key} == "lan"' if path != "/2/jobs" else "id == 7"
    if name == "filter":
        status, refusal = get(path, **{name: value})
        assert (status, "filter: needs the right" in refusal["message"]) == (403, True)
    status, page = get(path, READER, **{name: value})
    assert status in {200, 404}, page
    if status == 200:
        assert set(page) == {"items", "next", "count"}


def test_filter_and_order_reach_the_master(get, master):
    args = {"filter": 'not name =~ m/^db/ and "a" in tags', "sort": "-mtime"}
    assert get("/2/instances", READER, **args)[0] == 200
    [kind, fields, qfilter, page] = master.calls[-1][1]
    assert kind == "instance"
    assert "status" in fields
    assert qfilter == ["&", ["!", ["=~", "name", "^db"]], ["=[]", "tags", "a"]]
    assert page["sort"] == "-mtime"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"limit": "x"}, "limit: wanted a number, found 'x'"),
        ({"limit": "-1"}, "limit: wanted a number, found '-1'"),
        ({"filter": "name =="}, "cannot parse filter"),
        ({"filter": "name == " + "9" * 5000}, "filter: a number has too many digits"),
        ({"filter": "(" * 10_001}, "filter: wanted at most 10000 characters"),
        ({"filter": "name =~ m/(/"}, "a valid regular expression"),
        ({"fields": ",".join(map(str, range(201)))}, "fields: wanted at most 200"),
        ({"count": "yes"}, "Invalid value for the 'count' parameter"),
    ],
)
def test_wrong_arguments_are_refused_with_one_sentence(get, args, text):
    status, value = get("/2/instances", READER, **args)
    assert status == 400
    assert text in value["message"]
    assert len(value["message"]) < 500


def test_fields_that_the_list_does_not_show_need_the_right_to_query(get):
    for args in (
        {"fields": "name,snodes.group"},
        {"sort": "-snodes.group"},
        {"filter": 'snodes.group =~ m/x/ or name == "web1"'},
    ):
        status, value = get("/2/instances", **args)
        assert (status, "snodes.group: not among" in value["message"]) == (403, True)
        assert get("/2/instances", READER, **args)[0] == 200


def test_unknown_fields_are_refused(get):
    status, value = get("/2/instances", READER, fields="name,nam")
    assert (status, value["message"]) == (400, "fields: unknown: nam")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.OpPrereqError("cursor: wanted that", "wrong_input"), 400),
        (errors.ParameterError("filter: field name"), 400),
        (errors.OpPrereqError("no web9", "unknown_entity"), 404),
        (errors.OpPrereqError("no queue", "wrong_state"), 500),
    ],
)
def test_refusals_of_the_master_have_their_status(get, master, error, status):
    def refuse(*_args):
        raise error

    master._QueryPage = refuse
    actual, value = get("/2/instances", limit=1)
    assert actual == status
    assert error.args[0] in {value["message"], value.get("detail")} or status == 500


def test_a_search_has_rows_of_what_the_user_may_read(get, master):
    status, rows = get("/2/search", q="web", limit=1)
    assert (status, [row["name"] for row in rows]) == (200, ["web1"])
    assert get("/2/search", q="n", kinds="node")[1][0]["kind"] == "node"
    rows = [dict(rows[0], kind=kind) for kind in ("instance", "node")]
    hidden = pages.matches(
        {"q": "web"}, lambda *_args: rows, lambda path: path == "/2/nodes/web1"
    )
    assert [row["kind"] for row in hidden] == ["node"]


def test_each_kind_that_is_found_has_a_path_that_can_be_read(get, master):
    from ganeti.daemons.rapi.application import _may_read
    from ganeti.decisions import search

    for kind in search.KINDS:
        path = pages._path_of({"kind": kind, "name": "7"})
        assert _may_read(None, path), path
    assert not _may_read(None, "/2/query/node")
    assert not _may_read(None, "/2/nothing")


def test_wrong_searches_are_refused(get):
    assert get("/2/search")[0] == 400
    assert get("/2/search", q="x", limit=0)[0] == 400
    assert get("/2/search", q="x", limit=201)[0] == 400
