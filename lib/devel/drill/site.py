"""The virtual cluster of drills: its settings, its guest, faults, and what it knows.

Everything that a drill changes is undone: a node is switched on and taken back, and the
settings of the cluster are those of before when the drills end.
"""

import concurrent.futures
import contextlib
import glob
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import Entry
from ganeti.decisions.repair.node_lives import Death, DeathState
from ganeti.devel.drill import proof
from ganeti.devel.vcluster import etcd, isolation, network
from ganeti.devel.vcluster.layout import DOMAIN, Layout, Node
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.node.hypervisor.kvm.qmp import Qmp
from ganeti.protocols import luxi

T = TypeVar("T")
GUEST: Final = f"drill.{DOMAIN}"
_TAG: Final = "ganeti:watcher:autorepair:failover"
#: Drills fence nodes one after another.
_LIMITS: Final = {"fenced-per-hour": 1000, "quiet-time": 0}
_LIMITS_KEY: Final = "automation_limits"
_MAINTD: Final = "ganeti-maintd"
_MASTER_DAEMONS: Final = ("ganeti-masterd", _MAINTD)
#: Least number of nodes: with one dead, two candidates besides the master agree.
MIN_NODES: Final = 4
#: Seconds between two looks at something that is waited for.
_POLL_S: Final = 0.05
#: Most seconds until the cluster follows a command of a person.
PATIENCE_S: Final = 120.0
_CALL_S: Final = 20.0
#: Most seconds until a master daemon answers an easy question.
_LOOK_S: Final = 3.0
_FAKETIME: Final = "/usr/lib/*/faketime/libfaketime.so.1"
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


