"""Clusters of Debian's Ganeti 3.0.2, with its own daemons, on isolated machines.

The packages are those of `fakes.peers`, unpacked. Each machine sees them in its ``/usr``
as if they were installed, with the files in ``/etc`` and what their maintainer script
makes: users, groups and links. They have no units of systemd.
"""

import json
import os
import pathlib
import subprocess

from fakes import own_users, patience, peers
from ganeti.devel.vcluster import node_directories
from ganeti.devel.vcluster.create import QEMU

_TREE = peers.TREE
#: The file of the packages that runs the watcher.
CRON = "/etc/cron.d/ganeti"
#: The users of ours that Debian's packages lack, as the guide says.
_ADD_USER = "useradd --system --user-group --shell /usr/sbin/nologin gnt-mond"
#: Runs the maintainer script on a copy of this machine's accounts.
_ACCOUNTS = """
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/new /mnt/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/new,workdir=/mnt/work /etc
mkdir -p /etc/ganeti
export DPKG_MAINTSCRIPT_PACKAGE=ganeti DPKG_MAINTSCRIPT_NAME=postinst
sh {tree}/control/ganeti/postinst configure
{add_user}
cp /etc/passwd /etc/group {accounts}
"""
#: As the packages: their programs read them through these links.
_INSTALL = """
set -e
mount -t overlay overlay -o lowerdir={tree}/usr:/usr /usr
mount --bind {accounts}/passwd /etc/passwd
mount --bind {accounts}/group /etc/group
mount -t tmpfs tmpfs /etc/cron.d
cp {tree}/etc/cron.d/* /etc/cron.d
cp {tree}/etc/ganeti/* /etc/ganeti
cp {tree}/etc/default/ganeti /etc/default
ln -sfn /usr/share/ganeti/3.0 /etc/ganeti/share
ln -sfn /usr/lib/ganeti/3.0 /etc/ganeti/lib
rm -f /etc/ssh/ssh_host_ed25519_key*
kill -HUP $(cat /var/run/ganeti/sshd.pid)
"""
_POLICY = (
    "--ipolicy-bounds-specs=min:disk-size=1,cpu-count=1,disk-count=0,memory-size=1,"
    "nic-count=0,spindle-use=1/max:disk-size=1048576,cpu-count=8,disk-count=16,"
    "memory-size=32768,nic-count=8,spindle-use=12"
)
_STD = (
    "--ipolicy-std-specs=memory-size=64,cpu-count=1,disk-count=1,disk-size=64,"
    "nic-count=1,spindle-use=1"
)
_ADD = ("gnt-instance", "add", "--no-name-check", "--no-ip-check", "-B", "memory=96M")
DAEMONS = ("noded", "confd", "wconfd", "rapi", "luxid", "mond")


class DebianCluster:
    """A cluster of Debian's Ganeti on the machines of a virtual cluster."""

    def __init__(self, machines):
        self.machines = machines
        self.names = [node.short for node in machines.layout.nodes]

    def install(self):
        """Let every machine see the packages as installed."""
        accounts = pathlib.Path(self.machines.directory, "state")
        _write_accounts(accounts)
        layout = self.machines.layout
        for node in layout.nodes[1:]:
            # Nodes of a cluster share their host keys.
            node_directories.copy_keys(layout, node)
        script = _INSTALL.format(tree=_TREE, accounts=accounts)
        for name in self.names:
            self.machines.check("sh", "-c", script, node=name)
            own_users.reveal(self.machines, name)

    def create(self):
        """Make the cluster: init, and add the other nodes."""
        boot = pathlib.Path(self.machines.directory, "boot")
        make_boot = peers.TOP / "tools/os/tiny/make-boot"
        subprocess.run([make_boot, boot], check=True, capture_output=True)
        hvparams = f"kvm:kvm_path={QEMU},kernel_path={boot}/vmlinuz,"
        self.check(
            *("gnt-cluster", "init", "--no-ssh-init", "--no-etc-hosts"),
            *("--enabled-hypervisors=kvm", "--master-netdev=br0"),
            "--enabled-disk-templates=file,diskless,sharedfile",
            "--nic-parameters=link=br0",
            *(
                "-H",
                f"{hvparams}initrd_path={boot}/initrd,kernel_args=quiet,vhost_net=false",
            ),
            *(_POLICY, _STD, "cluster.vc.test"),
        )
        for name in self.names[1:]:
            self.check("gnt-node", "add", "--no-ssh-key-check", f"{name}.vc.test")

    def add(self, name, *options):
        """Add an instance with the OS definition tiny."""
        self.check(*_ADD, "-o", "tiny+default", *options, name)

    def run(self, *argv, node="node1"):
        """Run one of Debian's programs; returns a RunResult."""
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        return self.machines.run("env", path, *argv, node=node)

    def check(self, *argv, node="node1"):
        """Run one of Debian's programs, which must succeed; return its output."""
        result = self.run(*argv, node=node)
        assert not result.failed, f"{argv} {result.reason}: {result.output}"
        return result.stdout

    def config(self):
        """Return the configuration on the master."""
        return json.loads(self.machines.file("/var/lib/ganeti/config.data").read_text())

    def daemons(self, node="node1"):
        """Return the names of Debian's daemons that run on a node."""
        listed = self.machines.check("ps", "axww", "-o", "args", node=node)
        return {
            name
            for name in DAEMONS
            for line in listed.splitlines()
            if f"/usr/sbin/ganeti-{name}" in line.split()
        }

    def guests(self):
        """Return the process ids of the emulators, as each node sees them."""
        guests = {}
        for node in self.names:
            directory = self.machines.file(
                "/var/run/ganeti/kvm-hypervisor/pid", node=node
            )
            for path in directory.iterdir() if directory.exists() else ():
                pid = path.read_text().strip()
                listed = self.machines.check("ps", "axww", "-o", "pid,args", node=node)
                lines = [line.split() for line in listed.splitlines()]
                if any(words[0] == pid and path.name in words for words in lines):
                    guests[path.name] = (node, pid)
        return guests

    def wait_until_listed(self, wanted):
        """Wait until Debian's gnt-instance list shows these states by name."""

        def is_listed():
            done = self.run("gnt-instance", "list", "--no-headers", "-o", "name,status")
            rows = (line.split() for line in done.stdout.splitlines())
            return not done.failed and dict(rows) == wanted

        patience.until(f"gnt-instance list shows {wanted}", is_listed)


def _write_accounts(directory):
    """Write the lists of users and groups, with those of Debian's packages and ours."""
    os.makedirs(directory, exist_ok=True)
    script = _ACCOUNTS.format(tree=_TREE, accounts=directory, add_user=_ADD_USER)
    subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], check=True, capture_output=True
    )


#: Prints what a guest answers to the enter key, until its login prompt.
_CONSOLE = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(f"/var/run/ganeti/kvm-hypervisor/ctrl/{sys.argv[1]}.serial")
    link.settimeout(60)
    data = b""
    while b"login: " not in data:
        link.sendall(b"\\n")
        part = link.recv(4096)
        if not part:
            break
        data += part
    print(data.decode(errors="replace"))
"""


def console(machines, node, name):
    """Press enter on the serial console of a guest; return what it answers."""
    return machines.check("python3", "-c", _CONSOLE, name, node=node)
