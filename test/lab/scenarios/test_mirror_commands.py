"""Each state of a mirror is named with a command, and following it mends the mirror.

Commands are run as they are printed, by `gnt-instance info` first, and also by verify and
verify-disks; a person chooses only what a text leaves open, such as the new node.
"""

import re

import pytest

from lab.mirroring import COMPLETE, GROUP, mirroring_cluster, shell, wait_until
from lab.steps import timed

NODES = ["lab1", "lab2", "lab3"]
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab1:lab2"),
    *("--disk", "0:size=64m", WEB1),
)
DEVICE = "/dev/drbd0"
#: A generation with a long history that the other node does not have.
FOREIGN = "for n in 1 2 3 4; do drbdsetup new-current-uuid 0 --clear-bitmap; done"
FORCED = f"gnt-instance failover --ignore-consistency {WEB1}"


@pytest.fixture
def trio(machines):
    """A cluster of three machines with a volume group each."""
    with mirroring_cluster(machines, NODES) as made:
        yield made


def named(machines):
    """Return the text and the command in the details of the instance, if there are."""
    text = machines.check("gnt-instance", "info", WEB1)
    lines = re.findall(r"^ *(?:mirror|to mend it): (.*)$", text, re.MULTILINE)
    return lines[0] if lines else "", lines[1] if lines[1:] else ""


def require_named(machines, words, command, *, is_mended=False):
    """Three commands name a state, with the command that mends it.

    Args:
        machines: the machines.
        words: in the text.
        command: for `gnt-instance`, without the instance.
        is_mended: whether verify-disks mends it by itself.
    """
    wanted = f"gnt-instance {command} {WEB1}" if command else ""
    text, printed = named(machines)
    assert words in text
    assert printed == wanted
    verified = machines.run("gnt-cluster", "verify", "--error-codes").stdout
    lines = [line for line in verified.splitlines() if words in line]
    assert len(lines) == 1, verified
    assert WEB1 in lines[0]
    assert wanted in lines[0]
    done = machines.run("gnt-cluster", "verify-disks")
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown
    if is_mended:
        assert f"Activating disks for instance '{WEB1}'" in shown
    else:
        assert wanted in shown
        assert named(machines) == (text, printed)


def follow(machines, command):
    """Run a printed command in a terminal, and agree to all that it asks."""
    shell(machines, f"printf 'y\\n%.0s' 1 2 3 4 | script -qec '{command}' /dev/null")


def disconnect(machines, node):
    """End the connection of one of the first two machines, which waits for no other."""
    ends = ["ipv4:10.77.0.1:11000", "ipv4:10.77.0.2:11000"]
    own, other = ends if node == "lab1" else reversed(ends)
    machines.check("drbdsetup", "disconnect", own, other, node=node)


def write(machines, word, node="lab1"):
    """Write a word to the disk of a machine that is primary."""
    shell(machines, f"echo {word} > {DEVICE}; sync {DEVICE}", node)


def require_whole(machines, word, *, primary="lab1", secondary="lab2"):
    """The mirror is complete, has the data, and nothing about it is left to mend."""
    for node in (primary, secondary):
        wait_until(machines, COMPLETE, node)
    wait_until(machines, "ro:Primary/Secondary", primary)
    assert machines.check("head", "-n", "1", DEVICE, node=primary) == f"{word}\n"
    assert named(machines) == ("", "")


# Takes many minutes.
@pytest.mark.long
def test_printed_commands_mend_mirrors(trio):
    trio.check(*ADD)
    trio.check("gnt-instance", "start", WEB1)
    for step in (
        _a_device_is_gone,
        _a_copy_is_interrupted,
        _a_primary_loses_its_copy,
        _a_secondary_loses_its_volumes,
        _the_other_node_has_it_in_use,
        _nodes_have_unrelated_data,
        _the_data_of_the_primary_is_given_up,
        _a_node_stays_away,
        _a_primary_without_data_is_cut_off,
        _all_volumes_are_gone,
    ):
        timed(step, trio)
    trio.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
    for node in NODES:
        assert trio.check("lvs", "--noheadings", GROUP, node=node).strip() == ""


def _a_device_is_gone(machines):
    write(machines, "gone")
    shell(machines, "drbdsetup down resource0", "lab2")
    words = "is not active on node lab2.lab.test"
    require_named(machines, words, "activate-disks", is_mended=True)
    require_whole(machines, "gone")


def _a_copy_is_interrupted(machines):
    """The node that gets the data stays inconsistent until the nodes connect again."""
    write(machines, "copied")
    disconnect(machines, "lab2")
    shell(machines, "drbdsetup invalidate 0", "lab2")
    words = "the data of node lab2.lab.test is Inconsistent"
    text, command = named(machines)
    assert words in text
    assert command == f"gnt-instance activate-disks {WEB1}"
    follow(machines, command)
    require_whole(machines, "copied")


