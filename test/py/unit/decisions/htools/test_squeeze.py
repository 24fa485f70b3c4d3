"""Nodes to switch off and on: what a plan promises, and the output scripts read."""

import pathlib
import subprocess
import sys

import msgspec
import pytest

import ganeti
from fakes import programs
from fakes.programs import DATA
from fakes.some_cluster import random_cluster
from ganeti.commands.htools import hsqueeze
from ganeti.decisions.htools import squeeze
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.squeeze import Headroom, PowerAction
from ganeti.decisions.htools.state import node_state

SHARED = text.load((DATA / "shared.data").read_text(), "shared.data")
SMALL = Headroom(512, 1, 1)


def with_nodes(cluster, change):
    nodes = tuple(change(n, node) for n, node in enumerate(cluster.nodes))
    return msgspec.structs.replace(cluster, nodes=nodes)


def shared_cluster(seed):
    return with_nodes(
        random_cluster(seed, template="sharedfile"),
        lambda n, node: msgspec.structs.replace(node, master=n == 1),
    )


@pytest.mark.parametrize(("arguments", "expected"), programs.golden("hsqueeze"))
def test_output(arguments, expected, monkeypatch):
    assert programs.reported(monkeypatch, hsqueeze.main, arguments) == expected


def test_the_program_runs_and_writes_what_is_asked(tmp_path):
    script, saved = tmp_path / "plan.sh", tmp_path / "state"
    source = str(DATA / "shared.data")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ganeti.commands.htools.hsqueeze"),
            *("-t", source, f"-C{script}", "-S", str(saved)),
        ],
        env={"PYTHONPATH": str(pathlib.Path(ganeti.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.count("has been written to file") == 2
    assert subprocess.run(["/bin/sh", "-n", script], check=False).returncode == 0
    assert "gnt-node add-tags kite4 htools:standby:auto" in script.read_text()
    after = text.load((tmp_path / "state.squeezed").read_text(), "squeezed")
    assert [node.offline for node in after.nodes] == [False, True, True, True, True]
    assert {inst.primary for inst in after.instances} == {0}


def keeps_policies(before, state):
    """Return whether no node is over a limit that it was not over before."""
    worse = (state.unallocated <= 0) & (before.unallocated > 0)
    worse |= state.fails_n1 & ~before.fails_n1
    worse |= (state.per_cpu(state.u_cpu) > state.cpu_ratio) & (
        before.per_cpu(before.u_cpu) <= before.cpu_ratio
    )
    return not worse.any()


@pytest.mark.parametrize("seed", range(25))
def test_a_plan_keeps_policies_and_room(seed):
    cluster = shared_cluster(seed)
    wanted = Headroom(1024, 1, 1)
    plan = squeeze.plan(cluster, SMALL, wanted)
    assert plan.enough
    online = [n for n, node in enumerate(plan.cluster.nodes) if not node.offline]
    assert 1 in online
    assert set(plan.nodes).isdisjoint(online)
    assert all(inst.primary in online for inst in plan.cluster.instances)
    before, after = (
        node_state.ClusterState(cluster),
        node_state.ClusterState(with_free(cluster, plan.cluster)),
    )
    assert keeps_policies(before, after)
    size = wanted if plan.action == PowerAction.SWITCH_OFF else SMALL
    if plan.action != PowerAction.NOTHING:
        assert all(after.unallocated[node] > size.memory for node in online)


def with_free(before, after):
    """Put what moves changed into the nodes' free memory, as they would report it."""
    free = [node.free_memory for node in before.nodes]
    for old, new in zip(before.instances, after.instances, strict=True):
        if old.uses_memory:
            free[old.primary] += old.memory
            free[new.primary] -= new.memory
    return with_nodes(
        after, lambda n, node: msgspec.structs.replace(node, free_memory=free[n])
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_moves_lead_to_the_state_of_the_plan(seed):
    cluster = shared_cluster(seed)
    plan = squeeze.plan(cluster, SMALL, SMALL)
    places = [inst.primary for inst in cluster.instances]
    for step in plan.steps:
        assert places[step.inst] == step.before[0]
        places[step.inst] = step.after[0]
    assert places == [inst.primary for inst in plan.cluster.instances]
    if plan.steps:
        now = node_state.ClusterState(with_free(cluster, plan.cluster))
        assert components.value(now) == pytest.approx(plan.steps[-1].score)


def test_the_last_node_stays_on():
    nobody = msgspec.structs.replace(SHARED.nodes[0], master=False)
    cluster = msgspec.structs.replace(SHARED, nodes=(nobody,), instances=())
    assert squeeze.plan(cluster, SMALL, SMALL).action == PowerAction.NOTHING


def test_the_master_and_nodes_with_data_stay_on():
    cluster = random_cluster(3)
    with_data = {n for inst in cluster.instances for n in inst.nodes}
    assert with_data.isdisjoint(squeeze.removable(cluster))
    assert 0 not in squeeze.removable(SHARED)


def test_nodes_come_only_with_a_standby_tag():
    assert squeeze.standby(SHARED) == [4]
    bare = with_nodes(SHARED, lambda _n, node: msgspec.structs.replace(node, tags=()))
    assert squeeze.standby(bare) == []


def test_as_few_nodes_as_possible_are_switched_on():
    more = msgspec.structs.replace(SHARED.nodes[4], name="kite6.lab.test")
    small = msgspec.structs.replace(more, name="kite0.lab.test", total_memory=2048.0)
    cluster = msgspec.structs.replace(SHARED, nodes=(*SHARED.nodes, more, small))
    busy = msgspec.structs.replace(cluster.instances[0], memory=13000)
    cluster = msgspec.structs.replace(cluster, instances=(busy, *cluster.instances[1:]))
    plan = squeeze.plan(cluster, Headroom(14000, 1, 1), SMALL)
    assert (plan.action, plan.enough) == (PowerAction.SWITCH_ON, False)
    assert plan.nodes == (4, 5, 6)


def test_a_node_of_unknown_size_hides_no_lack_and_makes_none():
    unknown = with_nodes(
        SHARED,
        lambda n, node: (
            msgspec.structs.replace(
                node, total_memory=0.0, node_memory=0, free_memory=0, cpus=0.0
            )
            if n == 4
            else node
        ),
    )
    assert squeeze.plan(unknown, SMALL, SMALL).action == PowerAction.SWITCH_OFF
    lacking = squeeze.plan(unknown, Headroom(15000, 1, 1), SMALL)
    assert (lacking.action, lacking.nodes) == (PowerAction.SWITCH_ON, (4,))
    assert not lacking.enough
