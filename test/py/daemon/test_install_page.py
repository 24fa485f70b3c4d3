"""The installation guide, followed as it is printed, on three machines.

The page is the script: every console block of ``doc/install.rst`` is played in order,
and then of ``doc/admin.rst``, the administrator's guide.
Each command runs or stands in `LEFT_OUT` with the reason. The machines have namespaces of
their own and the standard paths. Their root is this machine's system below a layer with
the result of ``make install``; this tree, its environment and all homes are not visible
there.
"""

import os
import re

import pytest

from fakes.pages import blocks, first_difference, pattern_of
from fakes.stock_machines import (
    ABSENT,
    NODES,
    TOP,
    Machine,
    connected,
    copy_packages,
    copy_tree,
    new_folder,
)

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
PAGE = TOP / "doc" / "install.rst"
GUIDE = TOP / "doc" / "admin.rst"
PROMPT = re.compile(r"(node\d)?# (.*)")
#: Beginning of a command -> why it is not run here.
LEFT_OUT = {
    "apt install": "the machines share the packages of this machine",
    "hostnamectl": "the namespaces have names already",
    "/opt/ganeti/bin/pip": "needs the network; the packages of the tests are copied",
    "make check": "runs in other tests, and takes minutes",
    "systemctl": "nothing but the daemons runs in the machines",
    "gnt-instance startup -H cdrom": "needs an image to install from",
}
#: The same for the administrator's guide.
GUIDE_LEFT_OUT = {
    "gnt-node power": "needs controllers of machines; test_oob_ipmi.py has some",
    "gnt-node health": "as above",
    "gnt-cluster epo": "as above; test_oob.py plays it",
    "poweroff": "switches the machine off that runs this test",
    "/usr/lib/ganeti/daemon-util start ganeti-masterd --no-voting": "belongs to epo",
    "gnt-cluster init --store": "needs servers of etcd; test_etcd.py has some",
    "gnt-cluster migrate-store": "as above",
    "gnt-cluster upgrade": "needs a second release; test_upgrade.py has one",
    "gnt-cluster journal --follow": "does not end",
    "/usr/lib/ganeti/tools/lvmstrap": "needs disks for volumes; test/lab has some",
    "gnt-cluster init --vg-name": "as above",
    "gnt-instance add -t plain": "as above",
    "gnt-cluster modify --enabled-disk-templates=plain,ext": "as above",
    "gnt-instance add -t ext": "as above; the template is not enabled then",
    "gnt-cluster modify --enabled-disk-templates=plain,gluster": "needs a server of it",
    "gnt-cluster modify -D gluster": "as above",
    "gnt-instance add -t gluster": "as above",
    "gnt-backup export": "the instance is gone by then; test_instance_move.py has one",
    "gnt-backup import": "as above",
    "gnt-backup remove": "as above",
    "gnt-instance modify -t": "needs volumes; test/lab has some",
    "gnt-node list-storage -t lvm": "as above",
    "gnt-node modify-storage": "as above",
    "gnt-node volumes": "as above",
    "gnt-instance move -n node3": "as above",
    "gnt-node repair-storage": "as above",
    "echo drbd": "needs the module of DRBD; test/lab has it",
    "echo options drbd": "as above",
    "modprobe drbd": "as above",
    "gnt-cluster modify --enabled-disk-templates plain,drbd": "as above",
    "gnt-instance add -t drbd": "as above",
    "gnt-instance replace-disks": "as above",
}
#: Names that the guide uses as examples -> what they are here.
EXAMPLES = {
    "cluster.example.com": "cluster1.example.com",
    " testgroup": " default",
    " rack2": " default",
    " db1 ": " web1 ",
    "! node7": "! node3",
    "delete UUID": "delete $(gnt-filter list --no-headers -o uuid)",
    " 123": " $(gnt-job list --no-headers -o id | tail -n 1)",
    "0:size=10g": "0:size=1g",
    "0 5g": "0 1g",
    "memory=2g,vcpus=2": "memory=256m,vcpus=1",
    "memory=4g": "memory=384m",
    # Each stop of a guest that still boots takes half a minute under emulation.
    "burn1 burn2": "--no-startstop --no-move --no-reinstall --no-reboot"
    " --no-renamesame --no-activate-disks burn1",
}
#: Commands of the guide that fail as they are typed here -> exit code and output.
REFUSED = {
    "gnt-job cancel": (1, "is no longer in the queue"),
    "gnt-job archive": (0, ""),
    "gnt-instance shutdown --tags env:test": (1, "matches no instances"),
    "/usr/lib/ganeti/tools/confd-client node-of": (1, "the cluster knows no such"),
}


