"""End daemons at durable acts of a workload, and cut the power; count what is lost."""

import argparse
import sys
import time

from fakes import crash_points, crash_points_etcd

CLUSTERS = {
    "file": crash_points.CrashCluster,
    "etcd": crash_points_etcd.EtcdCrashCluster,
}


def _share(text):
    percent = int(text)
    if not 0 <= percent <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 100")
    return percent / 100


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--clusters", type=int, default=2, help="at the same time")
    parser.add_argument(
        "--power-cuts",
        type=_share,
        default=crash_points.POWER_CUTS,
        metavar="PERCENT",
        help="share of the points at which all nodes lose power and unsynced data",
    )
    parser.add_argument("--store", choices=CLUSTERS, default="file")
    parser.add_argument("--quick", action="store_true", help="20 points")
    args = parser.parse_args()
    count = 20 if args.quick else args.count
    print(f"seed {args.seed}", flush=True)
    began = time.monotonic()
    reached = crash_points.run(
        count,
        args.seed,
        lambda text: print(text, flush=True),
        make=CLUSTERS[args.store],
        clusters=args.clusters,
        power_cuts=args.power_cuts,
    )
    spent = time.monotonic() - began
    print(f"{reached.total()} points in {spent:.0f} s, nothing lost: {dict(reached)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
