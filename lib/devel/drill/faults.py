"""Faults of the nodes in drills, and their end."""

import contextlib
import glob
import os
import shlex
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.devel.vcluster import etcd, isolation, network
from ganeti.devel.vcluster.layout import Layout, Node
from ganeti.devel.vcluster.nodes import NodeControl

MAINTD: Final = "ganeti-maintd"
MASTER_DAEMONS: Final = ("ganeti-masterd", MAINTD)
_FAKETIME: Final = "/usr/lib/*/faketime/libfaketime.so.1"
_NODED: Final = "ganeti-noded"
#: Name of the file system of a full disk.
_DISK: Final = "drill-disk"
_PLACES: Final = "/var/lib/ganeti /var/log/ganeti"
_MOUNT: Final = """
for place in {places}; do
  new=$(mktemp -d)
  mount -t tmpfs -o size=32m,mode=755 {disk} "$new"
  cp -a "$place/." "$new/"
  mount --move "$new" "$place"
  rmdir "$new"
done
"""
_FILL: Final = """
for place in {places}; do
  dd if=/dev/zero of="$place/full" bs=4k 2>&1 | grep -q "No space left"
done
"""
_FREE: Final = """
for place in {places}; do rm -f "$place/full"; done
"""
_UNMOUNT: Final = """
for place in {places}; do
  cp -a "$place/." {root}"$place/"
  umount -l "$place"
done
"""
#: Waits while the file "hold" exists, and lies while "lie" exists; "odd" is a script
#: that it runs instead.
_HELPER: Final = """#!/bin/sh
# Out-of-band helper of drills: COMMAND NODE.
[ ! -e '{directory}/odd' ] || . '{directory}/odd'
if [ -e '{directory}/lie' ]; then
  [ "$1" = power-status ] || exit 0
  : > '{directory}/asked'
  while [ -e '{directory}/hold' ]; do sleep 0.1; done
  echo '{{"powered": false}}'
  exit 0
fi
exec '{program}' "$@"
"""


