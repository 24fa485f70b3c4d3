"""Send a million wrong inputs to all that reads foreign bytes; nothing may break or grow.

Bodies of the remote API, values of all parameters of hypervisors, addresses, datagrams,
regular expressions, files that others leave on a node, and mutated messages of all
protocols. Each is refused with one sentence, or gives a canonical value. Nothing is
stored, no file is touched, no argument of a program gets split, memory does not grow.
"""

import argparse
import functools
import sys
import time
import traceback

from fakes import fuzz
from fakes.fuzz_targets import TARGETS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--quick", action="store_true", help="20,000 messages")
    names = {kind.__name__: kind for kind, _share in TARGETS}
    parser.add_argument("--only", choices=sorted(names), help="one target")
    args = parser.parse_args()
    targets = ((names[args.only], 100),) if args.only else TARGETS
    print(f"seed {args.seed}", flush=True)
    count = 20_000 if args.quick else args.count
    is_good = True
    for target in targets:
        try:
            fuzz.run(count, args.seed, [target], functools.partial(print, flush=True))
        except AssertionError:
            traceback.print_exc()
            is_good = False
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
