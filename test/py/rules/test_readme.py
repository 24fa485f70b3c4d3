"""README stays true: its commands, folders and libraries are those of the tree."""

import os
import pathlib
import re
import subprocess

TOP = pathlib.Path(__file__).parents[3]
TEXT = (TOP / "README").read_text()


def section(title):
    body = TEXT.split(f"\n{title}\n{'-' * len(title)}\n", 1)[1]
    return re.split(r"\n\n\n", body, maxsplit=1)[0]


def requirements():
    lines = (TOP / "requirements.txt").read_text().splitlines()
    names = [re.split(r"[><=]", line)[0] for line in lines if not line.startswith("#")]
    return {name.strip().lower() for name in names if name.strip()}


def test_the_two_commands_exist_and_can_be_run():
    for name in re.findall(r"^    (\w+/\w+)", section("Two commands"), re.MULTILINE):
        assert os.access(TOP / name, os.X_OK), name


def test_the_folders_are_those_of_the_tree():
    named = set(re.findall(r"^    (\w+) ", section("Where things are"), re.MULTILINE))
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {name.split("/")[0] for name in listed if "/" in name}
    assert named == {name for name in folders if not name.startswith(".")}


def test_every_library_is_named_with_its_reason():
    rows = section("Libraries").splitlines()
    named = {
        row.split()[0].lower() for row in rows if re.match(r"^    \S+ {2,}\S", row)
    }
    assert named - {"package"} == requirements()


def test_vcluster_knows_the_commands_that_are_shown():
    shown = re.findall(r"^    tools/vcluster (\w+)", TEXT, re.MULTILINE)
    usage = subprocess.run(
        [TOP / "tools" / "vcluster", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [word for word in shown if word not in usage] == []


def test_ci_runs_the_test_command_and_nothing_else():
    lines = (TOP / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ['exec "$(dirname "$0")/../test/run"']
