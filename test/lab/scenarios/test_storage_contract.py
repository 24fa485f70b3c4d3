"""LVM and the kernel answer the commands of the contract as the fakes do."""

import os
import subprocess

import pytest

from fakes import storage_contract as contract
from ganeti.base.process import RunResult
from ganeti.node.storage import drbd_commands
from lab.lab import quote
from lab.mirroring import GROUP, shell

#: Disks and addresses of the contract -> those of the machines.
NAMES = {"/dev/sda": "/dev/vdb", "/dev/sdb": "/dev/vdc", "192.0.2.": "10.77.0."}
#: Ends what a story has left. The disks are as large as the contract says.
BEGIN = (
    f"drbdsetup down resource0; vgremove -q -f -y {GROUP}; wipefs -qaf /dev/vdb /dev/vdc;"
    + "".join(
        f"pvcreate -q -f -y --setphysicalvolumesize {size + 1}m {disk};"
        for disk, size in zip(("/dev/vdb", "/dev/vdc"), contract.SIZES, strict=True)
    )
    + f"vgcreate -q {GROUP} /dev/vdb /dev/vdc"
)
#: Makes the mirror of the other node, with or without valid data.
PEER = f"""set -e; m=/dev/{GROUP}/m; ends="ipv4:10.77.0.2:11000 ipv4:10.77.0.1:11000"
lvcreate -q --yes --size 8m --name d {GROUP}; lvcreate -q --yes --size 128m --name m {GROUP}
drbdmeta --force 999999 v08 $m 0 create-md
{{}}
drbdsetup new-resource resource0; drbdsetup new-minor resource0 0 0
drbdsetup attach 0 /dev/{GROUP}/d $m 0
drbdsetup connect resource0 $ends --protocol=C --after-sb-0pri=discard-zero-changes \\
  --after-sb-1pri=consensus --cram-hmac-alg=md5 --shared-secret=5ec2e7
"""
HAS_DATA = "drbdmeta --force 999999 v08 $m 0 set-gi 5F0A1B2C3D4E5F60:0:0:0:1:1"
#: Runs a command line and frames its output, its exit code and its messages.
FRAMED = "{} 2> /tmp/said; printf '\\036%d\\036' $?; cat /tmp/said; printf '\\036'\n"


class Kernel:
    """The tools of the first machine, for which the second one is the other node.

    One shell runs all commands: a login for each takes as long as the command.
    """

    def __init__(self, machines, proc):
        self._machines, self._proc = machines, proc
        self.process = self
        shell(machines, BEGIN)
        argv = [*machines.lab.machine("lab1").ssh(), "LC_ALL=C sh"]
        pipe = subprocess.PIPE
        self._shell = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._shell.communicate()

    def run_bounded(self, argv, **_limits):
        """Run a command there; disks and addresses have the contract's names."""
        line = " ".join(quote(word) for word in argv)
        for name, there in NAMES.items():
            line = line.replace(name, there)
        self._shell.stdin.write(FRAMED.format(line))
        self._shell.stdin.flush()
        stdout, code, stderr = (self._part() for _ in range(3))
        return RunResult(tuple(argv), int(code), None, stdout, stderr)

    def _part(self):
        text = "".join(iter(lambda: self._shell.stdout.read(1), "\036"))
        for name, there in NAMES.items():
            text = text.replace(there, name)
        return text

    def look(self):
        """Copy the kernel's text."""
        self._proc.write_text(self.run_bounded(("cat", "/proc/drbd")).stdout)

    def lose(self, device):
        """Let a disk return errors."""
        disk = list(NAMES).index(device)
        self._machines.lab.fail_disk("lab1", disk, ["read", "write"])

    def peer(self, state):
        """Let the other node connect, with data or not, or go."""
        valid = HAS_DATA if state == "has-data" else ""
        made = f"{BEGIN}; {PEER.format(valid)}"
        script = "drbdsetup down resource0" if state == "goes" else made
        shell(self._machines, script, "lab2")

    def until(self, words):
        """Wait for words of the kernel."""
        script = f"until grep -q '{words}' /proc/drbd; do sleep 0.1; done"
        done = self.run_bounded(("timeout", "60", "sh", "-c", script))
        assert not done.code, f"never {words}"


@pytest.fixture
def answered(machines, tmp_path, monkeypatch):
    """Give the function that returns a story as the kernel answers it."""
    proc = tmp_path / "drbd"
    monkeypatch.setattr(drbd_commands, "PROC", str(proc))

    def play(lines):
        machines.lab.fail_disk("lab1", 1, [])
        with Kernel(machines, proc) as node:
            return contract.answered(node, lines)

    yield play
    for node in ("lab1", "lab2"):
        machines.lab.leave(node, ("/dev/vdb", "/dev/vdc"))


@pytest.mark.sampled
def test_the_kernel_keeps_the_contract(answered):
    known = contract.stories()
    actual = {title: answered(lines) for title, lines in known.items()}
    if os.environ.get("RECORD_TRANSCRIPTS"):
        contract.record(actual)
    assert actual == known
