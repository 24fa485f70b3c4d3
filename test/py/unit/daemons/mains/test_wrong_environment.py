"""A wrong environment is one message of each program, and no damaged configuration."""

import importlib

import pytest

from fakes import commands

WRONG = [
    ({"GANETI_ROOTDIR": "/tmp/x"}, "must be set together"),
    (
        {"GANETI_ROOTDIR": "/tmp/x", "GANETI_HOSTNAME": "n1"},
        "wanted an absolute path that ends in 'n1', the value of GANETI_HOSTNAME",
    ),
]


@pytest.mark.parametrize(("environ", "text"), WRONG)
@pytest.mark.parametrize("name", ["noded", "confd", "rapi", "standby", "masterd"])
def test_daemons_end_with_a_message(name, environ, text, monkeypatch, capsys):
    monkeypatch.setattr("os.environ", environ)
    monkeypatch.setattr("sys.argv", [f"ganeti-{name}"])
    main = importlib.import_module(f"ganeti.daemons.mains.{name}").main
    try:
        shown = f"{main()} {capsys.readouterr().err}"
    except SystemExit as end:
        shown = f"1 {end.code}"
    assert shown.startswith(f"1 ganeti-{name}: environment")
    assert text in shown
    assert "('" not in shown


@pytest.mark.parametrize(("environ", "text"), WRONG)
def test_commands_end_with_a_message(environ, text):
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert done.code == 1
    assert "error type: environment_error, error details:\nenvironment" in done.err
    assert text in done.err
