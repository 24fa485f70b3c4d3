"""Helpers of tests: which tests and seeds a run plays, fake nodes, cuts of power."""

import pathlib
import random
import subprocess
import sys
import types
from typing import get_origin, get_type_hints

import pytest

from fakes import clusters, crash_points, evidence, power_cut, seeds, selection
from fakes.crash_points_etcd import EtcdCrashCluster
from fakes.rpc import SUCCESSFUL_ACTS, FakeRunner, Unscripted
from ganeti.node import calls as backend
from ganeti.node.calls.registry import PROCEDURES, LastAnswer

CONFTEST = """
import pytest
from fakes import selection

def pytest_addoption(parser):
    selection.add_options(parser)

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    selection.draw_examples(config)

def pytest_collection_modifyitems(config, items):
    selection.leave_out(config, items)

def pytest_terminal_summary(terminalreporter, config):
    selection.say_what_is_left_out(terminalreporter, config)
"""
FUNCTIONS = """
import pytest

def test_short():
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.parametrize("number", range(40))
@pytest.mark.sampled
def test_sampled(number):
    pass
"""
FILE = """
import pytest

pytestmark = pytest.mark.sampled

@pytest.mark.parametrize("number", range(40))
def test_of_a_sampled_file(number):
    pass
"""
PROPERTY = """
from hypothesis import given, settings, strategies
from fakes import seeds

@settings(max_examples=seeds.examples(31))
@given(strategies.integers())
def check(number):
    seen.append(number)

def test_property():
    global seen
    drawn = []
    for _ in range(2):
        seen = []
        check()
        drawn.append(seen)
    assert drawn[0] == drawn[1]
    print(f"drew {len(seen)}")
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Run pytest with options; return its output, and the number of runs of each test."""
    directory = tmp_path_factory.mktemp("tests")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_functions.py").write_text(FUNCTIONS)
    (directory / "test_file.py").write_text(FILE)
    (directory / "property.py").write_text(PROPERTY)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n long\n sampled\n")
    fakes = pathlib.Path(selection.__file__).parents[1]

    def run(*options):
        argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", *options]
        done = subprocess.run(
            argv, cwd=directory, capture_output=True, text=True, check=True,
            env={"PYTHONPATH": str(fakes), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        names = ("test_short", "test_long", "test_sampled", "test_of_a_sampled_file")
        return done.stdout, [done.stdout.count(f"::{name}") for name in names]

    return run


def test_by_itself_pytest_leaves_out_long_tests_only(played):
    output, counts = played()
    assert counts == [1, 0, 40, 40]
    assert "left out: those marked long; test/run STAGE --all" in output


def test_all_are_played_on_request(played):
    output, counts = played("--long")
    assert counts == [1, 1, 40, 40]
    assert "left out" not in output


def test_a_sample_is_of_tests_and_of_whole_files(played):
    output, (short, long, sampled, of_file) = played("--sample", "4")
    assert (short, long) == (1, 0)
    assert 0 < sampled < 25
    assert of_file in (0, 40)
    assert "all but one in 4 of those marked sampled" in output


def test_each_test_is_drawn_by_some_commit_and_repeatedly_by_one():
    names = [f"test/py/daemon/test_file.py::test_{n}" for n in range(50)]
    draws = [{n for n in names if selection.is_drawn(n, seed, 4)} for seed in range(60)]
    assert set.union(*draws) == set(names)
    assert len(names) / 6 < sum(map(len, draws)) / len(draws) < len(names) / 3
    assert draws[7] == {n for n in names if selection.is_drawn(n, 7, 4)}


def test_a_part_of_the_examples_of_a_property_is_drawn_from_the_seed_of_the_commit(
    played,
):
    output, _counts = played("--examples", "3", "-s", "property.py")
    assert "drew 11" in output
    assert f"--hypothesis-seed={seeds.of_tree(seeds.TOP)}" in output


# Seeds rotate from commit to commit, and stay for repeats of one.


def git(tree, *words):
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com")
    subprocess.run(["git", "-C", tree, *identity, *words], check=True)


def test_each_commit_has_a_seed_of_its_own(tmp_path):
    git(tmp_path, "init", "-q")
    collected = []
    for text in ("one", "two"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", text)
        collected.append(seeds.of_tree(tmp_path))
        assert seeds.of_tree(tmp_path) == collected[-1]
    assert collected[0] != collected[1]
    assert all(0 <= seed < 16**7 for seed in collected)


def test_an_archive_without_commits_has_the_seed_of_the_day(tmp_path):
    assert seeds.of_tree(tmp_path / "absent") // 1000 > 700_000


def test_a_variable_of_the_environment_decides(monkeypatch, capsys):
    monkeypatch.setenv("SOME_SEED", "4711")
    assert seeds.given("SOME_SEED") == 4711
    assert capsys.readouterr().out == "SOME_SEED=4711\n"


# Parts of nodes' logs that failed daemon tests show.

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


def node(top):
    for folder in ("var/log/ganeti", "var/lib/ganeti"):
        (top / folder).mkdir(parents=True)
    (top / "var/lib/ganeti/server.pem").write_text(f"-----BEGIN KEY-----\n{KEY}\n")
    return top / "var/log/ganeti"


def test_ends_of_logs_are_shown_without_secrets(tmp_path):
    logs = node(tmp_path / "node1.tst")
    lines = [f"line {number}" for number in range(100)]
    (logs / "node-daemon.log").write_text("\n".join([*lines, f"sent {KEY}", "last\n"]))
    (logs / "empty.log").touch()
    shown = evidence.of_cluster(tmp_path)
    assert "node1.tst/var/log/ganeti/node-daemon.log\n" in shown
    assert "line 99\n(left out)\nlast\n" in shown
    assert "line 1\n" not in shown
    assert KEY not in shown
    assert "empty.log" not in shown


def test_nothing_there_is_no_trouble(tmp_path):
    assert evidence.of_cluster(tmp_path / "none") == ""
    assert evidence.of_node(tmp_path) == ""


# The fake nodes of tests refuse unknown calls and answer as real nodes do.


def test_a_call_that_no_script_answers_fails_the_test():
    runner = FakeRunner(lambda: clusters.snapshot(nodes=1))
    with pytest.raises(Unscripted, match="instance_start"):
        runner.call("instance_start", [clusters.node_uuid(1)], [{}, False, []])


@pytest.mark.parametrize("name", sorted(SUCCESSFUL_ACTS))
def test_a_successful_act_has_an_answer_of_the_real_type(name):
    backend.load()
    actual = get_type_hints(PROCEDURES[name].function)["return"]
    answer = SUCCESSFUL_ACTS[name]
    if actual is LastAnswer or actual is types.NoneType:
        assert answer is None
    else:
        assert isinstance(answer, get_origin(actual) or actual)


# The choice of the points at which daemons end.

ACTS = dict.fromkeys(crash_points.VICTIMS, 50)


def chosen(power_cuts):
    return crash_points.points(random.Random(5), ACTS, 400, power_cuts)


def test_points_lie_within_the_workload():
    collected = chosen(crash_points.POWER_CUTS)
    assert len(collected) == 400
    assert all(1 <= point.acts <= ACTS[point.name, point.node] for point in collected)
    assert {(point.name, point.node) for point in collected} == set(ACTS)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_the_share_of_power_cuts_is_chosen(share):
    cuts = sum(point.is_power_cut for point in chosen(share))
    assert abs(cuts - 400 * share) < 40


def test_the_share_does_not_change_what_ends():
    def victims(share):
        return [(p.name, p.node, p.acts, p.start_acts) for p in chosen(share)]

    assert victims(0.0) == victims(1.0)


def test_a_share_of_the_master_daemons_is_replaced_by_a_takeover():
    victims, share = EtcdCrashCluster.VICTIMS, EtcdCrashCluster.TAKEOVERS
    acts = dict.fromkeys(victims, 50)
    made = crash_points.points(
        random.Random(5), acts, 400, victims=victims, takeovers=share
    )
    assert {(point.name, point.node) for point in made} == set(victims)
    masters = [p for p in made if p.name == crash_points.MASTERD and not p.is_power_cut]
    replaced = [point for point in made if point.is_takeover]
    assert set(replaced) <= set(masters)
    assert abs(len(replaced) - len(masters) * share) < 20
    assert not any(point.is_takeover for point in chosen(0.2))


# The model of a disk after a power cut, from records made by hand.

D, A = "/d", "/d/a"


def record(*entries):
    made = b""
    for kind, path, number, data in entries:
        size = 0 if kind == "T" else len(data)
        made += f"{kind} {number} {size} {path}\n".encode() + data
    return made


def cuts(entries, before, tries=200):
    """Return all outcomes of many cuts, as the contents of one file."""
    contents = set()
    for seed in range(tries):
        disk = power_cut.Disk(D, before)
        disk.replay(record(*entries))
        contents.add(disk.cut(random.Random(seed)).get(A))
    return contents


def sync(path, number=1):
    return ("B", path, number, b""), ("E", path, number, b"")


OLD, NEW = b"old old", b"NEW"


def test_a_synced_write_is_kept_and_another_may_be():
    write = ("W", A, 0, NEW)
    assert cuts([write, *sync(A)], {A: OLD}) == {b"NEW old"}
    assert cuts([write], {A: OLD}) == {OLD, b"NEW old"}


def test_what_is_written_during_a_sync_is_not_covered():
    begin, end = sync(A)
    assert cuts([begin, ("W", A, 0, NEW), end], {A: OLD}) == {OLD, b"NEW old"}


def test_a_new_name_needs_a_sync_of_its_directory():
    made = [("N", A, 0, b""), ("W", A, 0, NEW), *sync(A)]
    assert cuts(made, {}) == {None, NEW}
    assert cuts([*made, *sync(D, 2)], {}) == {NEW}


def test_a_file_is_replaced_whole_or_not():
    new = [("N", "/d/n", 0, b""), ("W", "/d/n", 0, NEW), *sync("/d/n")]
    assert cuts([*new, ("R", A, 0, b"/d/n")], {A: OLD}) == {OLD, NEW}
    assert cuts([*new, ("R", A, 0, b"/d/n"), *sync(D, 2)], {A: OLD}) == {NEW}


def test_a_removal_needs_a_sync_too():
    gone = ("U", A, 0, b"")
    assert cuts([gone], {A: OLD}) == {OLD, None}
    assert cuts([gone, *sync(D)], {A: OLD}) == {None}


def test_the_torn_end_of_a_record_is_left_out():
    disk = power_cut.Disk(D, {A: OLD})
    disk.replay(record(("W", A, 0, NEW), *sync(A))[:-5] + b"W 0 99 /d/a\nx")
    assert disk.cut(random.Random(1))[A] in {OLD, b"NEW old"}
