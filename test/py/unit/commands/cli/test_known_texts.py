"""Texts that scripts parse, and errors about commands that do not exist."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cli.help import usage
from ganeti.commands.cluster import remote


def details(name):
    """Return an instance in the answer of OP_INSTANCE_QUERY_DATA, without devices."""
    group = {"pnode_group_name": "default", "pnode_group_uuid": "g"}
    empty = ("os_actual", "os_instance", "hv_actual", "hv_instance")
    empty += ("be_actual", "be_instance", "diskparams")
    lists = ("snodes", "snodes_group_names", "snodes_group_uuids", "nics", "disks")
    lists += ("nics_own",)
    return {
        **dict.fromkeys(("ctime", "mtime", "serial_no"), 1),
        **{key: {} for key in empty},
        **{key: [] for key in lists},
        **group,
        "name": name,
        "uuid": name,
        "pnode": "n1",
        "os": "tiny",
        "config_state": "up",
        "run_state": "up",
        "network_port": None,
        "hypervisor": "fake",
        "disk_template": "diskless",
    }


@pytest.mark.parametrize(
    ("words", "shown"), [("web2 db1", ["web2", "db1"]), ("--all", ["db1", "web2"])]
)
def test_info_shows_named_instances_in_the_order_of_the_names(words, shown) -> None:
    master = FakeMaster()
    answer = {name: details(name) for name in ("web2", "db1")}
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


def test_tags_of_groups_are_a_list_and_tags_of_nodes_are_joined() -> None:
    master = FakeMaster()
    master.objects["group"] = [{"name": "default", "tags": ["a", "b"]}]
    master.objects["node"] = [{"name": "n1", "tags": ["a", "b"]}]
    for program, shown in (("gnt-group", "['a', 'b']"), ("gnt-node", "a,b")):
        done = commands.run(f"{program} list --no-headers -o tags", master)
        assert done.out == f"{shown}\n"


def test_times_of_opcodes_have_microseconds() -> None:
    master = FakeMaster()
    stamps = [[1_700_000_000, 42], None]
    master.objects["job"] = [{"id": 5, "opstart": stamps}]
    done = commands.run("gnt-job list --no-headers -o opstart 5", master)
    assert done.out.endswith(":20.000042', 'N/A']\n")


def test_changes_of_an_instance_stand_in_columns() -> None:
    master = FakeMaster()
    master.results["OP_INSTANCE_SET_PARAMS"] = [["os", "b"], ["be/vcpus", 2]]
    done = commands.run("gnt-instance modify -o b web1", master)
    assert done.out.splitlines()[:3] == [
        "Modified instance web1",
        " - os    -> b",
        " - be/vcpus -> 2",
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


def _three():
    master = FakeMaster()
    master.objects["instance"] = [{"name": f"web{k}.tst"} for k in (1, 2, 3)]
    return master


def _requests(master):
    return [
        (op.op_id(), op.instance_name) for ops in master.jobs.values() for op in ops
    ]


def test_several_instances_are_removed_after_one_question() -> None:
    master = _three()
    line = "gnt-instance remove web1 web2 web1"
    done = commands.run(line, master, answers=["n\n"])
    assert (done.code, master.jobs) == (1, {})
    assert "2 instances, web1.tst, web2.tst" in " ".join(done.terminal.split())
    done = commands.run(line, master, answers=["y\n"])
    assert done.code == 0
    assert _requests(master) == [
        ("OP_INSTANCE_REMOVE", "web1.tst"),
        ("OP_INSTANCE_REMOVE", "web2.tst"),
    ]


def test_no_instance_is_removed_if_one_does_not_exist() -> None:
    master = _three()
    done = commands.run("gnt-instance remove -f web1 web9", master)
    assert (done.code, master.jobs) == (1, {})
    assert "web9" in done.err


@pytest.mark.parametrize(
    ("line", "op_id"),
    [
        ("gnt-instance migrate -f", "OP_INSTANCE_MIGRATE"),
        ("gnt-instance failover -f", "OP_INSTANCE_FAILOVER"),
    ],
)
def test_several_instances_move_with_a_job_each(line, op_id) -> None:
    master = _three()
    done = commands.run(f"{line} web1 web2", master)
    assert done.code == 0, done.err
    assert _requests(master) == [(op_id, "web1.tst"), (op_id, "web2.tst")]
    assert "Submitted jobs 1, 2" in done.out
    master = _three()
    done = commands.run(f"{line} web1 web9", master)
    assert (done.code, master.jobs) == (1, {})
    declined = line.removesuffix(" -f") + " web1 web2"
    asked = commands.run(declined, master, answers=["n\n"])
    assert (asked.code, master.jobs) == (1, {})


@pytest.mark.parametrize("kind", ["node", "group"])
def test_several_nodes_or_groups_are_removed_with_a_job_each(kind) -> None:
    master = FakeMaster()
    rows = [{"name": f"x{k}", "uuid": f"u{k}"} for k in (1, 2, 3)]
    master.objects[kind] = rows
    done = commands.run(f"gnt-{kind} remove x1 x3", master)
    assert done.code == 0, done.err
    removed = [
        getattr(op, f"{kind}_name") for ops in master.jobs.values() for op in ops
    ]
    assert removed == ["x1", "x3"]
    done = commands.run(f"gnt-{kind} remove x2 x9", master)
    assert done.code == 1
    assert len(master.jobs) == 2


def test_one_failed_removal_is_reported_and_gives_exit_code_1() -> None:
    master = _three()

    def fail(operation):
        if operation.instance_name == "web1.tst":
            return errors.OpExecError("disk is busy")
        return None

    master.results["OP_INSTANCE_REMOVE"] = fail
    done = commands.run("gnt-instance remove -f web1 web2", master)
    assert done.code == 1
    assert "Job 1 for web1.tst has failed: " in done.err
    assert "disk is busy" in done.err
    assert "web2" not in done.err
    assert len(master.jobs) == 2


def test_disks_of_several_instances_are_activated_and_deactivated() -> None:
    master = _three()
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = lambda operation: [
        ["n1", "disk/0", f"/dev/{operation.instance_name}"]
    ]
    done = commands.run("gnt-instance activate-disks web1 web2", master)
    assert done.out.splitlines()[-2:] == [
        "n1:disk/0:/dev/web1.tst",
        "n1:disk/0:/dev/web2.tst",
    ]
    assert commands.run("gnt-instance deactivate-disks web1 web2", master).code == 0
    assert [name for name, _ in _requests(master)] == [
        *["OP_INSTANCE_ACTIVATE_DISKS"] * 2,
        *["OP_INSTANCE_DEACTIVATE_DISKS"] * 2,
    ]
