"""``hsqueeze -X``: what is submitted, in which order, and when nothing is."""

import pytest

from fakes.luxi_master import Connection
from fakes.programs import DATA
from ganeti.base import errors
from ganeti.commands.htools import node_power, sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.maintenance import squeeze
from ganeti.decisions.htools.maintenance.squeeze import Headroom
from ganeti.decisions.htools.model.loaders import text

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
    assert node_power.run("hsqueeze", PARSED, SHARED, OFF) == 0
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
    assert node_power.run("hsqueeze", PARSED, SHARED, ON) == 0
    moves = ["INSTANCE_MIGRATE"] * len(ON.steps)
    assert simulation.jobs() == ["OOB_COMMAND", "NODE_SET_PARAMS", *moves]


def test_a_node_may_take_its_time_to_come(simulation, monkeypatch):
    paused = []
    monkeypatch.setattr(node_power.time, "sleep", paused.append)
    answers = [errors.OpPrereqError("does not answer", "wrong_state")] * 2
    simulation.master.results["OP_NODE_SET_PARAMS"] = lambda _op: (
        answers.pop() if answers else []
    )
    assert node_power.run("hsqueeze", PARSED, SHARED, ON) == 0
    assert len(paused) == 2
    assert simulation.jobs()[:4] == ["OOB_COMMAND", *["NODE_SET_PARAMS"] * 3]


def test_without_a_helper_nothing_is_done(simulation):
    simulation.master.objects["node"][2]["ndp/oob_program"] = "!"
    with pytest.raises(
        ProgramError, match=r"kite3\.lab\.test; they cannot be switched"
    ):
        node_power.run("hsqueeze", PARSED, SHARED, OFF)
    assert simulation.jobs() == []


def test_a_node_that_stays_on_is_reported(simulation):
    simulation.master.results["OP_OOB_COMMAND"] = []
    with pytest.raises(ProgramError, match="still online: kite2"):
        node_power.run("hsqueeze", PARSED, SHARED, OFF)


def test_a_failed_move_ends_it(simulation):
    simulation.master.results["OP_INSTANCE_MIGRATE"] = errors.OpExecError("stuck")
    with pytest.raises(ProgramError, match="stuck"):
        node_power.run("hsqueeze", PARSED, SHARED, OFF)
    assert set(simulation.jobs()) == {"INSTANCE_MIGRATE"}
