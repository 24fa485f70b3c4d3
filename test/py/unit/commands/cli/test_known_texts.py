"""Texts that scripts parse, and errors about commands that do not exist."""

import pytest

from fakes import client_cluster, commands
from fakes.luxi_master import FakeMaster
from ganeti.commands.cli.help import usage
from ganeti.commands.cluster import remote


@pytest.mark.parametrize(
    ("words", "shown"), [("web2 db1", ["web2", "db1"]), ("--all", ["db1", "web2"])]
)
def test_info_shows_named_instances_in_the_order_of_the_names(words, shown) -> None:
    master = client_cluster.master()
    (record,) = master.results["OP_INSTANCE_QUERY_DATA"].values()
    answer = {name: record | {"name": name} for name in ("web2", "db1")}
    master.results["OP_INSTANCE_QUERY_DATA"] = answer
    done = commands.run(f"gnt-instance info {words}", master)
    heads = [line for line in done.out.splitlines() if line.startswith("- Inst")]
    assert heads == [f"- Instance name: {name}" for name in shown]


@pytest.mark.parametrize(
    ("output", "lines"),
    [("hello\n", ["hello", ""]), ("hello", ["hello"]), ("", [""])],
)
def test_outputs_of_commands_keep_their_last_newline(
    monkeypatch, output, lines
) -> None:
    monkeypatch.setattr(remote, "_run_on", lambda *_args: (0, output))
    node = {"name": "n1", "offline": False, "pip": "192.0.2.1", "sip": "192.0.2.1"}
    master = FakeMaster()
    master.objects["node"] = [{**node, "ndp/ssh_port": 22}]
    master.values = {"cluster_name": "c", "master_node": "n1"}
    done = commands.run("gnt-cluster command true", master)
    assert done.out.splitlines() == [
        "-" * 48,
        "node: n1",
        *lines,
        "return code = 0",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("gnt-instance strat", "unknown command 'strat'; did you mean startup?"),
        ("gnt-cluster mastr-ping", "unknown command 'mastr-ping'; did you mean"),
        ("gnt-job qqqq", "unknown command 'qqqq'\n"),
        (["gnt-job", "\033[2J"], r"unknown command '\x1b[2J'"),
    ],
)
def test_an_unknown_command_gets_the_nearest_one_and_the_list(line, text) -> None:
    done = commands.run(line)
    name = line[0] if isinstance(line, list) else line.split()[0]
    assert (done.code, done.out) == (1, commands.run(name).out)
    assert done.out.startswith("Usage: ")
    assert f"error: {text}" in done.err
    assert done.err.count("\n") == 2
    assert "--help' lists all commands" in done.err


def test_synopses_name_their_arguments() -> None:
    program = commands.program("gnt-instance")
    shown = {command.name: usage.synopsis(program, command) for command in program[2]}
    assert shown["grow-disk"].endswith("<instance> <disk> <amount>")
    assert shown["add-tags"].endswith("<instance> [<tag>...]")
    assert shown["rename"].endswith("<instance> <new-name>")


def test_an_argument_that_is_no_text_is_refused_before_anything_happens():
    master = FakeMaster()
    done = commands.run("gnt-instance remove web\udcff", master)
    assert (done.code, done.out) == (1, "")
    assert done.err == "Error: wanted arguments in UTF-8, found 'web\\udcff'\n"
    assert not master.calls
