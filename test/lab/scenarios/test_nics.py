"""VLANs of bridges and switches, and routed NICs, on a kernel that has all of them."""

import pathlib

import pytest

PROGRAM = pathlib.Path(__file__).with_name("nics_inside.py")
PYTHON = "/usr/lib/ganeti/venv/bin/python"
#: Steps of the package's scripts at its installation and at the start of a machine.
START_SWITCHES = """
set -e
modprobe -a openvswitch tun 8021q
mkdir -p /etc/openvswitch /run/openvswitch
rm -f /etc/openvswitch/conf.db
ovsdb-tool create /etc/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server --detach --pidfile --remote=punix:/run/openvswitch/db.sock
ovs-vsctl --no-wait init
/usr/lib/openvswitch-switch/ovs-vswitchd --detach --pidfile --log-file=/dev/null
"""
STOP_SWITCHES = """
ip link del br7
ovs-vsctl del-br sw7
ovs-appctl exit
ovs-appctl -t ovsdb-server exit
rm -rf /etc/openvswitch
"""


@pytest.fixture
def switches(first_machine):
    first_machine.check("sh", "-c", START_SWITCHES)
    yield first_machine
    first_machine.run("sh", "-c", STOP_SWITCHES)


def test_frames_stay_in_the_vlans_of_their_nic(switches):
    library = switches.check(
        "sed",
        "-n",
        's/^sys.path.insert(0, "\\(.*\\)")$/\\1/p',
        "/usr/sbin/ganeti-noded",
    )
    done = switches.run(
        *("env", f"PYTHONPATH={library.strip()}", PYTHON, "-"),
        stdin=PROGRAM.read_text(),
    )
    assert done.stdout.endswith("all good\n"), done.stdout + done.stderr
