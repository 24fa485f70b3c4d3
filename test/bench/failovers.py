"""Move the master role again and again while clients submit jobs; count losses."""

import argparse
import shutil
import subprocess
import sys
import tempfile

from fakes import failovers
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl


class Cluster:
    """A virtual cluster as `failovers.run` wants it."""

    def __init__(self, directory):
        self.layout = lay.Layout.load(directory)
        self.control = NodeControl(self.layout, SystemRunner())

    def paths(self, name):
        return self.layout.paths(self.layout.node(name))

    def run(self, *argv, node):
        return self.control.run(self.layout.node(node), list(argv), timeout_s=180)


def vcluster(directory, *words):
    subprocess.run(["build/bin/vcluster", "-C", directory, *words], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="ten failovers")
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="gv-", dir="/tmp")
    try:
        vcluster(directory, "up", "-n", str(args.nodes), "--hypervisors", "fake")
        names = tuple(f"node{number + 1}" for number in range(args.nodes))
        count = 10 if args.quick else args.count
        figures = failovers.run(Cluster(directory), names, count, show=print)
    finally:
        vcluster(directory, "down")
        shutil.rmtree(directory, ignore_errors=True)
    print(figures, *figures.refused, sep="\n")
    return 0 if figures.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