def sections():
    """Return number of section -> its commands: place, command, expected lines."""
    actual = {}
    parts = re.split(r"^(\d+)\. .*\n-+\n", PAGE.read_text(), flags=re.MULTILINE)
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        actual[int(number)] = commands_of(text)
    return actual


def commands_of(text):
    """Return the commands of all console blocks: place, command, expected lines."""
    commands = []
    for block in blocks(text):
        is_open = False
        for line in block:
            match = None
            if is_open:
                commands[-1][1] += f"\n{line}"
            elif match := PROMPT.fullmatch(line):
                place, command = match.groups()
                commands.append([place, command, []])
            else:
                commands[-1][2].append(line)
            is_open = (is_open or match is not None) and line.endswith("\\")
    return commands


def is_left_out(command, reasons=LEFT_OUT):
    return any(command.startswith(start) for start in reasons)


@pytest.fixture
def directory():
    with new_folder("install") as made:
        yield made


@pytest.fixture
def installed(directory):
    """The layer that ``make install`` and the files of section 4 make."""
    machine = Machine(directory, "base")
    try:
        for path in ABSENT:
            machine.check(f"rm -rf {path}")
        machine.check("rm -f /etc/ssh/ssh_host_* && mkdir -p /root/ganeti")
        copy_tree(machine, "/root/ganeti")
        for place, command, _ in sections()[4]:
            assert place is None, command
            if command.startswith("/opt/ganeti/bin/pip"):
                copy_packages(machine)
            if not is_left_out(command):
                machine.check(command, where="/root/ganeti")
    finally:
        machine.stop()
    return machine.upper


@pytest.fixture
def machines(directory, installed):
    """Three prepared machines: sections 2 and 3."""
    hosts = next(c[2] for c in sections()[2] if c[1] == "cat /etc/hosts")
    text = "\n".join(hosts) + "\n"
    with connected(directory, installed, NODES, text) as made:
        yield made


class Reader:
    """Somebody who follows the page."""

    def __init__(self, machines):
        self.machines = machines
        self.last_code = 0
        self.key = ""

    def follow(self, place, command):
        """Return exit code and output of a command of the page."""
        machine = self.machines[place or "node1"]
        if command.startswith("gnt-node add"):
            return machine.talk(command, [(r"y/\[n\]/\?: $", b"y\n")])
        if command.startswith("gnt-instance console"):
            return machine.talk(command, [("login: ", b"\x1d")])
        if command == "echo $?":
            return 0, f"{self.last_code}\n"
        code, output = machine.run(command, text=self.key)
        self.last_code = code
        if command == "cat /root/.ssh/id_rsa.pub":
            self.key = output
        return code, output


def test_the_page_leads_from_three_machines_to_a_guest(machines):
    follow_the_page(machines)
    check_units_and_rotation(machines)
    migrate_to_a_closed_port(machines)
    kill_an_installation(machines)
    lose_power(machines, ["node2"])
    lose_power(machines, ["node2", "node3", "node1"])


