"""Answers that no master daemon of this release gives: one clear error each."""

import pytest

from fakes import commands
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols.luxi import answers
from ganeti.protocols.ssconf import write

PROGRAMS = (
    "cluster",
    "node",
    "instance",
    "group",
    "job",
    "os",
    "debug",
    "filter",
    "storage",
)
#: Commands that do more than to call the master daemon.
NOT_CLIENTS = {
    ("cluster", name)
    for name in (
        *("init", "destroy", "renew-crypto", "copyfile", "command", "failover"),
        *("master-failover", "epo", "migrate-store", "lost-changes", "simulate"),
    )
} | {("node", "add"), ("instance", "console")}
NAMES = {"instance": "web1", "node": "node1", "group": "group1", "job": "5"}
JUNK = (None, 7, "x", [], {}, [[]], [None], True, {"fields": [], "data": [[]]})


class JunkMaster:
    """Gives the same answer to every method."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = 0

    def hurry(self, **_limits):
        """Go on as before."""

    def call(self, method, _args):
        self.calls += 1
        if self.calls > 20:
            raise errors.LuxiTimeoutError(f"{method}: no answer")
        return self.answer


def lines(program):
    """Yield a command line for each client command of a program."""
    for command in commands.program(f"gnt-{program}").commands:
        if (program, command.name) in NOT_CLIENTS:
            continue
        words = []
        for argument in command.arguments:
            choices = argument.choices[:1] or (NAMES.get(argument.kind, "1"),)
            words += [choices[0]] * max(1, argument.minimum)
        forced = [
            "-f"
            for option in command.options
            if "-f" in option.names and option.kind == "flag"
        ]
        yield [f"gnt-{program}", command.name, *forced, *words]


@pytest.fixture
def environ(tmp_path, monkeypatch):
    paths = Paths(root=str(tmp_path / "node1"), hostname="node1")
    for directory in (paths.data_dir, paths.log_dir):
        (tmp_path / directory).mkdir(parents=True)
    write(paths, {"master_node": "node1", "node_list": "node1", "cluster_name": "c"})
    return {"GANETI_ROOTDIR": paths.root, "GANETI_HOSTNAME": "node1"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_answer_ends_in_an_internal_error(program, environ) -> None:
    refused = 0
    for line in lines(program):
        for answer in JUNK:
            done = commands.run(line, JunkMaster(answer), environ=environ)
            where = f"{line} {answer!r}: {done.err}"
            for word in ("Traceback", "a defect", "cannot be used", "Error: "):
                assert word not in done.err, where
            if "Unhandled protocol error" in done.err:
                assert "found" in done.err, where
                refused += 1
    assert refused > 10


def test_other_errors_name_the_last_method(environ) -> None:
    master = JunkMaster({"name": "c", "software_version": "3.1.1"})
    done = commands.run("gnt-cluster version", master, environ=environ)
    assert done.code == 1
    assert done.err.startswith(
        "Failure: the master daemon's answer to QueryClusterInfo cannot be used:"
        " KeyError: "
    )
    assert "Details are in " in done.err
    assert "Traceback" not in done.err
    done = commands.run("gnt-cluster version -d", master, environ=environ)
    assert "Traceback" in done.err


TABLE = {"fields": [{"name": "a", "title": "A", "kind": "text", "doc": ""}]}


@pytest.mark.parametrize(
    ("method", "args", "good", "bad"),
    [
        ("Query", ["node", ["a"], None], TABLE | {"data": [[[0, 1]]]}, TABLE),
        ("Query", ["node", ["a"], None], TABLE | {"data": []}, TABLE | {"data": [[1]]}),
        ("Query", ["node", ["a"], None], TABLE | {"data": ()}, TABLE | {"data": [[]]}),
        ("QueryJobs", [[1], ["id"]], [None, [1]], [[1, 2]]),
        ("QueryConfigValues", [["a", "b"]], [1, 2], [1]),
        ("SubmitJob", [[]], 5, [5]),
        ("SubmitJob", [[]], "5", "five"),
        ("SubmitManyJobs", [[[], []]], [[True, 1], [False, "no"]], [[True, 1]]),
        ("SubmitManyJobs", [[[]]], [[False, ["no"]]], [[True, "no"]]),
        ("WaitForJobChange", [1, ["status"], None, 0], "nochange", "change"),
        ("WaitForJobChange", [1, ["s"], None, 0], [["x"], [[1, [1, 2], "m", "t"]]], []),
        ("WaitForJobChange", [1, ["s"], None, 0], [["x"], None], [["x"], [[1]]]),
        ("CancelJob", [1], [True, "done"], True),
        ("AutoArchiveJobs", [1, 1], [1, 2], [1, "2"]),
        ("QueryTags", ["cluster", None], ["a"], [1]),
        ("SetWatcherPause", [None], None, "now"),
        ("Unlisted", [], {}, None),
    ],
)
def test_forms(method, args, good, bad) -> None:
    answers.check(method, args, good)
    if method == "Unlisted":
        answers.check(method, args, bad)
        return
    with pytest.raises(errors.ProtocolError, match=f"^{method}: wanted .*, found "):
        answers.check(method, args, bad)


def test_a_long_answer_is_cut() -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        answers.check("QueryTags", [], "\x1b" * 1000)
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)
