"""Random operations about reservations on the real engine: is any commit refused?

Runs the logical units, the processor, locks and configuration over a store in memory and
nodes of finite memory and space, see ``fakes.reservation_walk``. Ends with 1 at the first
rule that does not hold, and prints the last operations. The same --seed repeats a run if
PYTHONHASHSEED is the same, too.
"""

import argparse
import sys
import time

from fakes.reservation_walk import Broken, Walk


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="2,000 steps")
    options = parser.parse_args()
    steps = 2000 if options.quick else options.steps
    began, made = time.process_time(), Walk(options.seed, options.nodes)
    try:
        for number in range(1, steps + 1):
            made.step()
            del made.history[:-20]
            if number % 500 == 0:
                made.verify()
            if number % 10_000 == 0:
                print(f"{number} steps, {_seconds(began)}", flush=True)
    except Broken as err:
        print(f"seed {options.seed}, step {number}: {err}")
        for wire in made.history:
            print(wire)
        return 1
    made.verify()
    print(f"{steps} steps of seed {options.seed}, {_seconds(began)}, no rule broken")
    for op_id in sorted(made.done | made.refused):
        print(f"  {op_id:28} {made.done[op_id]:7} done {made.refused[op_id]:7} refused")
    print(
        f"  {'commits inside a reservation':28} {made.commits:7} done       0 refused"
    )
    return 0


def _seconds(began):
    return f"{time.process_time() - began:.0f} s of CPU time"


if __name__ == "__main__":
    sys.exit(main())
