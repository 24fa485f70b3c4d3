"""One run of the watcher over thousands of instances: CPU and time.

    test/bench/run watcher [--quick] [INSTANCES]

Starts its own virtual cluster in a scratch directory and ends it. The CPU of the
watcher is that of its process and its child per node group. The last figures are of a
run after all guests have died.
"""

import argparse
import pathlib
import resource
import subprocess
import time

from cluster import TOP, fake_instance, running, show, wait_final

NODES = 3
BATCH = 250


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_instances(cluster, count):
    """Create running guests of the fake hypervisor."""
    client = cluster.client()
    jobs = [
        fake_instance(number, cluster.nodes[number % NODES]["name"])
        for number in range(count)
    ]
    for create, _start in jobs:
        create["beparams"] = {"maxmem": 1, "minmem": 1}
    for start in range(0, count, BATCH):
        answers = client.call("SubmitManyJobs", [jobs[start : start + BATCH]])
        ended = {wait_final(client, job) for _ok, job in answers}
        assert ended == {"success"}, ended


def watch(cluster):
    """Run the watcher; return seconds, its CPU seconds, and the master daemon's."""
    before, master, began = children_cpu_s(), cluster.cpu_s(), time.monotonic()
    subprocess.run(
        [TOP / "build" / "bin" / "ganeti-watcher"],
        env=cluster.environment(),
        check=True,
    )
    spent = time.monotonic() - began
    return spent, children_cpu_s() - before, cluster.cpu_s() - master


def running_guests(cluster):
    client = cluster.client()
    answer = client.call("Query", ["instance", ["status"], None])
    return sum(row[0][1] == "running" for row in answer["data"])


def kill_guests(cluster):
    """Let all guests of the fake hypervisor die, as in a power failure."""
    for node in cluster.nodes:
        directory = pathlib.Path(node["root"], "var/run/ganeti/fake-hypervisor")
        for path in directory.iterdir():
            if path.is_file():
                path.unlink()


def main():
    """Measure."""
    parser = argparse.ArgumentParser("test/bench/run watcher", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument("instances", nargs="?", type=int, default=5000)
    options = parser.parse_args()
    count = 300 if options.quick else options.instances
    with running(NODES) as cluster:
        make_instances(cluster, count)
        watch(cluster)
        spent, cpu, master = min(watch(cluster) for _run in range(3))
        show(f"one run, {count} instances, all running", spent, "s", "-")
        show("  CPU of the watcher", cpu, "s", "<= 1")
        show("  CPU of the master daemon", master, "s", "-")
        kill_guests(cluster)
        assert running_guests(cluster) == 0
        spent, cpu, master = watch(cluster)
        show(f"one run, {count} instances, all dead", spent, "s", "<= 240")
        show("  CPU of the watcher", cpu, "s", "-")
        show("  CPU of the master daemon", master, "s", "-")
        show("  instances that run afterwards", running_guests(cluster), "", "-")


if __name__ == "__main__":
    main()
