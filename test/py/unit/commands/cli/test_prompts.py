"""Questions that take more than a letter; test/data/client/questions.txt has others."""

import contextlib
import os
import pty
import termios
import types

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import open_terminal


def test_many_items_are_shown_on_request():
    master = FakeMaster()
    master.objects["instance"] = [
        {"name": f"web{n}.tst", "uuid": f"u{n}"} for n in range(30)
    ]
    done = commands.run("gnt-instance start --all", master, answers=["v\n", "n\n"])
    first, _, second = done.terminal.partition("y/v/[n]/?: ")
    assert "web29.tst" not in first
    assert "  web29.tst\n" in second
    assert done.code == 1


def node_add(monkeypatch, answers):
    """Run ``gnt-node add`` up to the request for SSH; return the run and the answer."""
    typed = []

    def refuse(_paths, request, *, feedback):
        typed.append(request.ask_password("root@n9.tst (192.0.2.9 port 22)"))
        raise errors.SshError("root@n9.tst: no key was accepted, tried none")

    monkeypatch.setattr("ganeti.bootstrap.node_add.join", refuse)
    master = FakeMaster()
    master.values["modify_ssh_setup"] = True
    return commands.run("gnt-node add n9.tst", master, answers=answers), typed


def test_a_refused_key_leads_to_the_question_for_a_password(monkeypatch):
    done, typed = node_add(monkeypatch, ["s3cret\n"])
    assert typed == ["s3cret"]
    assert done.terminal == "Password of root@n9.tst (192.0.2.9 port 22): \n"
    assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize("answers", [None, [], ["\n"]])
def test_without_a_password_a_refused_key_is_one_clear_error(monkeypatch, answers):
    done, typed = node_add(monkeypatch, answers)
    assert typed == [None]
    assert done.code == 1
    assert done.err.endswith(
        "Failure: SSH connection failed:\nroot@n9.tst: no key was accepted, tried none\n"
    )


def test_a_terminal_does_not_show_the_password():
    def echo():
        return termios.tcgetattr(theirs)[3] & termios.ECHO

    ours, theirs = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, ours)
        stack.callback(os.close, theirs)
        before = echo()
        terminal = open_terminal(os.ttyname(theirs))
        silent = []

        def readline():
            silent.append(echo())
            os.write(ours, b"s3cret\n")
            return type(terminal).readline(terminal)

        terminal.readline = readline
        context = types.SimpleNamespace(
            effects=types.SimpleNamespace(open_terminal=lambda: terminal)
        )
        assert prompts.password(context, "root@n9.tst") == "s3cret"
        assert silent == [0]
        assert echo() == before != 0
        shown = b""
        while not shown.endswith(b"\r\n"):
            shown += os.read(ours, 4096)
        assert shown == b"Password of root@n9.tst: \r\n"
