"""Play the fault matrix: each drill, or random pairs, on isolated nodes, with both stores.

Each store gets a cluster of five nodes with KVM guests under emulation; needs root. The
drills and their judgement are those of `vcluster drill`, see man/vcluster.rst.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

VCLUSTER = "build/bin/vcluster"
STORES = ("file", "etcd")


def play(store, words):
    """Play drills on a new cluster; return whether all passed."""
    directory = tempfile.mkdtemp(prefix="gv-", dir="/tmp")
    program = [VCLUSTER, "-C", directory]
    made = ("up", "-n", "5", "--isolated", "--monitoring", "--hypervisors", "kvm")
    try:
        subprocess.run([*program, *made, "--store", store], check=True)
        print(f"store {store}", flush=True)
        return subprocess.run([*program, "drill", *words], check=False).returncode == 0
    finally:
        subprocess.run([*program, "down"], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument(
        "--only", action="append", default=[], metavar="DRILL", help="default all"
    )
    parser.add_argument("--pairs", type=int, default=0, help="so many pairs instead")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--quick", action="store_true", help="two drills")
    args = parser.parse_args()
    words = args.only or (["freeze-early", "back-fenced"] if args.quick else [])
    if args.pairs:
        words = [f"--pairs={args.pairs}", f"--seed={args.seed}"]
    stores = STORES if args.store == "both" else (args.store,)
    passed = [play(store, words) for store in stores]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
