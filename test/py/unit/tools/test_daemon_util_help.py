"""The help of daemon-util lists its verbs and no others."""

import pathlib
import re
import subprocess

SCRIPT = pathlib.Path(__file__).parents[4] / "daemons" / "daemon-util.in"


def test_help_lists_every_verb_and_starts_nothing():
    source = SCRIPT.read_text()
    verbs = {
        name.replace("_", "-")
        for name in re.findall(r"^cmd_(\w+)\(\)", source, re.MULTILINE)
    }
    for option in ("--help", "-h"):
        done = subprocess.run(
            ["sh", SCRIPT, option], capture_output=True, text=True, check=True
        )
        rows = re.findall(r"^  (\S.*?)(?:  |$)", done.stdout, re.MULTILINE)
        listed = {
            word
            for row in rows
            for word in re.findall(r"(?<![\w\[-])[a-z][a-z-]+", row)
        }
        assert listed == verbs
        assert done.stderr == ""


def test_an_unknown_verb_prints_the_usage_and_fails():
    done = subprocess.run(
        ["sh", SCRIPT, "begin"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Usage: daemon-util VERB [ARGUMENT...]\n"
