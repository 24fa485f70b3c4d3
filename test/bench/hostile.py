"""Send a million wrong inputs to all that reads foreign bytes; nothing may break or grow.

Bodies of the remote API, values of all parameters of hypervisors, addresses, datagrams,
regular expressions, files that others leave on a node, and mutated messages of all
protocols. Each is refused with one sentence, or gives a canonical value. Nothing is
stored, no file is touched, no argument of a program gets split, memory does not grow.
Each target has a process of its own; as many run at a time as there are processors.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import os
import sys
import time
import traceback

from fakes import fuzz
from fakes.fuzz_targets import TARGETS


def attack(target, count, seed):
    """Send a target its share of the messages; return whether nothing broke."""
    try:
        fuzz.run(count, seed, [target], functools.partial(print, flush=True))
    except AssertionError:
        traceback.print_exc()
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--quick", action="store_true", help="20,000 messages")
    names = {item[0].__name__: item for item in TARGETS}
    parser.add_argument("--only", choices=sorted(names), help="one target's share")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    count = 20_000 if args.quick else args.count
    with concurrent.futures.ProcessPoolExecutor(
        len(os.sched_getaffinity(0)),
        multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    ) as pool:
        runs = [
            pool.submit(attack, target, count, args.seed)
            for target in ([names[args.only]] if args.only else TARGETS)
        ]
    return 0 if all(run.result() for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