class Site:
    """An isolated virtual cluster with monitoring."""

    def __init__(self, layout: Layout, control: NodeControl) -> None:
        """Check that drills can be played here.

        Raises:
            OpPrereqError: the nodes are not isolated, too few, or the maintenance
                daemon does not run.
        """
        if not layout.isolated or not layout.monitoring:
            raise errors.OpPrereqError(
                "drill: the nodes need networks of their own and the maintenance"
                " daemon; create the cluster with `vcluster up -n 4 --isolated"
                " --monitoring`",
                ecodes.ECODE_STATE,
            )
        if len(layout.nodes) < MIN_NODES:
            raise errors.OpPrereqError(
                f"drill: wanted at least {MIN_NODES} nodes, found {len(layout.nodes)}",
                ecodes.ECODE_STATE,
            )
        self.layout = layout
        self.control = control
        self._leader = layout.master_node
        self._directory = os.path.join(layout.directory, "state", "drill")

    # Commands
    def run(self, *words: str) -> str:
        """Run a command on the master that must succeed; return its output.

        Raises:
            OpExecError: it fails.
        """
        result = self.control.run(self.master, words)
        if result.failed:
            raise errors.OpExecError(
                f"drill: {' '.join(words)} {result.reason}: {result.output.strip()}"
            )
        return result.stdout

    def call(
        self,
        method: str,
        *args: Any,
        node: Node | None = None,
        timeout_s: float = _CALL_S,
    ) -> Any:
        """Call the master daemon; with a node, the one that may run there."""
        sockets = self.layout.host_path(node or self.master, "/var/run/ganeti/socket")
        with luxi.Client(
            f"{sockets}/ganeti-query",
            timeout_s=timeout_s,
            connect_timeout_s=0.1 if node else _CALL_S,
            retries=0,
        ) as client:
            return client.call(method, args)

    @property
    def candidates(self) -> list[Node]:
        """The nodes, the last known master first."""
        return [self._leader, *self.others(self._leader)]

    @property
    def master(self) -> Node:
        """The node whose master daemon answers; waits for one.

        Raises:
            OpExecError: none answers in time.
        """
        self.until("a master daemon answers", self._find_master)
        return self._leader

    def _find_master(self) -> Node | None:
        for node in self.candidates:
            with contextlib.suppress(errors.GenericError, OSError):
                self.call(
                    "QueryConfigValues", ["master_node"], node=node, timeout_s=_LOOK_S
                )
                self._leader = node
                return node
        return None

    def rest(self, seconds: float) -> None:
        """Let a fault last."""
        time.sleep(seconds)

    def await_if(self, ask: Callable[[], object], limit_s: float) -> bool:
        """Wait until a function returns something true; return whether it did."""
        try:
            self.until("", ask, limit_s)
        except errors.OpExecError:
            return False
        return True

    def until(
        self, wanted: str, ask: Callable[[], T], limit_s: float = PATIENCE_S
    ) -> T:
        """Wait until a function returns something true; return that.

        Raises:
            OpExecError: the time has run out.
        """
        deadline = time.monotonic() + limit_s
        while not (answer := ask()):
            if time.monotonic() > deadline:
                raise errors.OpExecError(f"not within {limit_s:g} s: {wanted}")
            time.sleep(_POLL_S)
        return answer

    # Life
    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Set the cluster up for drills during a block, with a guest.

        Raises:
            OpPrereqError: the cluster does not use KVM.
        """
        before = json.loads(self.run("gnt-cluster", "info", "--json"))
        if "kvm" not in before["enabled_hypervisors"]:
            raise errors.OpPrereqError(
                "drill: the guest that proves its runs needs the hypervisor kvm, the"
                f" cluster has {', '.join(before['enabled_hypervisors'])}",
                ecodes.ECODE_STATE,
            )
        self._write_helper()
        try:
            helper = f"--node-parameters=oob_program={self._directory}/power"
            self.run("gnt-cluster", "modify", helper)
            if _TAG not in before["tags"]:
                self.run("gnt-cluster", "add-tags", _TAG)
            self._create_guest()
            yield
        finally:
            self._restore(before)

    def _write_helper(self) -> None:
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        program = os.path.join(_buildconf.TOOLSDIR, "oob-vcluster")
        text = _HELPER.format(directory=self._directory, program=program)
        files.write_file(f"{self._directory}/power", text, mode=0o755)
        settings = f"[*]\ndirectory = {self.layout.directory}\n"
        for node in self.layout.nodes:
            path = self.layout.host_path(node, "/etc/ganeti/oob-vcluster.conf")
            files.write_file(path, settings, mode=0o600)

    def _create_guest(self) -> None:
        arguments = "quiet tiny.record=/dev/vda tiny.heartbeat=no"
        self.run(
            *("gnt-instance", "add", "--no-install", "--no-start", "--no-nics"),
            *("-t", "sharedfile", "-s", "1m", "-o", "tiny+default"),
            *("-B", "memory=96m", "-n", self.others(self.master)[-1].short),
            *("-H", f"kvm:kernel_args={arguments}", GUEST),
        )
        self.run("gnt-instance", "startup", GUEST)

    def _restore(self, before: dict[str, Any]) -> None:
        limits = {name: f"{value:g}" for name, value in before[_LIMITS_KEY].items()}
        wanted = [f"{name}={value}" for name, value in limits.items()]
        wanted += [f"-{name}" for name in _LIMITS if name not in limits]
        program = before["ndparams"]["oob_program"]
        switch = "yes" if before["node_death"] else "no"
        self.run(
            *("gnt-cluster", "modify", f"--node-death={switch}"),
            f"--automation-limits={','.join(wanted)}",
            f"--node-parameters=oob_program={program}",
        )
        if _TAG not in before["tags"]:
            self.run("gnt-cluster", "remove-tags", _TAG)
        with contextlib.suppress(errors.OpExecError):
            self.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", GUEST)

    def watch(self) -> None:
        """Let the cluster handle deaths of nodes, from now on.

        A maintenance daemon that runs looks at the switch every 10 seconds only.
        """
        limits = ",".join(f"{name}={value}" for name, value in _LIMITS.items())
        words = ("--node-death=yes", f"--automation-limits={limits}")
        self.run("gnt-cluster", "modify", *words)
        master = self.master
        with contextlib.suppress(errors.OpPrereqError):
            self.control.kill(master, _MAINTD)
        self.control.start_daemon(master, _MAINTD)

    def forget(self) -> None:
        """Let it forget deaths; those of two drills would be a mass event."""
        self.run("gnt-cluster", "modify", "--node-death=no")
        self.until("deaths of nodes are forgotten", lambda: self.is_forgotten)

    @property
    def is_forgotten(self) -> bool:
        """Whether the master remembers no death and no fence."""
        try:
            answer = self.call("QueryNodeDeaths", False)
        except (errors.GenericError, OSError):
            return False
        return msgspec.convert(answer["state"], DeathState).is_empty

    # Facts
    def boots(self) -> tuple[proof.Boot, ...]:
        """Return the boots of the guest; none before its first one."""
        paths = glob.glob(f"{self.layout.shared_directory}/{GUEST}/*")
        return proof.read(paths[0]) if paths else ()

    def guest(self) -> tuple[Node, str]:
        """Return the primary node of the guest and its status."""
        words = ("gnt-instance", "list", "--no-headers", "-o", "pnode,status", GUEST)
        node, status = self.run(*words).split()
        return self.layout.node(node), status

    def deaths(self) -> dict[str, Death]:
        """Return the deaths that the master remembers; none while it is away."""
        try:
            answer = self.call("QueryNodeDeaths", False)
        except (errors.GenericError, OSError):
            return {}
        state = msgspec.convert(answer["state"], DeathState)
        return {death.name: death for death in state.deaths}

    def entries(self, node: Node, since: float) -> list[Entry]:
        """Return the entries of the journal about the death of a node."""
        wanted = {"automaton": journal.NODE_DEATH, "node": node.name, "since": since}
        return [
            msgspec.convert(each, Entry) for each in self.call("QueryJournal", wanted)
        ]

    def emulator_state(self) -> str:
        """Return the state of the guest's emulator, as the emulator reports it."""
        controls = "/var/run/ganeti/kvm-hypervisor/ctrl"
        path = self.layout.host_path(self.guest()[0], f"{controls}/{GUEST}.kvmd")
        try:
            with Qmp(path, GUEST) as qmp:
                return str(qmp.execute("query-status")["status"])
        except errors.HypervisorError as err:
            return f"silent: {err.args[0]}"

    def reboot_guest(self) -> None:
        """Start the guest again, without its help."""
        self.run("gnt-instance", "reboot", "--type=hard", GUEST)

    # Faults and their end
    def cut(self, node: Node, others: list[Node]) -> None:
        """Drop what a node sends to others, unless it is down."""
        self._cut(node, [other.address for other in others])

    def isolate(self, node: Node) -> None:
        """Drop what a node sends to all other nodes and to the store."""
        self._cut(node, self._addresses(node))

    def _cut(self, node: Node, addresses: list[str]) -> None:
        pid = isolation.holder(self.layout, node)
        if pid is not None:
            network.cut(pid, addresses)

    def _addresses(self, node: Node) -> list[str]:
        """Return all addresses that a node can be cut off from."""
        servers = etcd.COUNT if self.has_etcd else 0
        return [
            *(other.address for other in self.others(node)),
            *(etcd.address(self.layout, number) for number in range(servers)),
        ]

    @property
    def has_etcd(self) -> bool:
        """Whether the cluster keeps its state in etcd."""
        return os.path.isdir(os.path.join(self.layout.directory, "etcd"))

    def others(self, node: Node) -> list[Node]:
        """Return all nodes but one."""
        return [other for other in self.layout.nodes if other != node]

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
        for node in self.layout.nodes:
            pid = isolation.holder(self.layout, node)
            if pid is not None:
                network.join(pid, self._addresses(node))

    def fill_disk(self, node: Node) -> None:
        """Fill a node's disk for state and logs; then its node daemon starts again."""
        self._restarted(node, _MOUNT)
        self._script(node, _FILL)
        self.control.kill(node, _NODED)
        self.control.start_daemon(node, _NODED)

    def free_space(self, node: Node) -> None:
        """Remove what fills a node's disk, under its daemons."""
        self._script(node, _FREE)

    def _restarted(self, node: Node, script: str) -> None:
        """Run a script while those daemons do not run that have open files."""
        running = {process.name for process in self.control.processes_on(node)}
        daemons = [name for name in (_NODED, *_MASTER_DAEMONS) if name in running]
        for name in daemons:
            self.control.kill(node, name)
        self._script(node, script)
        for name in daemons:
            try:
                self.control.start_daemon(node, name)
            except errors.OpExecError:
                # Another node may have become the master.
                if name == _NODED:
                    raise

    def _free_disk(self, node: Node) -> None:
        """Undo `fill_disk`; what was written since is kept."""
        mounts = files.read_file(
            f"/proc/{isolation.require_holder(self.layout, node)}/mounts"
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
                self.control.kill(node, name)
        program = os.path.join(_buildconf.TOOLSDIR, "daemon-util")
        for name in daemons:
            command = [program, "start", name]
            result = self.control.run(node, [*words, *command])
            # Another node may have become the master.
            if result.failed and name not in _MASTER_DAEMONS:
                raise errors.OpExecError(f"drill: {name}: {result.output.strip()}")

    def servers(self, action: str, numbers: tuple[int, ...]) -> None:
        """Start or kill servers of etcd, counted from 0."""
        for number in numbers:
            getattr(etcd, action)(self.layout, number)

    def make_master(self, node: Node) -> None:
        """Wait until another node is the master; with files a person makes it so."""
        if not self.has_etcd:
            result = self.control.run(node, ["gnt-cluster", "master-failover"])
            if result.failed:
                raise errors.OpExecError(f"drill: {result.output.strip()}")
        self.until("another master serves", self._find_master)

    def at_once(self, node: Node, commands: tuple[tuple[str, ...], ...]) -> None:
        """Run commands on a node at the same time; each may fail."""
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            list(pool.map(lambda words: self.control.run(node, words), commands))

    def _script(self, node: Node, text: str) -> None:
        script = text.format(disk=_DISK, root=shlex.quote(node.root), places=_PLACES)
        result = self.control.run(node, ["sh", "-ec", script])
        if result.failed:
            raise errors.OpExecError(
                f"drill: the disk of {node.short}: {result.output.strip()}"
            )

    def kill_master_daemons(self) -> None:
        """Kill the daemons that handle deaths, and start them again."""
        master = self.master
        for name in _MASTER_DAEMONS:
            self.control.kill(master, name)
        for name in _MASTER_DAEMONS:
            with contextlib.suppress(errors.OpExecError):
                # Another node may have become the master.
                self.control.start_daemon(master, name)

    def verify(self) -> None:
        """Wait until ``gnt-cluster verify`` has nothing to report; the watcher helps.

        Raises:
            OpExecError: it reports errors still.
        """
        output = ""

        def is_clean() -> bool:
            nonlocal output
            result = self.control.run(self.master, ["gnt-cluster", "verify"])
            output = result.output
            if not result.failed and "ERROR" not in output:
                return True
            self.look_after()
            return False

        if not self.await_if(is_clean, PATIENCE_S):
            lines = [line for line in output.splitlines() if "ERROR" in line]
            raise errors.OpExecError(f"verify is not clean: {'; '.join(lines[:4])}")

    def look_after(self) -> None:
        """Run the watcher on all nodes that are up, as cron does."""
        for node in self.layout.nodes:
            if isolation.holder(self.layout, node) is not None:
                self.control.run(node, ["ganeti-watcher"])

    def mend(self) -> None:
        """End all faults, as a person does who switches all machines on."""
        self.heal()
        self.stop_lying()
        if self.has_etcd:
            self.servers("start", tuple(range(etcd.COUNT)))
        for node in self.layout.nodes:
            self.control.resume(node)
            if isolation.holder(self.layout, node) is None:
                self.control.power_on(node)
            self._free_disk(node)

    def take_back(self) -> None:
        """Bring all nodes back as a person does, and the guest on a node of its own.

        Raises:
            OpExecError: the cluster is not as before in time.
        """
        self.mend()
        words = ("gnt-node", "list", "--no-headers", "-o", "name,powered,offline")
        for line in self.run(*words).splitlines():
            name, powered, offline = line.split()
            if powered != "Y":
                self.run("gnt-node", "modify", "--node-powered=yes", name)
            if offline == "Y":
                self.run("gnt-node", "modify", "--offline=no", "--force", name)
        self.forget()
        if self.guest()[0] == self.master:
            target = self.others(self.master)[-1].short
            self.run("gnt-instance", "migrate", "-f", "-n", target, GUEST)
