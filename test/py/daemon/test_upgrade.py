"""Upgrades between two releases that are installed side by side, and back.

Two machines with namespaces of their own have both releases by ``make install``. The
second release is this tree with another number and one more step of the store, which
breaks software without it.
"""

import os
import subprocess

import pytest

from fakes.stock_machines import (
    ABSENT,
    TOP,
    Machine,
    connected,
    copy_packages,
    copy_tree,
    new_folder,
)

pytestmark = [
    pytest.mark.daemon,
    # Two builds and three changes of a whole cluster take minutes.
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
PYTHON = "/opt/ganeti/bin/python"
NEW = "999.0.1"
#: The difference of the second release besides its number.
STEP = """
STEPS = (  # type: ignore[misc]
    *STEPS,
    Step(
        2 + len(STEPS),
        "a table of the next release",
        lambda db: db.execute("CREATE TABLE IF NOT EXISTS shelf (id INTEGER)"),
        breaks=True,
        revert=lambda db: db.execute("DROP TABLE shelf"),
    ),
)
"""
BUILD = (
    "./autogen.sh && ./configure --prefix=/usr --sysconfdir=/etc --localstatedir=/var"
    f" --enable-versions PYTHON={PYTHON} && make MAN_WRITER=/root/as-it-is install"
)
#: In place of the writer of manual pages, which takes most of the time.
WRITER = '#!/bin/sh\nshift 3\ncp "$1" "$2"\n'
HOSTS = """\
127.0.0.1 localhost
192.0.2.10 cluster1.example.com cluster1
192.0.2.11 node1.example.com node1
192.0.2.12 node2.example.com node2
"""
MASTER, OTHER = "node1", "node2"
ADD_USERS = """
for user in gnt-confd gnt-rapi gnt-mond; do
  id $user || useradd --system --user-group --shell /usr/sbin/nologin $user || exit 1
done
"""
VERSIONS = "/usr/lib/ganeti/versions"


@pytest.fixture
def directory():
    with new_folder("upgrade") as made:
        yield made


@pytest.fixture
def installed(directory):
    """The layer with both releases; the first one is in use."""
    machine = Machine(directory, "base")
    try:
        machine.check(f"rm -rf {' '.join(ABSENT)} /etc/ssh/ssh_host_*")
        machine.check(ADD_USERS)
        machine.check("python3 -m venv --without-pip /opt/ganeti")
        copy_packages(machine)
        copy_tree(machine, "/root/ganeti")
        machine.check("cat > /root/as-it-is; chmod 755 /root/as-it-is", text=WRITER)
        assert "and in use" in machine.check(BUILD, where="/root/ganeti")
        make_next_release(machine)
        output = machine.check(BUILD, where="/root/ganeti")
        assert f"gnt-cluster upgrade --to {NEW}" in output
    finally:
        machine.stop()
    return machine.upper


def make_next_release(machine):
    path = machine.path("/root/ganeti/configure.ac")
    text = path.read_text()
    path.write_text(text.replace(f"[{old_version()}]", f"[{NEW}]"))
    path = machine.path("/root/ganeti/lib/store/schema.py")
    text = path.read_text()
    mark = "#: The version that this release writes.\n"
    assert text.count(mark) == 1
    path.write_text(text.replace(mark, STEP + mark))


def old_version():
    script = TOP / "autotools" / "version"
    return subprocess.check_output([script], text=True).strip()


@pytest.fixture
def machines(directory, installed):
    storage = (
        "mkdir -p /etc/ganeti /srv/ganeti/file-storage;"
        " echo /srv/ganeti/file-storage > /etc/ganeti/file-storage-paths"
    )
    with connected(directory, installed, (MASTER, OTHER), HOSTS, storage) as made:
        yield made


def make_cluster(machines):
    master, other = machines[MASTER], machines[OTHER]
    master.check("gnt-cluster init cluster1.example.com")
    key = master.check("cat /root/.ssh/id_rsa.pub")
    other.check(
        "install -d -m 700 /root/.ssh; cat >> /root/.ssh/authorized_keys", text=key
    )
    code, shown = master.talk(
        f"gnt-node add {OTHER}.example.com", [(r"y/\[n\]/\?: $", b"y\n")]
    )
    assert code == 0, shown
    master.check(
        "gnt-instance add -t file --disk 0:size=1g -B memory=128m -o tiny+default"
        f" -n {OTHER}.example.com web1.example.com"
    )


def guest(machine):
    """Return the process of the guest, which runs."""
    pid = machine.check(
        "cat /var/run/ganeti/kvm-hypervisor/pid/web1.example.com"
    ).strip()
    assert "web1" in machine.check(f"cat /proc/{pid}/cmdline | tr '\\0' ' '")
    return pid


def check_release(machines, version):
    master = machines[MASTER]
    for machine in machines.values():
        link = machine.check("readlink -f /usr/sbin/gnt-cluster").strip()
        assert link == f"{VERSIONS}/{version}/sbin/gnt-cluster"
    shown = master.check("gnt-cluster version")
    assert f"Software version: {version}" in shown
    code, output = master.run("gnt-cluster verify")
    assert code == 0, output
    assert "ERROR" not in output
    assert master.check("gnt-cluster queue info") == "The drain flag is unset\n"
    assert "not paused" in master.check("gnt-cluster watcher info")
    assert master.run("ls /var/lib/ganeti/intent-to-upgrade")[0] != 0


def stored(machine):
    """Return the version that software must know to read the store of a node."""
    text = "import sqlite3;d=sqlite3.connect('file:/var/lib/ganeti/store.db?mode=ro',uri=True);"
    text += "print(d.execute('PRAGMA user_version').fetchone()[0])"
    return int(machine.check(f'{PYTHON} -c "{text}"'))


def test_a_cluster_goes_to_the_next_release_and_back(machines):
    old = old_version()
    make_cluster(machines)
    master, other = machines[MASTER], machines[OTHER]
    check_release(machines, old)
    before = guest(other)
    refuse_a_node_without_the_release(machines)

    plan = master.check(f"gnt-cluster upgrade --plan --to {NEW}")
    assert f"Switching to version {NEW} on all nodes" in plan
    check_release(machines, old)

    output = master.check(f"gnt-cluster upgrade --to {NEW}")
    assert output.endswith(f"All nodes run version {NEW}.\n"), output
    check_release(machines, NEW)
    assert {stored(machine) for machine in machines.values()} == {stored(master)}
    assert stored(master) > 1
    assert guest(other) == before

    kill_on_the_way_back(master, old)
    output = master.check("gnt-cluster upgrade --resume")
    assert output.endswith(f"All nodes run version {old}.\n"), output
    check_release(machines, old)
    assert {stored(machine) for machine in machines.values()} == {1}
    assert guest(other) == before
    assert master.check("gnt-cluster upgrade --resume") == ""
    master.check("gnt-instance shutdown web1.example.com")
    # One from each way; the killed command may have written one more.
    archives = master.check(
        "for path in /var/backups/ganeti*.tar; do tar -tf $path; done"
    )
    assert archives.count("ganeti/store.db\n") >= 2, archives


def refuse_a_node_without_the_release(machines):
    other = machines[OTHER]
    other.check(f"mv {VERSIONS}/{NEW} /usr/lib/ganeti/away")
    code, output = machines[MASTER].run(f"gnt-cluster upgrade --to {NEW}")
    assert code == 1
    assert f"{OTHER}.example.com: version {NEW} is not installed there" in output
    assert "nothing was changed" in output
    assert "Traceback" not in output
    check_release(machines, old_version())
    other.check(f"mv /usr/lib/ganeti/away {VERSIONS}/{NEW}")


def kill_on_the_way_back(master, old):
    """Kill the command when it has stopped all daemons."""
    code, output = master.run(
        f"(gnt-cluster upgrade --to {old} & echo $! > /tmp/pid; wait $!) |"
        ' while read -r line; do echo "$line";'
        " case $line in Backing*) kill -9 $(cat /tmp/pid);; esac; done"
    )
    assert "Backing up" in output, output
    assert "Verifying cluster." not in output
    intent = master.check("cat /var/lib/ganeti/intent-to-upgrade")
    assert intent.startswith(f"{NEW},{old},")
    code, output = master.run(f"gnt-cluster upgrade --to {old}")
    assert code == 1
    assert "gnt-cluster upgrade --resume" in output
