"""Questions: who is asked what, and what happens when the answer is no."""

import contextlib
import os
import pty
import termios
import types

import pytest

from fakes import commands
from fakes.luxi_master import SUCCESSFUL_OPCODES, FakeMaster
from ganeti.base import errors
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import open_terminal


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.results.update(SUCCESSFUL_OPCODES)
    fake.objects["instance"] = [
        {"name": f"web{n}.tst", "uuid": f"u{n}"} for n in range(30)
    ]
    fake.objects["node"] = [
        {
            "name": "n1.tst",
            "uuid": "nu1",
            "pinst_list": ["web1.tst"],
            "sinst_list": [],
        }
    ]
    fake.values["cluster_name"] = "c.tst"
    return fake


DECLINED = {
    "gnt-cluster rename new.tst": 1,
    "gnt-cluster deactivate-master-ip": 1,
    "gnt-node powercycle n1": 2,
    "gnt-node modify -O no n1": 1,
    "gnt-instance remove web1": 1,
    "gnt-instance failover web1": 1,
    "gnt-instance migrate web1": 1,
    "gnt-instance modify --net 0:modify,mac=generate web1": 1,
    "gnt-instance reinstall web1": 1,
    "gnt-instance startup web1 web2": 1,
    "gnt-instance shutdown --all": 1,
    "gnt-job cancel --pending": 13,
    "gnt-job change-priority --priority low --queued": 13,
}


@pytest.mark.parametrize(("line", "code"), DECLINED.items())
def test_without_a_terminal_the_answer_is_no(master, line, code):
    master.objects["job"] = [{"id": 7, "status": "queued", "summary": ["X"]}]
    done = commands.run(line, master)
    assert done.code == code
    assert done.err.startswith(
        "Not confirmed, because there is no terminal for the question: "
    )
    assert done.err.count("\n") == 1
    assert not master.jobs


@pytest.mark.parametrize("line", [k for k in DECLINED if not k.startswith("gnt-job")])
def test_yes_goes_on(master, line):
    done = commands.run(line, master, answers=["y\n"])
    assert done.code == 0
    assert done.terminal.endswith("y/[n]/?: ") or "y/v/[n]/?: " in done.terminal
    assert master.jobs


def test_only_letters_of_choices_count(master):
    done = commands.run(
        "gnt-instance remove web1", master, answers=["\n", "yes\n", "?\n", "Y\n"]
    )
    assert done.code == 0
    assert done.terminal.count("y/[n]/?: ") == 4
    assert "\n y - " not in done.terminal.split("?: ")[0]
    assert " y - " in done.terminal
    assert all(len(line) <= 70 for line in done.terminal.splitlines())


def test_an_operation_lists_what_it_is_about(master):
    done = commands.run("gnt-instance start web1 web2", master, answers=["n\n"])
    assert done.code == 1
    assert done.terminal == (
        "The startup will operate on 2 instances.\nDo you want to continue?\n\n"
        "Affected instances:\n  web1.tst\n  web2.tst\ny/[n]/?: "
    )


def test_many_items_are_shown_on_request(master):
    done = commands.run("gnt-instance start --all", master, answers=["v\n", "n\n"])
    first, _, second = done.terminal.partition("y/v/[n]/?: ")
    assert "web29.tst" not in first
    assert "  web29.tst\n" in second
    assert done.code == 1


def test_ignoring_consistency_asks_at_a_terminal_even_with_force(master):
    line = "gnt-instance failover -f --ignore-consistency web1"
    assert commands.run(line, master, answers=["n\n"]).code == 1
    assert commands.run(line, master, answers=["y\n"]).code == 0
    # A script has no terminal.
    assert commands.run(line, master).code == 0


def test_destroy_refuses_without_its_option(master):
    done = commands.run("gnt-cluster destroy", master)
    assert done.code == 1
    assert "--yes-do-it" in done.err


def test_cancel_by_status_shows_the_jobs_first(master):
    master.objects["job"] = [{"id": 7, "status": "queued", "summary": ["X"]}]
    master.jobs[7] = []
    done = commands.run("gnt-job cancel --queued", master, answers=["y\n"])
    assert done.code == 0
    assert done.out == "ID Status Summary\n 7 queued X\nJob 7 canceled\n"


def test_nobody_is_asked_about_a_node_that_is_not_there(master):
    done = commands.run("gnt-node powercycle nowhere", master, answers=["y\n"])
    assert done.code == 1
    assert "nowhere" in done.err
    assert "hard powercycle" not in done.terminal
    assert not master.jobs


def node_add(monkeypatch, master, answers):
    """Run ``gnt-node add`` up to the request for SSH; return the run and the answer."""
    typed = []

    def refuse(_paths, request, *, feedback):
        typed.append(request.ask_password("root@n9.tst (192.0.2.9 port 22)"))
        raise errors.SshError("root@n9.tst: no key was accepted, tried none")

    monkeypatch.setattr("ganeti.bootstrap.node_add.join", refuse)
    master.values["modify_ssh_setup"] = True
    return commands.run("gnt-node add n9.tst", master, answers=answers), typed


def test_a_refused_key_leads_to_the_question_for_a_password(monkeypatch, master):
    done, typed = node_add(monkeypatch, master, ["s3cret\n"])
    assert typed == ["s3cret"]
    assert done.terminal == "Password of root@n9.tst (192.0.2.9 port 22): \n"
    assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize("answers", [None, [], ["\n"]])
def test_without_a_password_a_refused_key_is_one_clear_error(
    monkeypatch, master, answers
):
    done, typed = node_add(monkeypatch, master, answers)
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
