"""Send mutated messages to every decoder of foreign bytes; nothing may break or grow.

With --only Expressions: generated regular expressions to all that evaluates those of users.
With --only Values: generated values of parameters to their checks and builders.
"""

import argparse
import sys
import time

from fakes import fuzz, hostile_values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--quick", action="store_true", help="20,000 messages")
    known = (*fuzz.TARGETS, (hostile_values.Values, 5))
    names = {kind.__name__: kind for kind, _share in known}
    parser.add_argument("--only", choices=sorted(names), help="one target")
    args = parser.parse_args()
    targets = ((names[args.only], 100),) if args.only else known
    print(f"seed {args.seed}", flush=True)
    fuzz.run(20_000 if args.quick else args.count, args.seed, print, targets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