def _a_primary_loses_its_copy(machines):
    """As long as its volumes are there, verify-disks attaches them again."""
    words = "diskless: node lab1.lab.test has lost its copy, node lab2.lab.test has it"
    command = "replace-disks -p --disks=0"
    write(machines, "before")
    shell(machines, "drbdsetup detach 0")
    # It goes to the other node.
    write(machines, "after")
    require_named(machines, words, command, is_mended=True)
    require_whole(machines, "after")
    shell(machines, "drbdsetup detach 0")
    write(machines, "later")
    assert named(machines) == (words, f"gnt-instance {command} {WEB1}")
    follow(machines, named(machines)[1])
    require_whole(machines, "later")


def _a_secondary_loses_its_volumes(machines):
    write(machines, "kept")
    shell(machines, f"drbdsetup down resource0; lvremove -q -f -y {GROUP}", "lab2")
    words = "its volumes are missing on node lab2.lab.test"
    require_named(machines, words, "replace-disks -s --disks=0")
    follow(machines, named(machines)[1])
    require_whole(machines, "kept")


def _the_other_node_has_it_in_use(machines):
    """The guest runs where it is recorded, so the other node gives the device back."""
    write(machines, "used")
    disconnect(machines, "lab1")
    shell(machines, "drbdsetup secondary 0")
    shell(machines, "drbdsetup primary 0", "lab2")
    words = "node lab2.lab.test, the secondary one, has it in use"
    require_named(machines, words, "migrate --cleanup")
    follow(machines, named(machines)[1])
    # A real guest keeps its device open, so that it stays primary.
    machines.check("gnt-instance", "activate-disks", WEB1)
    require_whole(machines, "used")


def _nodes_have_unrelated_data(machines):
    write(machines, "first")
    disconnect(machines, "lab1")
    wait_until(machines, "cs:WFConnection", "lab2")
    disconnect(machines, "lab2")
    for node in ("lab1", "lab2"):
        shell(machines, FOREIGN, node)
    words = "the nodes have unrelated data"
    require_named(machines, words, "replace-disks -s --disks=0")
    follow(machines, named(machines)[1])
    require_whole(machines, "first")


def _the_data_of_the_primary_is_given_up(machines):
    """After a split brain, a person may prefer the data of the secondary node."""
    machines.lab.cut("lab1", "lab2", "both")
    write(machines, "one")
    wait_until(machines, "cs:WFConnection", "lab2")
    shell(machines, "drbdsetup primary 0", "lab2")
    write(machines, "two", "lab2")
    shell(machines, "drbdsetup secondary 0", "lab2")
    machines.lab.join()
    wait_until(machines, "cs:StandAlone", "lab1")
    words = "split brain: both nodes were written to alone; to give up the data of"
    require_named(machines, words, "replace-disks -s --disks=0")
    assert f"run {FORCED} first" in named(machines)[0]
    follow(machines, FORCED)
    text, command = named(machines)
    assert "split brain" in text
    follow(machines, command)
    require_whole(machines, "two", primary="lab2", secondary="lab1")
    machines.check("gnt-instance", "failover", "-f", WEB1)
    require_whole(machines, "two")


def _a_node_stays_away(machines):
    write(machines, "alone")
    machines.lab.power("lab2", "off")
    machines.check("gnt-node", "modify", "-O", "yes", "lab2")
    words = "only node lab1.lab.test has the present data"
    require_named(machines, words, "replace-disks -n NODE")
    follow(machines, named(machines)[1].replace("NODE", "lab3"))
    require_whole(machines, "alone", secondary="lab3")
    # The master removes the old copy when the node is back.
    machines.lab.power("lab2", "on")
    # Its daemons start after the machine.
    answers = "timeout 20 bash -c '</dev/tcp/10.77.0.2/1811' 2>/dev/null"
    shell(machines, f"until {answers}; do sleep 0.5; done")
    follow(machines, "gnt-node modify -O no lab2")
    gone = f'until [ -z "$(lvs --noheadings {GROUP})" ]; do sleep 0.5; done'
    shell(machines, gone, "lab2")
    follow(machines, f"gnt-instance replace-disks -n lab2 {WEB1}")
    require_whole(machines, "alone")


def _a_primary_without_data_is_cut_off(machines):
    """The last writes may be in the lost copy alone: it is tried first."""
    disconnect(machines, "lab1")
    write(machines, "latest")
    # Only with force does the kernel give up the only complete copy.
    shell(machines, "drbdsetup detach --force 0")
    words = "and is not connected with node lab2.lab.test, whose data may be old"
    require_named(machines, words, "activate-disks", is_mended=True)
    require_whole(machines, "latest")


def _all_volumes_are_gone(machines):
    for node in ("lab1", "lab2"):
        remove = f"drbdsetup down resource0; lvremove -q -f -y {GROUP}"
        # The device is open only as long as a guest uses it.
        shell(machines, f"drbdsetup secondary 0; {remove}", node)
    words = "its volumes are missing on both nodes"
    require_named(machines, words, "recreate-disks --disk=0")
    machines.check("gnt-instance", "stop", "--timeout=1", WEB1)
    follow(machines, f"gnt-instance recreate-disks --disk=0 {WEB1}")
    follow(machines, f"gnt-instance start {WEB1}")
    write(machines, "new")
    require_whole(machines, "new")
