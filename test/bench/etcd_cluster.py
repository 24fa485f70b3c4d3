"""Kill and freeze masters of clusters with etcd, and its servers; time the takeovers."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

from fakes import takeovers
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl

#: Seconds from the fault to the first accepted job; 95 % must reach it.
GOAL_S = 10.0


class Cluster:
    """A virtual cluster as `takeovers.run` wants it."""

    def __init__(self, directory):
        self.layout = lay.Layout.load(directory)
        self.control = NodeControl(self.layout, SystemRunner())

    def paths(self, name):
        return self.layout.paths(self.layout.node(name))


def vcluster(directory, *words):
    subprocess.run(["build/bin/vcluster", "-C", directory, *words], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--quick", action="store_true", help="five takeovers")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="gv-", dir="/tmp")

    def etcd(action, number):
        vcluster(directory, "etcd", action, str(number))

    try:
        options = ("--hypervisors", "fake", "--store", "etcd")
        vcluster(directory, "up", "-n", "3", *options)
        figures = takeovers.run(
            Cluster(directory),
            ("node1", "node2", "node3"),
            5 if args.quick else args.count,
            args.seed,
            etcd=etcd,
            show=lambda text: print(text, flush=True),
        )
    finally:
        vcluster(directory, "down")
        shutil.rmtree(directory, ignore_errors=True)
    late = sorted(figures.seconds)[int(len(figures.seconds) * 0.95)]
    print(f"{figures} (p95 at most {GOAL_S:g} s)")
    return 0 if figures.is_good and late <= GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
