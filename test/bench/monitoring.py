"""Memory and processor time of the monitoring agent and its processes, with heartbeats.

A virtual cluster of one real node has some instances of the hypervisor fake, each with a
file that is its disk. A reader asks for the metrics every 15 seconds, as Prometheus does.
PSS counts shared pages in part: it is what ending the process would release, at least.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from fakes.patience import until

TOP = pathlib.Path(__file__).resolve().parents[2]
VCLUSTER = TOP / "build/bin/vcluster"
ADD = ("gnt-instance", "add", "--no-install", "--no-wait-for-sync", "-t", "sharedfile")
ADD += ("-s", "1m", "-o", "tiny+default", "-H", "fake", "-n", "node1", "--no-nics")
SCRAPE_S = 15.0
#: MiB of the agent, and percent of a core of all its processes.
GOALS = (45, 0.5)
TICKS = os.sysconf("SC_CLK_TCK")


def sizes_of(pid):
    """Return RSS and PSS of a process in MiB."""
    rows = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    values = {row.split()[0]: row.split()[1] for row in rows}
    return tuple(int(values[name]) / 1024 for name in ("Rss:", "Pss:"))


def seconds_of(pid):
    """Return the processor time of a process and its ended children."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def measure(directory, seconds):
    """Print the figures of the agent of node1."""
    layout = json.loads((directory / "vcluster.json").read_text())
    address = layout["nodes"][0]["address"]
    file = directory / "node1.vc.test/var/run/ganeti/ganeti-mond.pid"
    agent = int(file.read_text())
    children = pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    names = ("agent", "helper", "heartbeats")
    processes = dict(zip(names, [agent, *map(int, children)], strict=True))
    beats = directory / "shared/.ganeti-heartbeats"
    until("a heartbeat", beats.exists)
    before = {name: seconds_of(pid) for name, pid in processes.items()}
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        with urllib.request.urlopen(f"http://{address}:1815/metrics") as answer:
            size = len(answer.read())
        time.sleep(min(SCRAPE_S, seconds))
    took = time.monotonic() - began
    total = 0.0
    for name, pid in processes.items():
        rss, pss = sizes_of(pid)
        share = 100 * (seconds_of(pid) - before[name]) / took
        total += share
        goal = f"  (goal {GOALS[0]})" if name == "agent" else ""
        memory = f"RSS {rss:5.1f} MiB, PSS {pss:5.1f} MiB{goal}"
        print(f"{name:<12} {memory}, CPU {share:.2f} %")
    print(f"all          CPU {total:.2f} % of a core (goal {GOALS[1]})")
    print(f"metrics      {size} bytes")


def main():
    """Make the cluster, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--quick", action="store_true", help="5 instances, 30 s")
    args = parser.parse_args()
    if args.quick:
        args.instances, args.seconds = 5, 30
    with tempfile.TemporaryDirectory(prefix="gb", dir="/tmp") as name:
        directory = pathlib.Path(name, "vc")

        def vcluster(*words):
            command = [VCLUSTER, "-C", directory, *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        try:
            options = ("-n", "1", "--hypervisors", "fake", "--monitoring")
            vcluster("up", *options)
            for number in range(args.instances):
                vcluster("exec", "node1", *ADD, f"web{number}.vc.test")
            vcluster("exec", "node1", "gnt-cluster", "modify", "--node-death=yes")
            measure(directory, args.seconds)
        finally:
            vcluster("down")


if __name__ == "__main__":
    main()
