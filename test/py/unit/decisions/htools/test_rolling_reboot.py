"""Reboot groups: what they promise, and the output that scripts read."""

import itertools
import pathlib
import re
import subprocess
import sys

import pytest

import ganeti
from fakes import programs
from fakes.programs import DATA
from fakes.some_cluster import random_cluster
from ganeti.commands.htools import hroller
from ganeti.decisions.htools import rolling_reboot
from ganeti.decisions.htools.model.cluster import NONE
from ganeti.decisions.htools.state import node_state


def plan(cluster, **wanted):
    now = node_state.derive(cluster)
    want = rolling_reboot.RebootOptions(**wanted)
    nodes = rolling_reboot.chosen(now, want)
    graph = rolling_reboot.graph(cluster, nodes, offline=want.offline)
    classes = rolling_reboot.fewest(rolling_reboot.colour(graph))
    return nodes, rolling_reboot.parts(now, want, nodes, classes)


@pytest.mark.parametrize(("arguments", "expected"), programs.golden("hroller"))
def test_output(arguments, expected, monkeypatch):
    assert programs.reported(monkeypatch, hroller.main, arguments) == expected


def test_the_program_runs():
    done = subprocess.run(
        [sys.executable, "-m", "ganeti.commands.htools.hroller", "-t", "kite.data"],
        cwd=DATA,
        env={"PYTHONPATH": str(pathlib.Path(ganeti.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "'Node Reboot Groups'",
        "kite2.lab.test,kite3.lab.test",
        "kite4.lab.test,kite1.lab.test",
    ]


def test_all_runs_at_once_leave_the_master_to_the_end(tmp_path, monkeypatch, capsys):
    saved = tmp_path / "state"
    words = ["-t", str(DATA / "racks.data"), "-S", str(saved), "--no-headers"]
    monkeypatch.setattr(sys, "argv", ["hroller", *words])
    assert hroller.main() == 0
    listed = re.split(r"[\n,]", capsys.readouterr().out.strip())
    assert listed[-1] == "kite1.lab.test"
    assert (tmp_path / "state.original").read_text().startswith("rackA|")


@pytest.mark.parametrize("master", ["N", "M"])
def test_one_master_is_needed(master, tmp_path, monkeypatch, capsys):
    path = tmp_path / "cluster.data"
    text = (DATA / "kite.data").read_text()
    path.write_text(re.sub(r"\|[MN]\|aaaa", f"|{master}|aaaa", text))
    monkeypatch.setattr(sys, "argv", ["hroller", "-t", str(path)])
    assert hroller.main() == 1
    problem = "No master node found" if master == "N" else "more than one master node"
    assert problem in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["hroller", "-f", "-t", str(path)])
    assert hroller.main() == (0 if master == "N" else 1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("offline", [False, True])
def test_no_part_has_both_nodes_of_an_instance(seed, offline):
    cluster = random_cluster(seed)
    nodes, parts = plan(cluster, offline=offline)
    assert sorted(n for part in parts for n in part.nodes) == nodes
    for part, inst in itertools.product(parts, cluster.instances):
        assert not {inst.primary, inst.secondary} <= set(part.nodes)


@pytest.mark.parametrize("seed", range(12))
def test_instances_of_a_part_have_secondaries_of_their_own(seed):
    cluster = random_cluster(seed)
    _nodes, parts = plan(cluster)
    for part, node in itertools.product(parts, range(len(cluster.nodes))):
        failing_over = {
            inst.primary
            for inst in cluster.instances
            if inst.secondary == node and inst.primary in part.nodes
        }
        assert len(failing_over) <= 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("template", ["drbd", "plain"])
@pytest.mark.parametrize("offline", [0, 1])
def test_full_evacuation_empties_the_nodes(seed, template, offline):
    cluster = random_cluster(seed, template=template, offline=offline)
    _nodes, parts = plan(cluster, full=True)
    for part in parts:
        for inst in range(len(cluster.instances)):
            first, second = part.after.pri[inst], part.after.sec[inst]
            assert not {first, second} & set(part.nodes)
            assert first != second
            assert (second == NONE) == (template == "plain")


def cycle(count):
    return {n: [(n - 1) % count, (n + 1) % count] for n in range(count)}


@pytest.mark.parametrize("name", rolling_reboot.ALGORITHMS)
@pytest.mark.parametrize("count", [4, 5, 9])
def test_neighbours_get_different_colours(name, count):
    graph = cycle(count)
    classes = rolling_reboot.ALGORITHMS[name](graph)
    assert sorted(v for members in classes for v in members) == list(range(count))
    assert all(set(graph[v]).isdisjoint(c) for c in classes for v in c)
    assert len(classes) == 2 + count % 2


def test_a_graph_without_vertices_needs_no_colours():
    assert rolling_reboot.largest_first({}) == []
