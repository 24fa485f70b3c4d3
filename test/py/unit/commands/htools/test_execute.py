"""Plans that are carried out: sets of jobs, failures, signals, ``hsqueeze -X``."""

import contextlib
import signal

import pytest

from fakes.luxi_master import Connection, FakeMaster
from fakes.programs import DATA
from ganeti.base import errors
from ganeti.commands.htools import execute, hsqueeze, options, sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import squeeze
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.htools.squeeze import Headroom


def migrate(name):
    op = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name}
    return execute.Job(name, [op])


SETS = [[migrate("a"), migrate("b")], [migrate("c")]]


@pytest.fixture
def master(monkeypatch):
    made = FakeMaster()
    monkeypatch.setattr(
        sources, "connect", lambda _path, **_options: contextlib.nullcontext(made)
    )
    return made


def run(sets=SETS, **values):
    return execute.run("hbal", options.ParsedOptions({"L": "", **values}), sets)


def names(master):
    return [op.instance_name for ops in master.jobs.values() for op in ops]


def test_sets_are_submitted_one_after_another(master, capsys):
    assert run() == 0
    submitted = [args for method, args in master.calls if method == "SubmitManyJobs"]
    assert [len(jobs) for (jobs,) in submitted] == [2, 1]
    assert capsys.readouterr().out.splitlines() == [
        "Executing jobset for instances a,b",
        "Got job IDs 1,2",
        "Executing jobset for instances c",
        "Got job IDs 3",
    ]


def test_jobs_say_where_they_come_from(master):
    run(reason="tidy up", prio="high")
    op = master.jobs[1][0]
    assert op.comment.startswith("rebalancing via hbal ")
    assert op.priority == -10
    source, text, _when = op.reason[0]
    assert (source, text) == ("hbal", "tidy up")


def test_a_failed_job_ends_all_after_its_set(master):
    def outcome(op):
        return errors.OpExecError("no way") if op.instance_name == "a" else None

    master.results["OP_INSTANCE_MIGRATE"] = outcome
    with pytest.raises(ProgramError) as caught:
        run()
    assert str(caught.value) == (
        "Not all jobs completed successfully: a: job 1: error: no way"
    )
    assert names(master) == ["a", "b"]


def test_a_refused_job_is_reported(master):
    master.refuse["OP_INSTANCE_MIGRATE"] = errors.JobQueueFull("queue is full")
    with pytest.raises(ProgramError, match=r"a: not accepted: .*queue is full"):
        run()


def test_a_job_that_is_gone_is_reported(master):
    master.gone.add(2)
    with pytest.raises(ProgramError, match="b: job 2 does not exist"):
        run()


def test_an_interrupt_lets_the_set_end_and_leaves_out_the_rest(master, capsys):
    def outcome(_op):
        signal.raise_signal(signal.SIGINT)

    master.results["OP_INSTANCE_MIGRATE"] = outcome
    before = signal.getsignal(signal.SIGINT)
    assert run() == 0
    assert names(master) == ["a", "b"]
    shown = capsys.readouterr()
    assert "Cancel request registered" in shown.err
    assert shown.out.endswith("Exiting early due to user request, 1 jobset(s) left.\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_termination_ends_at_once(master, capsys):
    def outcome(_op):
        signal.raise_signal(signal.SIGTERM)

    master.results["OP_INSTANCE_MIGRATE"] = outcome
    before = signal.getsignal(signal.SIGTERM)
    assert run() == execute.TERMINATED == 2
    assert "submitted jobs continue" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("method", "answers"),
    [
        ("SubmitManyJobs", [None, 5, [], [[True, 1]], [[True, 1], 5], "ab"]),
        ("WaitForJobChange", [5, [], [5, []], [["success"]], [[], []], [["x"], [5]]]),
        ("QueryJobs", [None, [], 5, [5], [["error"]], [["error", 1, 2], None]]),
    ],
)
def test_a_master_that_talks_nonsense_is_reported(master, method, answers, monkeypatch):
    master.results["OP_INSTANCE_MIGRATE"] = lambda _op: errors.OpExecError("no way")
    proper = master.call
    for answer in answers:

        def call(asked, args=(), answer=answer):
            return answer if asked == method else proper(asked, args)

        monkeypatch.setattr(master, "call", call)
        with pytest.raises(DataError) as caught:
            run()
        assert str(caught.value).startswith(f"LUXI: {method}: wanted ")


