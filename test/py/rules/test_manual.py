"""Manual pages and completion against the command tables."""

import importlib
import pathlib
import re
import subprocess

import pytest

from ganeti.cli import manual

TOP = pathlib.Path(__file__).parents[3]
ROWS = (TOP / "autotools" / "programs").read_text().splitlines()
NAMES = [row.split()[0] for row in ROWS if row.startswith("gnt-")]


def program(name):
    return importlib.import_module(f"ganeti.client.{name[4:]}.table").PROGRAM


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_every_command_and_option_that_is_offered(name):
    text = manual.page(program(name), "", "0").replace("\\", "")
    for command in program(name).offered():
        assert f"\n{command.name.upper()}\n" in text
        for option in command.options:
            assert all(spelling in text for spelling in option.names)


def test_prose_names_only_options_that_exist():
    for name in NAMES:
        prose = TOP / "man" / f"{name}.rst"
        if not prose.exists():
            continue
        known = {
            spelling
            for command in program(name).offered()
            for option in command.options
            for spelling in option.names
        }
        named = set(re.findall(r"``(--[a-z-]+)``", prose.read_text()))
        assert named <= known, name


def test_completion_is_valid_shell_and_completes_commands_and_options():
    script = manual.bash_completion([program(name) for name in NAMES])
    ask = (
        '\nCOMP_WORDS=(gnt-instance sta) COMP_CWORD=1; _gnt_instance; echo "${COMPREPLY[@]}"'
        "\nCOMP_WORDS=(gnt-instance startup --force-m) COMP_CWORD=2; _gnt_instance;"
        ' echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash"], input=script + ask, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["start startup", "--force-multiple"]
