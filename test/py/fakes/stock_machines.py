"""Machines as an administrator has them: namespaces of their own, the usual paths.

The root of a machine is this machine's system below a layer; this tree, its environment
and all homes are not visible there.
"""

import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
NODES = {"node1": "192.0.2.11/24", "node2": "192.0.2.12/24", "node3": "192.0.2.13/24"}
ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
ENVIRONMENT += ("LC_ALL=C.UTF-8", "TERM=dumb")
#: Directories that a fresh machine has empty.
EMPTY = ("/root", "/home", "/tmp", "/var/tmp", "/run")
#: Files that earlier work on this machine may have left.
ABSENT = ("/etc/ganeti", "/etc/default/ganeti", "/etc/cron.d/ganeti", "/srv/ganeti")
ABSENT += ("/var/lib/ganeti", "/var/log/ganeti", "/opt/ganeti", "/usr/lib/ganeti")
#: The first process of a machine: it reaps the children of others.
REAPER = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
print("ready", flush=True)
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass
"""
SET_UP = """
set -e
root=$1 upper=$2 work=$3 hidden=$4
mkdir -p "$root" "$upper" "$work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$upper,workdir=$work" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
for place in $hidden; do mount -t tmpfs -o mode=755 tmpfs "$root$place"; done
chmod 700 "$root/root"
chmod 1777 "$root/tmp" "$root/var/tmp"
mkdir -p "$root/run/sshd" "$root/run/lock"
exec chroot "$root" /usr/bin/python3 -I -c "$5"
"""


class Machine:
    """A machine with namespaces of its own; it ends with its first process."""

    def __init__(self, directory, name, layer=None):
        self.name = name
        self.upper = directory / name / "upper"
        if layer is not None:
            # A second lower layer would overlap with the first, which has this file system.
            self.upper.parent.mkdir()
            subprocess.run(["cp", "-a", layer, self.upper], check=True)
        places = [*map(pathlib.Path, EMPTY), TOP, (TOP / ".venv").resolve()]
        # Nothing is left to hide below a hidden directory.
        hidden = [str(p) for p in places if not set(p.parents) & set(places)]
        self._holder = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--fork"),
                *("--kill-child", "--propagation", "private"),
                *("bash", "-c", SET_UP, "machine", str(directory / name / "root")),
                *(str(self.upper), str(directory / name / "work")),
                *(" ".join(hidden), REAPER),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            text=True,
        )
        first = self._holder.stdout.readline()
        assert first == "ready\n", first + self._holder.stdout.read()
        children = f"/proc/{self._holder.pid}/task/{self._holder.pid}/children"
        self.pid = int(pathlib.Path(children).read_text().split()[0])

    def path(self, path):
        """Return a path of the machine as this process reaches it."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def argv(self, command, where="/"):
        enter = (
            "nsenter",
            "-t",
            str(self.pid),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "-r",
            "-w",
        )
        return [*enter, "--", *ENVIRONMENT, "bash", "-c", f"cd {where}; {command}"]

    def run(self, command, *, where="/", text=""):
        """Return exit code and output of a command, stderr on stdout."""
        done = subprocess.run(
            self.argv(f"{{ {command}\n}} 2>&1", where),
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout

    def check(self, command, **options):
        code, output = self.run(command, **options)
        assert code == 0, f"{self.name}: {command}\n{output}"
        return output

    def talk(self, command, answers):
        """Run a command on a terminal; send each answer when its question appears."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvp("nsenter", self.argv(command))
        shown, left = "", list(answers)
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            shown += data.decode(errors="replace")
            if left and re.search(left[0][0], shown):
                os.write(terminal, left.pop(0)[1])
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        assert not left, f"{self.name}: {command}: no {left[0][0]!r} in:\n{shown}"
        return os.waitstatus_to_exitcode(status), shown

    def stop(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()


def copy_tree(machine, where):
    """Copy the files of this tree that belong to it."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    for name in filter(None, names):
        target = machine.path(f"{where}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, target, follow_symlinks=False)


def copy_packages(machine):
    """Do what pip would do, without a network."""
    source = next((TOP / ".venv").resolve().glob("lib/python3*/site-packages"))
    version = machine.check("/opt/ganeti/bin/python -V").split()[1]
    if f"python{'.'.join(version.split('.')[:2])}" != source.parent.name:
        pytest.skip(f"the packages here are not for the system's Python {version}")
    target = machine.path(f"/opt/ganeti/lib/{source.parent.name}/site-packages")
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)


def connect(wire, machines):
    """Give each machine a card ``eno1`` as port of ``br0``, as section 3 describes."""

    def ip(*words):
        words = ["nsenter", "-t", str(wire), "-n", "ip", *words]
        subprocess.run(words, check=True)

    ip("link", "add", "wire", "type", "bridge")
    ip("link", "set", "wire", "up")
    for name, machine in machines.items():
        peer = ("peer", "name", "eno1", "netns", str(machine.pid))
        ip("link", "add", name, "type", "veth", *peer)
        ip("link", "set", name, "master", "wire", "up")
        machine.check(
            "ip link set lo up; ip link add br0 type bridge;"
            " ip link set eno1 master br0 up; ip link set br0 up;"
            f" ip addr add {NODES[name]} dev br0"
        )


@contextlib.contextmanager
def new_folder(subject):
    """Give a folder for machines outside of the usual place of tests, which they hide."""
    made = pathlib.Path(tempfile.mkdtemp(prefix=f"ganeti-{subject}-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def connected(directory, layer, names, hosts, more="true"):
    """Give machines by name that reach each other and have SSH.

    Args:
        directory: of their files.
        layer: what they have over this machine's system.
        names: of `NODES`.
        hosts: text of their ``/etc/hosts``.
        more: commands that each runs.
    """
    wire = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    made = {}
    try:
        for name in names:
            made[name] = Machine(directory, name, layer)
        connect(wire.pid, made)
        for name, machine in made.items():
            machine.path("/etc/hosts").write_text(hosts)
            machine.check(f"hostname {name}.example.com; ssh-keygen -A; /usr/sbin/sshd")
            machine.check(more)
        yield made
    finally:
        for machine in made.values():
            machine.stop()
        wire.kill()
        wire.wait()
