"""Steps of long scenarios, with the time that each one took."""

import time


def timed(step, *args):
    """Do a step; print its name and its time, which `pytest -rP` shows."""
    begin = time.monotonic()
    step(*args)
    name = step.__name__.strip("_").replace("_", " ")
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
