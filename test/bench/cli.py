"""Speed of commands as people feel it: listings, filters, jobs, help, verification.

    test/bench/run cli [--quick]

Starts virtual clusters of its own in a scratch directory and ends them. Prints one line
per figure: what, measured, the goal.
"""

import argparse
import time

from cluster import NOOP, TOP, fake_instance, running, show, wait_final

from ganeti import query


def config_fields():
    """Return the names of all instance fields that need no node."""
    fields = query.RESOURCES["instance"].fields
    return sorted(n for n in fields if not query.asks_nodes("instance", [n], None))


def live_fields():
    return "name,pnode,status,oper_state,oper_ram,oper_vcpus"


def configuration(cluster, count):
    cluster.fill(count, nics=1)
    fields = config_fields()
    spent = cluster.command_s("gnt-instance", "list", "-o", ",".join(fields), runs=3)
    what = f"gnt-instance list, {len(fields)} fields, {count} instances"
    show(what, spent, "s", "<= 0.6")
    few = ("gnt-instance", "list", "-o", "name,pnode,os,be/maxmem")
    plain = cluster.command_s(*few, runs=5)
    show(f"gnt-instance list, 4 fields, {count} instances", plain, "s", "-")
    filtered = cluster.command_s(*few, "-F", 'be/maxmem >= 1 and name =* "*7*"', runs=5)
    show("  a filter on top", max(0.0, filtered - plain), "s", "<= 0.2")


def jobs(cluster, count):
    client = cluster.client()
    last = None
    for _start in range(0, count, 250):
        answers = client.call("SubmitManyJobs", [[[NOOP]] * 250])
        last = answers[-1][1]
    wait_final(client, last)
    spent = cluster.command_s("gnt-job", "list", runs=3)
    show(f"gnt-job list, {count} jobs", spent, "s", "<= 0.7")


def small(cluster):
    programs = sorted(path.name for path in (TOP / "build" / "bin").glob("gnt-*"))
    helps = [(program, "--help") for program in programs]
    helps += [("gnt-instance", "add", "--help"), ("gnt-cluster", "modify", "--help")]
    spent, slowest = max((1000 * cluster.command_s(*words), words) for words in helps)
    show(f"slowest help: {' '.join(slowest)}", spent, "ms", "<= 80")
    commands = [("gnt-cluster", "info"), ("gnt-node", "list"), ("gnt-job", "list")]
    for words in [("gnt-cluster", "getmaster"), *commands]:
        spent = 1000 * cluster.command_s(*words)
        show(" ".join(words), spent, "ms", "<= 70" if "getmaster" in words else "<= 80")


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
        spent = cluster.command_s(*listing, runs=5)
        show(f"live fields, {nodes} nodes, {count} instances", spent, "s", "<= 1")
        filtered = cluster.command_s(*listing, "-F", 'status == "running"', runs=5)
        show("  a filter on top", max(0.0, filtered - spent), "s", "<= 0.2")
        spent = cluster.command_s("gnt-cluster", "verify", runs=3)
        show(f"verify, {nodes} nodes, {count} instances", spent, "s", "<= 5")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    quick = parser.parse_args().quick
    with running(1) as cluster:
        small(cluster)
        configuration(cluster, 500 if quick else 5000)
        jobs(cluster, 1000 if quick else 10000)
    live(*((3, 30) if quick else (20, 1000)))


if __name__ == "__main__":
    main()
