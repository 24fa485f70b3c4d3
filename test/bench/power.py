"""Time of ``gnt-node power status`` for 200 machines, some with dead controllers.

A virtual cluster of one real node has the other nodes on record alone. Each has a helper
that is a real process: it answers after half a second, as a good controller does, or
never. The time is that of the whole command.
"""

import argparse
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
#: A helper: a node whose name has "dead" gets no answer.
HELPER = """\
#!/bin/sh
case $2 in *dead*) exec sleep 600;; esac
sleep 0.5
echo '{"powered": true}'
"""
MASTER = "ganeti-masterd"
#: Seconds that the command may take: all controllers answer, or one in ten is dead.
GOALS = (5, 12)


def names_of(count, dead_each):
    """Return names of nodes; each one of so many, if any, has a dead controller."""
    return [
        f"{'dead' if dead_each and number % dead_each == 0 else 'node'}{number:03}.x"
        for number in range(count)
    ]


def add_nodes(root, names):
    """Put nodes on record while no master daemon runs."""
    from ganeti import store
    from ganeti.base.clock import SystemClock
    from ganeti.master import config

    path = f"{root}/var/lib/ganeti/store.db"
    opened = store.open_master(path, replicate=None, clock=SystemClock())
    try:
        cfg = config.Config(opened, SystemClock())
        snapshot = cfg.snapshot()
        first = snapshot.nodes[snapshot.cluster.master_node]
        with cfg.edit("bench") as edit:
            for uuid in set(snapshot.nodes) - {first.uuid}:
                config.topology.remove_node(edit, uuid)
        with cfg.edit("bench") as edit:
            for number, name in enumerate(names):
                new = first.replace(
                    name=name,
                    uuid=f"00000000-0000-4000-8000-{number:012x}",
                    primary_ip=f"192.0.2.{number}",
                    secondary_ip=f"192.0.2.{number}",
                    master_candidate=False,
                    master_capable=False,
                    ndparams={},
                )
                config.topology.add_node(edit, new)
    finally:
        opened.close()


def run(cluster, program, *args, check=True):
    """Run a program of the master; return what became of it."""
    return subprocess.run(
        [TOP / "build" / "bin" / program, *args],
        env=cluster.environment(),
        capture_output=True,
        text=True,
        check=check,
    )


def measure(cluster, count, dead_each, goal, show):
    """Print the time of the command; end if it does not name the dead ones."""
    names = names_of(count, dead_each)
    # Nobody can vote, so no restart by the cluster's own tools.
    subprocess.run(
        [
            TOP / "tools/vcluster",
            "-C",
            cluster.directory,
            "kill",
            cluster.master,
            MASTER,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    add_nodes(cluster.root, names)
    run(cluster, MASTER, "--no-voting", "--yes-do-it")
    began = time.monotonic()
    done = run(cluster, "gnt-node", "power", "status", *names, check=False)
    took = time.monotonic() - began
    output = done.stdout + done.stderr
    dead = [name for name in names if name.startswith("dead")]
    unnamed = [name for name in dead if f"node '{name}'" not in output]
    answers = done.stdout.count(" powered\n")
    if unnamed or answers != count - len(dead):
        sys.exit(f"{answers} answers, dead and unnamed: {unnamed}\n{output}")
    show(f"power status, {count} nodes, {len(dead)} dead and named", took, "s", goal)


def main():
    """Measure on a cluster in a temporary directory."""
    parser = argparse.ArgumentParser("test/bench/run power", description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=200)
    options = parser.parse_args()
    bench = runpy.run_path(str(pathlib.Path(__file__).with_name("cluster.py")))
    with tempfile.TemporaryDirectory(prefix="bench-power.") as directory:
        cluster = bench["Cluster"](os.path.join(directory, "c"), 1)
        try:
            helper = pathlib.Path(cluster.root, "helper")
            helper.write_text(HELPER, encoding="utf-8")
            helper.chmod(0o755)
            parameter = f"oob_program={helper}"
            run(cluster, "gnt-cluster", "modify", "--node-parameters", parameter)
            for dead_each, goal in zip((0, 10), GOALS, strict=True):
                limit = f"<= {goal}"
                measure(cluster, options.nodes, dead_each, limit, bench["show"])
        finally:
            cluster.down()


if __name__ == "__main__":
    main()
