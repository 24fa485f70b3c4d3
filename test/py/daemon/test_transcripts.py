"""Exact output of commands over the scripted life of a cluster.

The files below ``test/data/transcripts`` hold commands, what they print, and their exit
codes. All are played in the order of their names on one new cluster, so that even job
numbers are the same each time. What differs between two machines or two days is masked.
Which of several running jobs is watched first depends on the moment, so no command here
starts two that run at once. With ``RECORD_TRANSCRIPTS=1`` in the
environment the files are written again.
"""

import os
import pathlib
import re
import shlex

import pytest

pytestmark = pytest.mark.daemon
TOP = pathlib.Path(__file__).resolve().parents[3]
TRANSCRIPTS = sorted((TOP / "test/data/transcripts").glob("*.txt"))

#: Masked pattern -> replacement; widths are kept where columns depend on them.
MASKS = [
    (
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
    ),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2000-01-01 00:00:00"),
    (r"00:00:00\.\d{6}", "00:00:00.000000"),
    (
        r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
        "Sat Jan  1 00:00:00 2000",
    ),
    (r"delta \d+\.\d+s", "delta 0.0s"),
    (r"time: \d+\.\d+ seconds", "time: 0.0 seconds"),
    (r"\b127\.\d+\.\d+\.(\d+)\b", r"127.0.0.\1"),
    (r"\baa:00:00(:[0-9a-f]{2}){3}", "aa:00:00:00:00:00"),
    (r"\b\d{19}\b", "1" * 19),
    (r"\((x86_64|aarch64)\)", "(machine)"),
    (r"revision of the master: \d+", "revision of the master: 1"),
    # Another candidate may be a moment behind the majority.
    (r"(node\d\.vc\.test): \d+ revisions behind( \(.*\))?", r"\1: current"),
]


def masked(text, cluster):
    text = text.replace(str(cluster.directory), "/ROOT").replace(str(TOP), "/TOP")
    for pattern, by in MASKS:
        text = re.sub(pattern, by, text)
    return text


def commands(path):
    """Return the commands of a transcript."""
    lines = path.read_text().splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def play(cluster, command):
    """Return what a terminal would show; lines of stderr are marked."""
    done = cluster.run(*shlex.split(command))
    shown = [f"$ {command}", *done.stdout.splitlines()]
    shown += [f"! {line}" for line in done.stderr.splitlines()]
    if done.code:
        shown.append(f"[exit {done.code}]")
    return masked("\n".join(shown), cluster)


def test_commands_print_what_they_always_printed(cluster_of):
    assert TRANSCRIPTS
    cluster = cluster_of(3)
    for path in TRANSCRIPTS:
        shown = "\n\n".join(play(cluster, command) for command in commands(path)) + "\n"
        if os.environ.get("RECORD_TRANSCRIPTS"):
            path.write_text(shown)
        assert shown == path.read_text(), path.name