def check_units_and_rotation(machines):
    """The installed units are valid, and logrotate takes logs from running daemons."""
    master = machines["node1"]
    output = master.check("systemd-analyze verify /usr/lib/systemd/system/ganeti*")
    assert output == ""
    log = "/var/log/ganeti/master-daemon.log"
    rotate = "logrotate --force --state /tmp/state /etc/logrotate.d/ganeti"
    assert master.check(rotate) == ""
    assert "elected for term" in master.check(f"cat {log}.1")
    # The daemons write to the new files.
    master.check("gnt-cluster add-tags rotated && gnt-cluster remove-tags rotated")
    open_files = master.check("ls -l /proc/$(cat /var/run/ganeti/*masterd.pid)/fd")
    assert f"-> {log}\n" in open_files
    assert f"{log}.1" not in open_files


#: A create script that does not end, with a child that does not either.
ENDLESS = """
cp -a /usr/share/ganeti/os/tiny /srv/ganeti/os/endless
printf '#!/bin/bash\\nsleep 86400 & sleep 86400\\n' > /srv/ganeti/os/endless/create
"""


def migrate_to_a_closed_port(machines):
    """The error has the emulator's reason, and where the guest is."""
    master, target = machines["node1"], machines["node3"]
    templates = "--enabled-disk-templates=file,diskless"
    master.check(
        f"gnt-cluster modify {templates} --ipolicy-disk-templates=file,diskless"
    )
    master.check(
        "gnt-instance add -t diskless -o tiny+default -B memory=128m --no-install"
        " -n node2 bare.example.com; gnt-instance startup bare"
    )
    rule = "type filter hook input priority 0; tcp dport 8102 reject with tcp reset;"
    target.check(f"nft -f - <<< 'table inet t {{ chain i {{ {rule} }}; }}'")
    code, output = master.run("gnt-instance migrate -f -n node3 bare")
    assert code == 1, output
    assert output.splitlines()[-1] == (
        "instance bare.example.com: migration failed: Failed to connect to"
        " '192.0.2.13:8102': Connection refused; the guest runs on node"
        " node2.example.com as before"
    )
    target.check("nft flush ruleset")
    master.check("gnt-instance migrate -f -n node3 bare")
    assert "node3" in master.check("gnt-instance list --no-headers -o pnode bare")


def kill_an_installation(machines):
    """No node is locked while an OS script runs, and its job can be killed."""
    master, node = machines["node1"], machines["node3"]
    for machine in machines.values():
        machine.check(f"mkdir -p /srv/ganeti/os{ENDLESS}")
    add = "gnt-instance add --submit -t file -s 1g -o endless+default -n node3"
    job = master.check(f"{add} --no-start slow.example.com").split()[-1]
    node.check("until pgrep -f 'sleep [8]6400'; do sleep 0.1; done")
    locks = master.check("gnt-debug locks --no-headers --separator=: -o name,owner")
    owned = [line.split(":")[0] for line in locks.splitlines() if line.endswith(job)]
    assert owned == ["cluster/BGL", "instance/slow.example.com"], locks
    master.check(f"gnt-job cancel --kill --yes-do-it {job}")
    code, output = master.run(f"gnt-job watch {job}")
    assert (code, "killed on request" in output) == (1, True), output
    code, output = node.run("pgrep -af 'sleep [8]6400'")
    assert code == 1, output
    status = "gnt-instance list --no-headers -o status slow"
    assert master.check(status).split() == ["ERROR_down"]
    master.check("gnt-instance remove -f slow")


#: Ends everything but the first process and the one that asks, which waits for the end.
KILL_ALL = """
kill -9 -1
while set -- /proc/[0-9]*; [ $# -gt 2 ]; do sleep 0.1; done
"""


def lose_power(machines, names):
    """One run of cron's command on each machine, and all guests run again."""
    listing = "gnt-instance list --no-headers -o name,status"
    before = machines["node1"].check(listing)
    assert before.count("running") == 2, before
    for name in names:
        machines[name].check(KILL_ALL)
    for name in names:
        machines[name].check("/usr/sbin/sshd")
    for name in sorted({*names} - {"node1"}):
        machines[name].check("ganeti-watcher --no-strict")
    machines["node1"].check("ganeti-watcher --no-strict")
    assert machines["node1"].check(listing) == before
    machines["node1"].check("gnt-cluster verify")


