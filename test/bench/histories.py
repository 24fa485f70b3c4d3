"""Play seeded histories of faults on isolated clusters; check each one by machine."""

import argparse
import sys
import time

from fakes.histories import play


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 10**9 % 10**7)
    parser.add_argument("--clusters", type=int, default=4, help="at the same time")
    parser.add_argument("--nodes", type=int, help="one size only")
    parser.add_argument("--candidates", type=int, help="with --nodes")
    parser.add_argument("--store", choices=("file", "etcd"), default="file")
    parser.add_argument("--minutes", type=float, help="begin no history after this")
    parser.add_argument("--quick", action="store_true", help="four histories")
    args = parser.parse_args()
    count = 4 if args.quick else args.count
    print(f"seed {args.seed}", flush=True)
    sizes = play.SIZES
    if args.nodes:
        sizes = [(args.nodes, args.candidates or args.nodes)]
    figures, texts = play.run(
        count,
        args.seed,
        sizes,
        store=args.store,
        beside=min(args.clusters, len(sizes)),
        minutes=args.minutes,
        keep_going=True,
        show=lambda text: print(text, flush=True),
    )
    print(figures)
    print(f"{len(texts)} histories with a violation")
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
