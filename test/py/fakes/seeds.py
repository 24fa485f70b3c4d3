"""Seeds of randomised tests of the whole cluster.

Each commit plays other seeds, and repeated runs of one commit play the same ones. A failure
names its seed, and a variable of the environment sets it; the benchmarks of the same names
play as many other seeds as they are asked for.
"""

import datetime as dt
import os
import pathlib
import subprocess

#: Of the examples of property tests, one in so many is drawn.
EXAMPLES_ONE_IN = "EXAMPLES_ONE_IN"

TOP = pathlib.Path(__file__).resolve().parents[3]


def given(variable):
    """Return the first seed: the value of a variable of the environment, or of the commit."""
    seed = int(os.environ.get(variable) or of_tree(TOP))
    print(f"{variable}={seed}")
    return seed


def of_tree(top):
    """Return a seed from the commit of a tree; of today, if the tree has no commits."""
    command = ["git", "-C", top, "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return dt.datetime.now(tz=dt.UTC).date().toordinal() * 1000
    return int(done.stdout[:7], 16)


def examples(count):
    """Return how many examples of a property test this run draws, of a number of all."""
    return -(-count // int(os.environ.get(EXAMPLES_ONE_IN, "1")))