class Faults:
    """Acts of drills on nodes and on the out-of-band helper, and their end."""

    def __init__(self, layout: Layout, control: NodeControl) -> None:
        self._layout = layout
        self._control = control
        self._directory = os.path.join(layout.directory, "state", "drill")

    def write_helper(self) -> str:
        """Write the helper and its settings; return the path of the helper."""
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        program = os.path.join(_buildconf.TOOLSDIR, "oob-vcluster")
        text = _HELPER.format(directory=self._directory, program=program)
        files.write_file(f"{self._directory}/power", text, mode=0o755)
        settings = f"[*]\ndirectory = {self._layout.directory}\n"
        for node in self._layout.nodes:
            path = self._layout.host_path(node, "/etc/ganeti/oob-vcluster.conf")
            files.write_file(path, settings, mode=0o600)
        return f"{self._directory}/power"

    def cut(self, node: Node, others: list[Node]) -> None:
        """Drop what a node sends to others, unless it is down."""
        self._cut(node, [other.address for other in others])

    def isolate(self, node: Node) -> None:
        """Drop what a node sends to all other nodes and to the store."""
        self._cut(node, self._addresses(node))

    def _cut(self, node: Node, addresses: list[str]) -> None:
        pid = isolation.holder(self._layout, node)
        if pid is not None:
            network.cut(pid, addresses)

    def _addresses(self, node: Node) -> list[str]:
        """Return all addresses that a node can be cut off from."""
        servers = etcd.COUNT if self._layout.has_etcd else 0
        return [
            *(other.address for other in self._layout.others(node)),
            *(etcd.address(self._layout, number) for number in range(servers)),
        ]

    def lie(self, *, hold: bool) -> None:
        """Let the helper say "off" and do nothing; with hold, not yet."""
        for name in ("lie", "hold") if hold else ("lie",):
            files.write_file(f"{self._directory}/{name}", "", mode=0o644)
        if not hold:
            files.remove_file(f"{self._directory}/hold")

    def spoil_helper(self, script: str) -> None:
        """Let the helper run a shell script before anything else."""
        files.write_file(f"{self._directory}/odd", script, mode=0o644)

    @property
    def is_helper_asked(self) -> bool:
        """Whether the helper was asked for the power status since it lies."""
        return os.path.exists(f"{self._directory}/asked")

    def stop_lying(self) -> None:
        """Undo `lie`."""
        for name in ("lie", "hold", "asked", "odd"):
            files.remove_file(f"{self._directory}/{name}")

    def heal(self) -> None:
        """Connect all nodes that are up."""
        for node in self._layout.nodes:
            pid = isolation.holder(self._layout, node)
            if pid is not None:
                network.join(pid, self._addresses(node))

    def fill_disk(self, node: Node) -> None:
        """Fill a node's disk for state and logs; then its node daemon starts again."""
        self._restarted(node, _MOUNT)
        self._script(node, _FILL)
        self._control.kill(node, _NODED)
        self._control.start_daemon(node, _NODED)

    def free_space(self, node: Node) -> None:
        """Remove what fills a node's disk, under its daemons."""
        self._script(node, _FREE)

    def _restarted(self, node: Node, script: str) -> None:
        """Run a script while those daemons do not run that have open files."""
        running = {process.name for process in self._control.processes_on(node)}
        daemons = [name for name in (_NODED, *MASTER_DAEMONS) if name in running]
        for name in daemons:
            self._control.kill(node, name)
        self._script(node, script)
        for name in daemons:
            try:
                self._control.start_daemon(node, name)
            except errors.OpExecError:
                # Another node may have become the master.
                if name == _NODED:
                    raise

    def _free_disk(self, node: Node) -> None:
        """Undo `fill_disk`; what was written since is kept."""
        mounts = files.read_file(
            f"/proc/{isolation.require_holder(self._layout, node)}/mounts"
        )
        if _DISK.encode() not in mounts:
            return
        self.free_space(node)
        self._restarted(node, _UNMOUNT)

    def shift_clock(self, node: Node, daemons: tuple[str, ...], seconds: int) -> None:
        """Start daemons of a node again, with another time of day.

        Raises:
            OpPrereqError: the library that gives it is not installed.
        """
        libraries = glob.glob(_FAKETIME)
        if seconds and not libraries:
            raise errors.OpPrereqError(
                "drill: another time of day needs the package libfaketime",
                ecodes.ECODE_STATE,
            )
        words = ["env", f"FAKETIME={seconds:+}", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        words += [f"LD_PRELOAD={each}" for each in libraries[:1] if seconds]
        for name in daemons:
            with contextlib.suppress(errors.OpPrereqError):
                self._control.kill(node, name)
        program = os.path.join(_buildconf.TOOLSDIR, "daemon-util")
        for name in daemons:
            command = [program, "start", name]
            result = self._control.run(node, [*words, *command])
            # Another node may have become the master.
            if result.failed and name not in MASTER_DAEMONS:
                raise errors.OpExecError(f"drill: {name}: {result.output.strip()}")

    def servers(self, action: str, numbers: tuple[int, ...]) -> None:
        """Start or kill servers of etcd, counted from 0."""
        for number in numbers:
            getattr(etcd, action)(self._layout, number)

    def _script(self, node: Node, text: str) -> None:
        script = text.format(disk=_DISK, root=shlex.quote(node.root), places=_PLACES)
        result = self._control.run(node, ["sh", "-ec", script])
        if result.failed:
            raise errors.OpExecError(
                f"drill: the disk of {node.short}: {result.output.strip()}"
            )

    def mend(self) -> None:
        """End all faults, as a person does who switches all machines on."""
        self.heal()
        self.stop_lying()
        if self._layout.has_etcd:
            self.servers("start", tuple(range(etcd.COUNT)))
        for node in self._layout.nodes:
            self._control.resume(node)
            if isolation.holder(self._layout, node) is None:
                self._control.power_on(node)
            self._free_disk(node)
