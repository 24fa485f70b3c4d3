"""Random simulations of all automatons: is any of their rules broken?

Plays the real rounds, jobs and logical units on simulated machines with random faults,
see `ganeti.devel.sim`. Ends with 1 if a rule was broken; prints the seed and its events, and
with a single seed the whole timeline. A run takes about 0.2 seconds of a core.
"""

import argparse
import logging
import os
import sys
import time

from ganeti.devel.sim import random_runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", default="0..2000", help="first and last seed, such as 0..20000"
    )
    parser.add_argument("--quick", action="store_true", help="50 seeds")
    options = parser.parse_args()
    first, _dots, last = options.seeds.partition("..")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        parser.error(f"--seeds: wanted two numbers, found {options.seeds!r}")
    seeds = range(50) if options.quick else range(int(first), int(last) + 1)
    logging.disable(logging.CRITICAL)
    began, broken = time.process_time(), 0
    for number, seed in enumerate(seeds, 1):
        report = random_runs.run(seed)
        if len(seeds) == 1:
            print("\n".join(map(str, report.lines)))
        if report.problems:
            broken += 1
            print(f"seed {seed}: {'; '.join(report.problems)}", flush=True)
            for event in random_runs.events(seed, random_runs.cluster(seed)):
                print(f"  {event.at_s:.1f} {event}")
        if number % 1000 == 0:
            print(f"{number} seeds, {broken} with broken rules", flush=True)
    seconds = time.process_time() - began
    hours = len(seeds) * random_runs.TOTAL_S / 3600
    print(
        f"{len(seeds)} seeds, {hours:.0f} simulated hours, {seconds:.0f} s of a core;"
        f" {broken} with broken rules"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        # The order of sets decides which of two equal nodes is chosen.
        environ = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environ)
    sys.exit(main())
