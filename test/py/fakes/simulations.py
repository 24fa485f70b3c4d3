"""Scenario folders of the simulator: reading, playing, comparing.

The order of sets decides which of two equal nodes is chosen, so runs that are compared
have a process with a fixed order, see `apart`.
"""

import json
import logging
import os
import pathlib
import subprocess
import sys

from ganeti.devel.sim import Simulation, description, events, random_runs

ROOT = pathlib.Path(__file__).parents[2] / "data" / "simulations"
RECORDS = bool(os.environ.get("RECORD_SIMULATIONS"))
#: Seconds that are simulated after the last event.
SETTLING_S = 1200.0
END = "end"


def names():
    return sorted(path.name for path in ROOT.iterdir() if path.is_dir())


def load(name):
    """Return description, events and simulated seconds of a scenario."""
    folder = ROOT / name
    described = description.read((folder / "config").read_bytes())
    lines = (folder / "events").read_text().splitlines()
    ends = [line.split()[0] for line in lines if line.split()[1:] == [END]]
    listed = events.parse_events(
        "\n".join(line for line in lines if line.split()[1:] != [END])
    )
    last = max((event.at_s for event in listed), default=0.0)
    seconds = events.duration(ends[0]) if ends else last + SETTLING_S
    return described, listed, seconds


def play(name, *, skips_idle=True):
    """Return the log of a scenario as text, and broken rules."""
    described, listed, seconds = load(name)
    report = Simulation(described, listed, skips_idle=skips_idle).run(seconds)
    lines = [str(line) for line in report.lines]
    lines += ["", f"{len(report.instances)} of {report.count} instances changed"]
    for end in report.instances:
        before, after = (
            ", ".join(place) or "nowhere" for place in (end.before, end.after)
        )
        why = f" ({end.reason})" if end.reason else ""
        lines.append(f"{end.name}: {before} -> {after}{why}")
    return "\n".join(lines) + "\n", report.problems


def apart(kind, *words):
    """Return what `main` prints for some words, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "fakes.simulations", kind, *map(str, words)],
        env=os.environ
        | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert not done.returncode, done.stderr[-3000:]
    return json.loads(done.stdout)


def main(kind, *words):
    """Print logs of scenarios, or broken rules of seeds, as JSON."""
    logging.disable(logging.CRITICAL)
    if kind == "seeds":
        seeds = range(*map(int, words))
        reports = {seed: random_runs.run(seed).problems for seed in seeds}
        return {seed: problems for seed, problems in reports.items() if problems}
    is_whole = kind == "whole"
    return {name: play(name, skips_idle=not is_whole) for name in words}


def expected(name):
    return (ROOT / name / "log.expect").read_text()


def record(name, text):
    (ROOT / name / "log.expect").write_text(text)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
