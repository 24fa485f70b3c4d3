"""Balancing made-up clusters: seconds and last score, beside an installed hbal.

``placement.py [SECONDS]`` gives the other program that long for each cluster (60). It
is looked for in the search path; without it only our figures are printed.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from placement_clusters import Shape, cluster

TOP = pathlib.Path(__file__).parents[2]
CASES = (
    Shape(20, 200),
    Shape(20, 200, "sharedfile"),
    Shape(20, 200, "plain"),
    Shape(20, 150, offline=2, mixed=True),
    Shape(100, 1000),
    Shape(500, 5000),
)
OURS_LIMIT = 600.0


def run(command, limit):
    """Run a program: seconds (None at the limit) and its plan's lines."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired as err:
        return None, (err.stdout or b"").decode().splitlines()
    return time.monotonic() - start, done.stdout.splitlines()


def figures(seconds, lines, limit):
    moves = sum(" => " in line for line in lines)
    improved = [re.search(r" to ([\d.]+)$", line) for line in lines]
    score = next((found.group(1) for found in improved if found), "-")
    took = f"over {limit:.0f} s" if seconds is None else f"{seconds:.2f} s"
    return f"{took}, {moves} moves, score {score}"


def compare(shape, seed, limit):
    peer = shutil.which("hbal")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "cluster.data")
        path.write_text(cluster(shape, seed))
        words = ["-t", str(path)]
        ours = run([str(TOP / "build/bin/hbal"), *words], OURS_LIMIT)
        theirs = run([peer, *words], limit) if peer else None
    print(f"{shape}, seed {seed}\n  ours: {figures(*ours, OURS_LIMIT)}")
    if theirs is None:
        return
    print(f"  other: {figures(*theirs, limit)}")
    plans = [[line for line in found[1] if " => " in line] for found in (ours, theirs)]
    shared = min(len(plans[0]), len(plans[1]))
    same = plans[0][:shared] == plans[1][:shared]
    ratio = (theirs[0] or limit) / ours[0] if ours[0] else 0.0
    sign = ">" if theirs[0] is None else "="
    print(f"  first {shared} moves the same: {same}; time ratio {sign} {ratio:.1f}")


def main():
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    for shape in CASES:
        for seed in (1, 2) if shape.nodes <= 20 else (1,):
            compare(shape, seed, limit)


if __name__ == "__main__":
    main()
