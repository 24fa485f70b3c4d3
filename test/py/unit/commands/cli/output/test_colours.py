"""Colours of listings: on terminals or as asked, never more than the words say."""

import re

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.commands.cli.output import colours

GREEN, RED, PLAIN = "\033[32m", "\033[1;31m", "\033[0m"
SEQUENCE = re.compile(r"\033\[[0-9;]*m")


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.objects["instance"] = [
        {"name": "web1", "status": "running", "oper_ram": 512},
        {"name": "web22\033[2J", "status": "ERROR_down", "oper_ram": (2, None)},
    ]
    fake.objects["node"] = [
        {"name": "n1", "role": "M", "offline": False, "drained": False},
        {"name": "n2", "role": "O", "offline": True, "drained": False},
    ]
    fake.objects["job"] = [{"id": 7, "status": "error", "summary": ["X"]}]
    return fake


LIST = "gnt-instance list -o name,status,oper_ram"


def test_a_terminal_gets_the_text_of_a_pipe_with_colours(master):
    piped = commands.run(LIST, master)
    shown = commands.run(LIST, master, tty=True)
    assert "\033" not in piped.out
    assert f"{GREEN}running{PLAIN}    " in shown.out
    assert f"{RED}ERROR_down{PLAIN} " in shown.out
    # The sequence in the name of an instance stays a text.
    assert "web22\\x1b[2J" in shown.out
    assert SEQUENCE.sub("", shown.out) == piped.out


@pytest.mark.parametrize("line", [f"{LIST} --separator=:", f"{LIST} --no-headers"])
def test_forms_of_tables_have_colours_too(master, line):
    piped = commands.run(line, master)
    shown = commands.run(line, master, tty=True)
    assert RED in shown.out
    assert SEQUENCE.sub("", shown.out) == piped.out


@pytest.mark.parametrize(
    ("option", "environ", "tty", "is_coloured"),
    [
        ("", {}, False, False),
        ("", {}, True, True),
        ("", {"NO_COLOR": "1"}, True, False),
        ("", {"NO_COLOR": ""}, True, True),
        ("", {"TERM": "dumb"}, True, False),
        (" --color=auto", {}, False, False),
        (" --color=never", {}, True, False),
        (" --color=always", {}, False, True),
        (" --color=always", {"NO_COLOR": "1"}, False, True),
    ],
)
def test_who_wants_colours_gets_them(master, option, environ, tty, is_coloured):
    line = LIST.replace(" list", f" list{option}")
    done = commands.run(line, master, environ=environ, tty=tty)
    assert ("\033[" in done.out) == is_coloured
    assert "\033" not in done.err


def test_another_word_is_refused(master):
    done = commands.run("gnt-instance list --color=blue", master)
    assert done.code == 2
    assert "blue" in done.err


def test_errors_go_by_their_own_stream(master):
    words = " list --color=always -o name nosuch"
    done = commands.run(f"gnt-instance{words}", master)
    assert done.code == 1
    assert "\033" not in done.err
    done = commands.run(
        f"gnt-instance{words}".replace("always", "never"), master, tty=1
    )
    assert "\033" not in done.err
    done = commands.run(f"gnt-instance{words}".replace("always", "auto"), master, tty=1)
    assert done.err.startswith(RED)


def test_nodes_have_their_role_on_a_terminal_alone(master):
    line = "gnt-node list -o name,offline"
    assert "\033[33mY" in commands.run(line, master, tty=True).out
    default = "gnt-node list"
    assert "Role" not in commands.run(default, master).out
    shown = commands.run(default, master, tty=True).out
    assert "Role" in shown
    assert f"\033[1mM{PLAIN}" in shown
    assert f"{RED}O{PLAIN}" in shown
    assert "role" not in commands.run(f"{default} --json", master, tty=True).out


def test_jobs_have_colours(master):
    shown = commands.run("gnt-job list", master, tty=True).out
    assert f"{RED}error{PLAIN}" in shown


def test_blanks_are_left_and_control_characters_escaped():
    paint = colours.Painter(is_coloured=True)
    assert paint("good", "  a\033b ") == f"  {GREEN}a\\x1bb{PLAIN} "
    assert paint("good", "   ") == "   "
    assert paint("", "a\033") == "a\\x1b"
    assert colours.Painter(is_coloured=False)("good", "a\033") == "a\\x1b"


def test_no_word_has_two_styles():
    words = [word for words in colours._WORDS.values() for word in words.split()]
    assert len(words) == len(set(words))
    assert set(colours._WORDS) <= set(colours._SEQUENCES)