def follow_the_page(machines):
    for name, machine in machines.items():
        for path in (TOP, (TOP / ".venv").resolve(), "/root"):
            shown = machine.check(f"[ ! -e {path} ] || ls -A {path}")
            assert shown == "", (name, path)
    commands = [c for n, part in sorted(sections().items()) if n != 4 for c in part]
    assert len(commands) > 15
    reader = Reader(machines)
    for place, command, expected in commands:
        if is_left_out(command):
            continue
        # Steps of the page on node 2 before nodes are added are meant for node 3 too.
        places = ["node2", "node3"] if place == "node2" else [place]
        for each in places:
            code, output = reader.follow(each, command)
            text = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
            shown = f"{each or 'node1'}: {command}\n{text}"
            assert code == 0, shown
            if command.startswith("gnt-cluster verify"):
                assert "ERROR" not in text, shown
                assert "WARNING" not in text, shown
            if expected and not re.fullmatch(pattern_of(expected), text):
                pytest.fail(f"{first_difference(expected, text)}\n{shown}")
    check_result(machines["node1"])


@pytest.mark.long
def test_every_command_of_the_guide_can_be_typed_afterwards(machines):
    follow_the_page(machines)
    master = machines["node1"]
    master.check("gnt-instance remove -f web1.example.com")
    shared = "/srv/ganeti/shared-file-storage"
    for machine in machines.values():
        machine.check(
            f"mkdir {shared}; echo {shared} >> /etc/ganeti/file-storage-paths"
        )
    commands = [c[1] for c in commands_of(GUIDE.read_text())]
    creation = next(c for c in commands if c.startswith("gnt-instance add -t share"))
    ran = 0
    for command in commands:
        if is_left_out(command, GUIDE_LEFT_OUT):
            continue
        if command.startswith("gnt-instance add-tags web1"):
            # The guide has removed the instance by then.
            master.check(adapted(creation))
        code, output = typed(master, adapted(command))
        wanted = next((v for k, v in REFUSED.items() if command.startswith(k)), (0, ""))
        assert code == wanted[0], f"{command}\n{output}"
        assert wanted[1] in output, f"{command}\n{output}"
        assert "Traceback" not in output, f"{command}\n{output}"
        if command.startswith("gnt-cluster verify"):
            assert "ERROR" not in output, output
        ran += 1
    assert ran > 40


def adapted(command):
    """Return a command of the guide with the names and sizes of this cluster."""
    for example, name in EXAMPLES.items():
        command = command.replace(example, name)
    return command


def typed(machine, command):
    """Run a command; on a terminal where it asks or shows a console."""
    if "console" in command.split()[:2]:
        return machine.talk(command, [("login: ", b"\x1d")])
    if command.startswith(("gnt-instance remove", "gnt-cluster restore-store")):
        return machine.talk(command, [(r"y/\[n\]/\?: $", b"y\n")])
    return machine.run(command)


def check_result(master):
    """Check what the page promises: running, booted, clean, daemons started once."""
    listed = master.check("gnt-instance list --no-headers -o name,status,pnode")
    rows = dict(line.split(None, 1) for line in listed.splitlines())
    assert rows["web1.example.com"].split() == ["running", "node2.example.com"]
    code, output = master.run("gnt-cluster verify")
    assert code == 0, output
    assert "ERROR" not in output
    processes = master.check("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "/usr/sbin/ganeti-masterd" in processes
    assert str(TOP) not in processes


def test_every_command_that_is_left_out_is_on_the_page():
    installing = [c[1] for part in sections().values() for c in part]
    guide = [c[1] for c in commands_of(GUIDE.read_text())]
    for commands, starts in ((installing, LEFT_OUT), (guide, GUIDE_LEFT_OUT | REFUSED)):
        for start in starts:
            assert any(command.startswith(start) for command in commands), start
    for example in EXAMPLES:
        assert any(example in command for command in guide), example
