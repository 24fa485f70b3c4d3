"""Seeds of randomised tests that differ from day to day.

A failure names its seed, and a variable of the environment sets it, so that each failure
can be repeated on any day.
"""

import os
import time

#: Seeds of one day; more than one test plays.
_PER_DAY = 1000
_DAY_S = 86400


def of_today(variable):
    """Return the first seed: the value of a variable if it is set, else today's."""
    given = os.environ.get(variable)
    seed = int(given) if given else int(time.time() // _DAY_S) * _PER_DAY
    print(f"{variable}={seed}")
    return seed
