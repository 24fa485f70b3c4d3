"""Options --net and --disk of modify: what is asked of which device."""

import pytest

from fakes import client_cluster, commands
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
