"""``--sort`` and ``--limit`` of listings, and ``gnt-cluster search``."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

LIST = "gnt-node list -o name --no-headers"


@pytest.fixture
def master():
    master = FakeMaster()
    master.objects["node"] = [{"name": f"n{number}"} for number in range(2345)]
    return master


def pages_of(master):
    pages = [args[3] for method, args in master.calls if method == "QueryPage"]
    return [(page["sort"], page["limit"], page["cursor"]) for page in pages]


def test_a_limit_is_asked_for_in_pages_of_the_master(master):
    done = commands.run(f"{LIST} --limit 2100", master)
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == [f"n{number}" for number in range(2100)]
    assert pages_of(master) == [("", 1000, ""), ("", 1000, "1000"), ("", 100, "2000")]


def test_sorting_alone_lists_all(master):
    done = commands.run(f"{LIST} --sort=-name", master)
    assert len(done.out.split()) == 2345
    assert {sort for sort, _limit, _cursor in pages_of(master)} == {"-name"}


def test_without_them_the_query_is_that_of_before(master):
    commands.run(LIST, master)
    assert [method for method, _args in master.calls] == ["Query"]


def test_a_limit_below_one_is_refused(master):
    done = commands.run(f"{LIST} --limit 0", master)
    assert (done.code, master.calls) == (1, [])
    assert "--limit: wanted a number of at least 1, found 0" in done.err


def test_a_search_prints_a_table_or_json_and_fails_without_a_match(master):
    master.objects["node"] = [{"name": "alpha1"}]
    done = commands.run("gnt-cluster search alpha", master)
    assert done.out.splitlines() == [
        "Kind Name   Match Field Value",
        "node alpha1 part  name  alpha1",
    ]
    assert done.code == 0
    [row] = json.loads(commands.run("gnt-cluster search --json alpha", master).out)
    assert list(row) == ["kind", "name", "match", "field", "value"]
    nothing = commands.run("gnt-cluster search --limit 3 beta", master)
    assert (nothing.code, nothing.out) == (1, "")
    assert master.calls[-1] == ("Search", ["beta", 3])