def test_questions_outlive_a_restart_of_the_master(monkeypatch):
    seen = {}

    def connect(_path, **options):
        seen.update(options)
        return contextlib.nullcontext(FakeMaster())

    monkeypatch.setattr(sources, "connect", connect)
    assert run() == 0
    assert seen["retries"] > 0


def test_a_master_that_goes_away_is_an_error(master):
    master.down = errors.NoMasterError("/socket")
    with pytest.raises(errors.NoMasterError):
        run()


# ``hsqueeze -X``: what is submitted, in which order, and when nothing is.

SHARED = text.load((DATA / "shared.data").read_text(), "shared.data")
PARSED = ParsedOptions({"L": ""}, [])
OFF = squeeze.plan(SHARED, Headroom(512, 1, 1), Headroom(512, 1, 1))
ON = squeeze.plan(SHARED, Headroom(15000, 1, 1), Headroom(512, 1, 1))


class Simulation(Connection):
    """A master that records power as jobs change it."""

    def __init__(self):
        super().__init__()
        self.master.objects["node"] = [
            {"name": node.name, "powered": True, "ndp/oob_program": "/oob"}
            for node in SHARED.nodes
        ]
        self.master.results["OP_OOB_COMMAND"] = self._power
        self.master.results["OP_NODE_SET_PARAMS"] = []

    def _power(self, op):
        for node in self.master.objects["node"]:
            if node["name"] in op.node_names:
                node["powered"] = op.command == "power-on"
        return []

    def jobs(self):
        names = [[op.op_id() for op in job] for job in self.master.jobs.values()]
        return [" ".join(job).replace("OP_", "") for job in names]


@pytest.fixture
def simulation(monkeypatch):
    made = Simulation()
    monkeypatch.setattr(sources, "connect", lambda _path, **_options: made)
    return made


def test_nodes_are_emptied_tagged_and_switched_off(simulation):
    assert hsqueeze.carry_out("hsqueeze", PARSED, SHARED, OFF) == 0
    moves, nodes = len(OFF.steps), len(OFF.nodes)
    assert moves
    assert simulation.jobs() == [
        *["INSTANCE_MIGRATE"] * moves,
        *["TAGS_SET"] * nodes,
        *["OOB_COMMAND"] * nodes,
    ]
    orders = [job[0] for job in list(simulation.master.jobs.values())[-nodes:]]
    assert all(op.mark_offline and op.auto_promote for op in orders)
    (last,) = {op.comment for job in simulation.master.jobs.values() for op in job}
    assert last.startswith(f"condensing by {nodes} nodes")


def test_nodes_are_switched_on_before_instances_move(simulation):
    assert hsqueeze.carry_out("hsqueeze", PARSED, SHARED, ON) == 0
    moves = ["INSTANCE_MIGRATE"] * len(ON.steps)
    assert simulation.jobs() == ["OOB_COMMAND", "NODE_SET_PARAMS", *moves]


def test_a_node_may_take_its_time_to_come(simulation, monkeypatch):
    paused = []
    monkeypatch.setattr(hsqueeze.time, "sleep", paused.append)
    answers = [errors.OpPrereqError("does not answer", "wrong_state")] * 2
    simulation.master.results["OP_NODE_SET_PARAMS"] = lambda _op: (
        answers.pop() if answers else []
    )
    assert hsqueeze.carry_out("hsqueeze", PARSED, SHARED, ON) == 0
    assert len(paused) == 2
    assert simulation.jobs()[:4] == ["OOB_COMMAND", *["NODE_SET_PARAMS"] * 3]


def test_without_a_helper_nothing_is_done(simulation):
    simulation.master.objects["node"][2]["ndp/oob_program"] = "!"
    with pytest.raises(
        ProgramError, match=r"kite3\.lab\.test; they cannot be switched"
    ):
        hsqueeze.carry_out("hsqueeze", PARSED, SHARED, OFF)
    assert simulation.jobs() == []


def test_a_node_that_stays_on_is_reported(simulation):
    simulation.master.results["OP_OOB_COMMAND"] = []
    with pytest.raises(ProgramError, match="still online: kite2"):
        hsqueeze.carry_out("hsqueeze", PARSED, SHARED, OFF)


def test_a_failed_move_ends_it(simulation):
    simulation.master.results["OP_INSTANCE_MIGRATE"] = errors.OpExecError("stuck")
    with pytest.raises(ProgramError, match="stuck"):
        hsqueeze.carry_out("hsqueeze", PARSED, SHARED, OFF)
    assert set(simulation.jobs()) == {"INSTANCE_MIGRATE"}
