"""Time of one allocation: the solver in-process, the program, and another program.

Another allocator program that reads the same requests gets ten minutes per request.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from fakes import placement
from ganeti.decisions.htools.hail import answer

SIZES = ((100, 2000), (200, 4000), (1000, 10000))
TEMPLATES = ("drbd", "sharedfile")
REPEATS = 5
LIMIT_S = 600
PROGRAM = pathlib.Path(__file__).parents[2] / "build/bin/hail"


def big_request(nodes, instances, template):
    """Return a request on a filled cluster with room for failovers."""
    dice = random.Random(1)
    share = instances // nodes
    memory = share * 6000 + 8192
    hosts = {
        f"n{k}": placement.node(
            total_memory=memory,
            free_memory=memory - 1024,
            total_disk=share * 100000,
            free_disk=share * 100000,
            total_cpus=share + 8,
        )
        for k in range(nodes)
    }
    names = list(hosts)
    there = {
        f"i{k}": placement.instance(
            template,
            nodes=dice.sample(names, 2 if template == "drbd" else 1),
            memory=dice.choice([512, 1024, 2048]),
        )
        for k in range(instances)
    }
    return placement.request(hosts, placement.allocation(template), there)


def timed(call):
    """Return seconds and result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def program(path, file):
    """Return seconds and the answer of a program."""
    taken, done = timed(
        lambda: subprocess.run(
            [path, file], capture_output=True, check=True, timeout=LIMIT_S
        )
    )
    return taken, json.loads(done.stdout)


def main():
    """Measure all sizes."""
    parser = argparse.ArgumentParser("test/bench/run allocation", description=__doc__)
    parser.add_argument("other", nargs="?", help="path of another allocator program")
    other = parser.parse_args().other
    for template in TEMPLATES:
        for nodes, instances in SIZES:
            data = big_request(nodes, instances, template)
            runs = [
                timed(lambda: answer.solve(data, answer.SolverOptions()))  # noqa: B023
                for _ in range(REPEATS)
            ]
            actual = runs[0][1].answer
            best = min(taken for taken, _actual in runs)
            line = f"{template} {nodes} nodes, {instances} instances: {best:.3f} s"
            with tempfile.NamedTemporaryFile("w") as stream:
                json.dump(data, stream)
                stream.flush()
                line += f", program {program(PROGRAM, stream.name)[0]:.3f} s"
                if other:
                    taken, theirs = program(other, stream.name)
                    same = "same" if theirs == actual else "another"
                    line += f", other {taken:.3f} s ({same} answer)"
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


main()
