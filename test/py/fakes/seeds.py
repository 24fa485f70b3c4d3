"""Seeds of randomised tests of the whole cluster.

Tests play the same seeds each time, so that a failure points at a change. A failure names
its seed, and a variable of the environment sets it; the benchmarks of the same names play
as many other seeds as they are asked for.
"""

import os


def given(variable, default):
    """Return the first seed: the value of a variable of the environment, or a default."""
    seed = int(os.environ.get(variable) or default)
    print(f"{variable}={seed}")
    return seed
