"""The walkthrough of the documentation, run as it is printed.

The page is the script: every console block of ``doc/walkthrough.rst`` is played in order
on one new cluster. ``host$`` commands run here, ``nodeN#`` commands on that node, both in
a shell with stderr on stdout. Expected text is compared line by line: ``...`` in a line
matches any text, a line of ``...`` matches any lines, a run of blanks any number of them.
"""

import os
import pathlib
import re
import subprocess
import typing

import pytest

from fakes.pages import blocks, first_difference, pattern_of
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl

pytestmark = pytest.mark.daemon
TOP = pathlib.Path(__file__).resolve().parents[3]
PAGE = TOP / "doc" / "walkthrough.rst"
PROMPT = re.compile(r"(host)\$ (.*)|(node\d)# (.*)")
#: Longest time of one command, in seconds; starting three nodes takes longest.
COMMAND_S = 240


class Step(typing.NamedTuple):
    """One command of the page with the lines that it should print."""

    place: str
    command: str
    expected: list[str]


def steps_of(text):
    """Return the steps of a page in order."""
    steps = []
    for block in blocks(text):
        for line in block:
            if match := PROMPT.fullmatch(line):
                place, command = (group for group in match.groups() if group)
                steps.append(Step(place, command, []))
            else:
                steps[-1].expected.append(line)
    return steps


class Player:
    """Runs the commands of the page in one directory."""

    def __init__(self, directory):
        self._directory = directory

    def run(self, step):
        """Return exit code and output of a step."""
        argv = ["bash", "-c", f"{{ {step.command}\n}} 2>&1"]
        if step.place != "host":
            layout = lay.Layout.load(self._directory)
            control = NodeControl(layout, SystemRunner())
            done = control.run(layout.node(step.place), argv, timeout_s=COMMAND_S)
            return done.code, done.stdout
        env = {**os.environ, "VCLUSTER_DIR": self._directory}
        done = subprocess.run(
            argv,
            cwd=TOP,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.returncode, done.stdout


def test_every_command_of_the_walkthrough_prints_its_output(directory):
    steps = steps_of(PAGE.read_text())
    assert len(steps) > 30
    player = Player(directory)
    for step in steps:
        code, output = player.run(step)
        text = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        shown = f"{step.place}: {step.command}\n{text}"
        assert code == 0, shown
        if not re.fullmatch(pattern_of(step.expected), text):
            pytest.fail(f"{first_difference(step.expected, text)}\n{shown}")


@pytest.mark.parametrize(
    ("expected", "output", "is_match"),
    [
        ([], "", True),
        ([], "more\n", False),
        (["a", "b"], "a\nb\n", True),
        (["a"], "a\nb\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["...", "c"], "c\n", True),
        (["...", "c"], "a\nb\n", False),
        (["up after ... s"], "up after 7.4 s\n", True),
        (["Node Pinst", "n1   1"], "Node   Pinst\nn1 1\n", True),
        ([" - x"], "- x\n", False),
        (["a.c"], "abc\n", False),
    ],
)
def test_outputs_are_compared_as_the_page_says(expected, output, is_match):
    assert bool(re.fullmatch(pattern_of(expected), output)) == is_match
