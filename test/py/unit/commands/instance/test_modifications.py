"""Options --net and --disk of modify, and --cloud-init: what is asked."""

import os

import pytest

from fakes import client_cluster, commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.instance import modify

LAST = -1


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (("0", {"mode": "bridged"}), ["modify", 0, {"mode": "bridged"}]),
        (("0", {"modify": True, "ip": "x"}), ["modify", 0, {"ip": "x"}]),
        (("eth-a", {"ip": "x"}), ["modify", "eth-a", {"ip": "x"}]),
        (("add", {"ip": "x"}), ["add", LAST, {"ip": "x"}]),
        (("2", {"add": True, "ip": "x"}), ["add", 2, {"ip": "x"}]),
        (("remove", {}), ["remove", LAST, {}]),
        (("1", {"remove": True}), ["remove", 1, {}]),
        (("1", False), ["remove", 1, {}]),
        (("eth-a", True), ["remove", "eth-a", {}]),
        (("0", {"add": "yes"}), ["modify", 0, {"add": "yes"}]),
        (("0", {"modify": "yes"}), ["modify", 0, {"modify": "yes"}]),
    ],
)
def test_an_option_is_one_action_on_one_device(given, change):
    assert modify.modifications([given], "NIC") == [change]


def test_actions_keep_the_order_of_the_command_line():
    given = [("2", {"remove": True}), ("add", {}), ("0", {"ip": "x"}), ("add", {})]
    actual = modify.modifications(given, "NIC")
    assert [change[:2] for change in actual] == [
        ["remove", 2],
        ["add", LAST],
        ["modify", 0],
        ["add", LAST],
    ]
    assert modify.modifications([], "NIC") == []


@pytest.mark.parametrize("action", ["add", "modify"])
def test_sizes_of_disks_are_in_mebibytes(action):
    given = [("0", {action: True, "size": "2g", "name": "root"})]
    assert modify.modifications(given, "disk") == [
        [action, 0, {"size": 2048, "name": "root"}]
    ]
    # The size of anything else is a text like others.
    assert modify.modifications(given, "NIC")[0][2]["size"] == "2g"


def test_the_given_parameters_stay_as_they_are():
    parameters = {"add": True, "size": "2g"}
    modify.modifications([("0", parameters)], "disk")
    assert parameters == {"add": True, "size": "2g"}


@pytest.mark.parametrize(
    ("given", "what", "text"),
    [
        ([("add", {})], "disk", "disk add: no size given"),
        ([("0", {"add": True})], "disk", "disk add: no size given"),
        (
            [("0", {"remove": True, "ip": "x"})],
            "NIC",
            "NIC remove: takes no parameters",
        ),
        ([("detach", {"name": "x"})], "disk", "disk detach: takes no parameters"),
        ([("0", {"ip": "x"}), ("0", False)], "NIC", "NIC 0: only one action per index"),
        ([("a", {"ip": "x"}), ("a", {"ip": "y"})], "NIC", "NIC a: only one action"),
        (
            [("0", {"add": True, "remove": True})],
            "NIC",
            "NIC 0: add and remove exclude each other",
        ),
        ([("add", {"size": "much"})], "disk", "size"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, what, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        modify.modifications(given, what)


def test_an_attached_disk_needs_no_size():
    given = [("attach", {"uuid": "u"})]
    assert modify.modifications(given, "disk") == [["attach", LAST, {"uuid": "u"}]]


def submitted(words, *, is_running=True, answers=None):
    """Return the disks of the submitted opcode, None if there is none."""
    fake = client_cluster.master()
    for row in fake.objects["instance"]:
        row["oper_state"] = is_running
    done = commands.run(f"gnt-instance modify {words} web1", fake, answers=answers)
    ops = [args[0][0] for method, args in fake.calls if method == "SubmitJob"]
    assert bool(done.code) is (not ops)
    return ops[0]["disks"] if ops else None


REMOVAL = [["remove", 1, {}]]


@pytest.mark.parametrize(
    ("words", "more", "expected"),
    [
        ("", {"answers": ["n\n"]}, None),
        ("", {"answers": ["y\n"]}, REMOVAL),
        ("-f", {"answers": []}, REMOVAL),
        ("", {"answers": [], "is_running": False}, REMOVAL),
        # Nobody can be asked.
        ("", {"answers": None}, REMOVAL),
        ("--keep", {"answers": []}, [["detach", 1, {}]]),
    ],
)
def test_a_disk_of_a_running_guest_is_removed_on_confirmation(words, more, expected):
    assert submitted(f"--disk 1:remove {words}", **more) == expected


# ``--cloud-init`` reads files of the caller into private OS parameters.

ADD = "gnt-instance add -t diskless -o tiny -n node1 --submit"


def run(line, *more):
    master = FakeMaster()
    done = commands.run([*line.split(), *more, "web1"], master)
    return done, [op for ops in master.jobs.values() for op in ops]


def test_files_become_private_parameters(tmp_path):
    (tmp_path / "u").write_text("#cloud-config\na: b,c=d\n")
    (tmp_path / "n").write_text("version: 2\n")
    files = f"user-data={tmp_path}/u,network-config={tmp_path}/n"
    _, (op,) = run(ADD, "--cloud-init", files, "--os-parameters-private", "x=y")
    assert op.osparams_private == {
        "x": "y",
        "cloud-init-user-data": "#cloud-config\na: b,c=d\n",
        "cloud-init-network-config": "version: 2\n",
    }


def test_a_change_can_remove_a_file(tmp_path):
    line = "gnt-instance modify --submit"
    _, (op,) = run(line, "--cloud-init", "user-data=")
    assert op.osparams_private == {"cloud-init-user-data": "default"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("userdata={}/u", "--cloud-init userdata: wanted one of user-data, "),
        ("user-data={}/none", "cannot read '{}/none': No such file"),
        ("user-data=", "cannot read ''"),
        ("user-data={}", "cannot read '{}': Is a directory"),
        ("user-data={}/pipe", "is not a regular file"),
        ("user-data={}/binary", "binary is not text in UTF-8"),
        ("meta-data={}/big", "wanted at most 16384 bytes, found more"),
    ],
)
def test_wrong_files_are_named(tmp_path, given, text):
    (tmp_path / "binary").write_bytes(b"hush\xff")
    (tmp_path / "big").write_text("hush " * 4000)
    os.mkfifo(tmp_path / "pipe")
    done, ops = run(ADD, "--cloud-init", given.format(tmp_path))
    assert (done.code, ops) == (1, [])
    assert text.format(tmp_path) in done.err
    assert "hush" not in done.err


def test_a_file_and_a_parameter_exclude_each_other(tmp_path):
    (tmp_path / "u").write_text("x")
    private = ["--os-parameters-private", "cloud-init-user-data=y"]
    done, _ = run(ADD, "--cloud-init", f"user-data={tmp_path}/u", *private)
    assert done.code == 1
    assert "is also given as private OS parameter" in done.err
