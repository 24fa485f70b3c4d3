"""Take over a live Debian cluster and go back, again and again, killed in its steps."""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from fakes import debian
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.migration.takeover import journal, steps

WEB1, WEB2 = "web1.vc.test", "web2.vc.test"
#: Longest pause in seconds between the beginning of a step and the kill.
LONGEST_S = 0.5


class Machines:
    """A virtual cluster as `debian.DebianCluster` wants it."""

    def __init__(self, directory):
        self.directory = directory
        self.layout = lay.Layout.load(directory)
        self.control = NodeControl(self.layout, SystemRunner())

    def run(self, *argv, node="node1", timeout_s=300):
        target = self.layout.node(node)
        return self.control.run(target, list(argv), timeout_s=timeout_s)

    def check(self, *argv, node="node1"):
        result = self.run(*argv, node=node)
        assert not result.failed, f"{argv} {result.reason}: {result.output}"
        return result.stdout

    def file(self, path, node="node1"):
        node = self.layout.node(node)
        return debian.pathlib.Path(self.layout.host_path(node, path))


def killed(machines, words, step, pause_s):
    """Run take-over until a step begins, and kill it; return whether it got there."""
    command = ["sh", "-c", 'echo $$; exec take-over -f "$@"', "sh", *words]
    title = steps.TITLES[step].partition(" {")[0]
    node = machines.layout.master_node
    with subprocess.Popen(
        machines.control.argv(node, command),
        env=machines.control.environment(node),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        pid = child.stdout.readline().strip()
        lines = iter(child.stdout.readline, "")
        has_begun = any(line.startswith(title) for line in lines)
        time.sleep(pause_s)
        machines.run("kill", "-9", pid)
        child.stdout.read()
    return has_begun


def one_way(old, chance, names, *words):
    """Go one way, with a kill in each step; return the number of kills."""
    machines, count = old.machines, 0
    before = old.guests()
    for step in names:
        has_begun = killed(machines, words, step, chance.uniform(0, LONGEST_S))
        count += has_begun
        print(f"    {step}: {'killed' if has_begun else 'was done'}", flush=True)
        assert old.guests() == before, "a guest stopped"
    done = machines.run("take-over", "-f", *words)
    has_ended = "taken over already" in done.output or "no record" in done.output
    assert not done.failed or has_ended, done.output
    assert old.guests() == before, "a guest stopped"
    return count


def one_round(old, chance):
    """Go here and back; return the number of kills."""
    kills = one_way(old, chance, journal.OVER)
    listed = old.machines.check("gnt-instance", "list", "--no-headers", "-o", "status")
    assert listed.split() == ["running"] * 2, listed
    kills += one_way(old, chance, journal.BACK, "--undo")
    old.wait_until_listed({WEB1: "running", WEB2: "running"})
    assert old.daemons() == set(debian.DAEMONS)
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    if os.getuid() != 0:
        sys.exit("take_over: namespaces need root")
    print(f"seed {args.seed}")
    directory = tempfile.mkdtemp(prefix="gv-", dir="/tmp")
    vcluster = ("build/bin/vcluster", "-C", directory)
    options = ("-n", str(args.nodes), "--machines-only", "--isolated")
    try:
        subprocess.run([*vcluster, "up", *options], check=True)
        old = debian.DebianCluster(Machines(directory))
        old.install()
        old.create()
        last = f"node{args.nodes}"
        old.add(WEB1, "-t", "file", "-s", "8M", "--net=0:link=br0", "-n", last)
        old.add(WEB2, "-t", "diskless", "--no-install", "--no-nics", "-n", "node1")
        old.check("gnt-instance", "start", WEB2)
        chance, kills = random.Random(args.seed), 0
        for number in range(args.rounds):
            began = time.monotonic()
            kills += one_round(old, chance)
            spent = time.monotonic() - began
            print(f"  round {number + 1}: {kills} kills, {spent:.0f} s", flush=True)
    finally:
        subprocess.run([*vcluster, "down"], check=True)
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{args.rounds} rounds, {kills} kills, no guest stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
