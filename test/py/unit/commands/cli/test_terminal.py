r"""Texts of nodes on the terminal: no control character arrives there."""

import io
import json
import logging

import pytest

from ganeti.base import errors, log
from ganeti.base.text import control_chars
from ganeti.commands.cli import app
from ganeti.commands.cli.context import ClientEffects, CommandContext
from ganeti.commands.cli.waiting import plans

EVIL = "a\x1b]0;owned\x07b\x9bc\x7fd\u202ee\r\bf"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def ctx(tmp_path):
    root = tmp_path / "n1"
    effects = ClientEffects(
        environ={"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1"},
        connect=lambda *_: None,
        stdout=Terminal(),
        stderr=Terminal(),
        stdin=io.StringIO(),
        open_terminal=lambda: None,
        now=lambda: 0.0,
    )
    program = type("Program", (), {"name": "gnt-x"})()
    return CommandContext(program, None, "x", effects=effects)


def controls(text):
    return [c for c in text if c not in "\n\t" and control_chars.is_control(c)]


def test_every_output_of_a_command_is_escaped(ctx):
    ctx.out(EVIL)
    ctx.out_lines([f"{EVIL}\tx", EVIL])
    ctx.err(EVIL)
    assert controls(ctx.effects.stdout.getvalue() + ctx.effects.stderr.getvalue()) == []
    assert ctx.effects.stdout.getvalue().count("owned") == 3
    ctx.progress(EVIL)
    shown = ctx.effects.stderr.getvalue().replace("\r", "")
    assert controls(shown) == []


def test_json_keeps_its_meaning(ctx):
    ctx.out(json.dumps({"text": EVIL}, ensure_ascii=False))
    shown = ctx.effects.stdout.getvalue()
    assert controls(shown) == []
    assert json.loads(shown) == {"text": EVIL}


def test_colours_are_the_only_sequences(ctx):
    app._complain(ctx, EVIL)
    error = ctx.effects.stderr.getvalue()
    assert error.startswith("\x1b[1;31m")
    assert controls(error) == ["\x1b", "\x1b"]
    painted = plans.Painter(is_coloured=True)("title", EVIL)
    assert controls(painted) == ["\x1b", "\x1b"]


def test_a_log_has_none_either(tmp_path):
    log.set_up("x", str(tmp_path / "x.log"))
    try:
        logging.getLogger().warning("node said %s", EVIL)
    finally:
        log.shut_down()
    text = (tmp_path / "x.log").read_text()
    assert "owned" in text
    assert controls(text) == []


def test_errors_of_nodes_are_escaped(ctx):
    app._complain(ctx, str(errors.OpExecError(EVIL)))
    assert "\x9b" not in ctx.effects.stderr.getvalue()
