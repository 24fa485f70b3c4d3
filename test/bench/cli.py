"""Speed of commands for users: listings, filters, jobs, help, verification.

    test/bench/run cli [--quick]

Starts its own virtual clusters in a scratch directory and ends them. Prints one line
per figure: name, measured value, goal, and the measured share of the goal. The next
line is the CPU time of command and master daemon together, which is meaningful also on
a machine that does other work.
"""

import argparse
import time

from cluster import NOOP, TOP, fake_instance, running, show, wait_final

from ganeti.master import query


def timed(cluster, what, goal, *argv, runs=5, unit="s"):
    """Print the time of a command; return its wall time."""
    spent, cpu = cluster.command(*argv, runs=runs)
    scale = 1000 if unit == "ms" else 1
    show(what, scale * spent, unit, goal)
    show("  CPU", scale * cpu, unit, "-")
    return spent


def config_fields():
    """Return the names of all instance fields that need no node."""
    fields = query.RESOURCES["instance"].fields
    return sorted(n for n in fields if not query.asks_nodes("instance", [n], None))


def live_fields():
    return "name,pnode,status,oper_state,oper_ram,oper_vcpus"


def configuration(cluster, count):
    cluster.fill(count, nics=1)
    fields = config_fields()
    what = f"gnt-instance list, {len(fields)} fields, {count} instances"
    timed(cluster, what, "<= 0.6", "gnt-instance", "list", "-o", ",".join(fields))
    few = ("gnt-instance", "list", "-o", "name,pnode,os,be/maxmem")
    what = f"gnt-instance list, 4 fields, {count} instances"
    plain = timed(cluster, what, "-", *few)
    filtered = cluster.command_s(*few, "-F", 'be/maxmem >= 1 and name =* "*7*"', runs=5)
    show("  a filter on top", max(0.0, filtered - plain), "s", "<= 0.2")


def jobs(cluster, count):
    client = cluster.client()
    last = None
    for _start in range(0, count, 250):
        answers = client.call("SubmitManyJobs", [[[NOOP]] * 250])
        last = answers[-1][1]
    wait_final(client, last)
    timed(cluster, f"gnt-job list, {count} jobs", "<= 0.7", "gnt-job", "list")


def small(cluster):
    programs = sorted(path.name for path in (TOP / "build" / "bin").glob("gnt-*"))
    helps = [(program, "--help") for program in programs]
    helps += [("gnt-instance", "add", "--help"), ("gnt-cluster", "modify", "--help")]
    (spent, cpu), slowest = max((cluster.command(*words), words) for words in helps)
    show(f"slowest help: {' '.join(slowest)}", 1000 * spent, "ms", "<= 80")
    show("  CPU", 1000 * cpu, "ms", "-")
    commands = [("gnt-cluster", "info"), ("gnt-node", "list"), ("gnt-job", "list")]
    for words in [("gnt-cluster", "getmaster"), *commands]:
        goal = "<= 70" if "getmaster" in words else "<= 80"
        timed(cluster, " ".join(words), goal, *words, runs=10, unit="ms")


def live(nodes, count):
    with running(nodes) as cluster:
        client = cluster.client()
        began = time.monotonic()
        made = [
            fake_instance(number, cluster.nodes[number % nodes]["name"])
            for number in range(count)
        ]
        answers = client.call("SubmitManyJobs", [made])
        ended = {wait_final(client, job) for _ok, job in answers}
        assert ended == {"success"}, ended
        show(f"{count} fake instances made", time.monotonic() - began, "s", "-")
        listing = ("gnt-instance", "list", "-o", live_fields())
        what = f"live fields, {nodes} nodes, {count} instances"
        spent = timed(cluster, what, "<= 1", *listing)
        filtered = cluster.command_s(*listing, "-F", 'status == "running"', runs=5)
        show("  a filter on top", max(0.0, filtered - spent), "s", "<= 0.2")
        what = f"verify, {nodes} nodes, {count} instances"
        timed(cluster, what, "<= 5", "gnt-cluster", "verify", runs=3)


def main():
    parser = argparse.ArgumentParser(
        "test/bench/run cli", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    quick = parser.parse_args().quick
    with running(1) as cluster:
        small(cluster)
        configuration(cluster, 500 if quick else 5000)
        jobs(cluster, 1000 if quick else 10000)
    live(*((3, 30) if quick else (20, 1000)))


if __name__ == "__main__":
    main()
