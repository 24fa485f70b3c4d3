"""Control of nodes: their SSH server, daemons and guests, and the power switch."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.base.filesystem import files
from ganeti.base.process import Runner, RunResult
from ganeti.devel.vcluster import isolation, processes
from ganeti.devel.vcluster.layout import Layout, Node

#: Timeout in seconds until a server listens.
START_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.01
#: File in a simple node's root with its boot id, for `ganeti.node.calls.basics`;
#: that module is too slow to import here.
BOOT_ID_NAME: Final = "boot-id"
SSHD: Final = "/usr/sbin/sshd"
#: Directory that sshd requires when it runs as root.
_SSHD_PRIVSEP: Final = "/run/sshd"


@contextlib.contextmanager
def _left_to_the_command(number: signal.Signals) -> Iterator[None]:
    """Do not end at a signal during a block; child processes get it as usual."""
    before = signal.getsignal(number)
    if before is not signal.SIG_IGN:
        # A function, since children would inherit that the signal is ignored.
        signal.signal(number, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(number, before)


class NodeControl:
    """Start, inspection and end of processes on nodes."""

    def __init__(self, layout: Layout, process: Runner) -> None:
        self._layout = layout
        self._process = process

    # Commands
    def argv(self, node: Node, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on a node from this machine."""
        if self._layout.isolated:
            return isolation.enter(self._layout, node, command)
        return list(command)

    def environment(self, node: Node) -> dict[str, str]:
        """Return the environment of commands on a node."""
        return self._layout.environment(node)

    def run(
        self, node: Node, command: Sequence[str], *, timeout_s: float | None = 120.0
    ) -> RunResult:
        """Run a command on a node and collect its output."""
        return self._process.run(
            self.argv(node, command),
            env=self.environment(node),
            timeout_s=timeout_s,
        )

    def call(self, node: Node, command: Sequence[str], extra: Mapping[str, str]) -> int:
        """Run a command with our own terminal and return its exit code.

        An interrupt from the terminal is left to the command, which gets it too.
        Only the main thread may call this function.
        """
        with _left_to_the_command(signal.SIGINT):
            child = subprocess.run(
                self.argv(node, command),
                env={**extra, **self.environment(node)},
                check=False,
            )
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    # State
    def processes_on(self, node: Node) -> list[processes.Process]:
        """Return the processes of a node."""
        if self._layout.isolated:
            return isolation.processes_of(self._layout, node)
        return processes.of_root(node.root)

    def is_powered(self, node: Node) -> bool:
        """Return whether a node is switched on."""
        return not os.path.exists(self._off_file(node))

    def _off_file(self, node: Node) -> str:
        return os.path.join(self._layout.directory, "state", f"{node.name}.off")

    # Life
    def boot(self, node: Node) -> None:
        """Boot a node like a machine: namespaces, then the SSH server."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._off_file(node))
        if self._layout.isolated:
            isolation.start(self._layout, node)
        elif not self.processes_on(node):
            path = os.path.join(node.root, BOOT_ID_NAME)
            files.write_file(path, isolation.new_boot_id(), mode=0o644)
        self.start_sshd(node)

    def power_on(self, node: Node) -> str:
        """Boot a node and start its daemons, as a machine's init would.

        Returns:
            errors of daemons that did not start, empty if all did. A master that was
            replaced while it was off, for example, must not start its daemons.

        Raises:
            OpExecError: the node daemon does not run either.
        """
        self.boot(node)
        if not os.path.exists(
            self._layout.host_path(node, "/var/lib/ganeti/server.pem")
        ):
            return ""
        try:
            self.start_daemons(node)
        except errors.OpExecError as err:
            if "ganeti-noded" not in {
                process.name for process in self.processes_on(node)
            }:
                raise
            return str(err)
        return ""

    def power_off(self, node: Node) -> int:
        """Cut a node's power: all processes die at once, /run is empty afterwards.

        Returns:
            number of killed processes.
        """
        with open(self._off_file(node), "w", encoding="ascii"):
            pass
        count = self.kill(node)
        run_dir = self._layout.host_path(node, "/var/run/ganeti")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(run_dir):
                path = os.path.join(run_dir, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)
        return count

    def kill(self, node: Node, daemon: str | None = None) -> int:
        """Kill all processes of a node, or those of one daemon; return their number.

        Their locks and sockets are released when this returns.

        Raises:
            OpPrereqError: the daemon does not run there.
            TimeoutError: a process does not die.
        """
        if daemon is None:
            count = processes.kill_all(lambda: self.processes_on(node))
            if self._layout.isolated:
                isolation.forget(self._layout, node)
            return count
        chosen = [
            p for p in self.processes_on(node) if p.name in (daemon, f"ganeti-{daemon}")
        ]
        if not chosen:
            names = sorted({process.name for process in self.processes_on(node)})
            raise errors.OpPrereqError(
                f"node {node.short}: {daemon} does not run there; running:"
                f" {', '.join(names) or 'nothing'}",
                "wrong_state",
            )
        processes.kill(chosen)
        return len(chosen)

    def pause(self, node: Node) -> int:
        """Suspend all processes of a node; return their number."""
        on_node = self.processes_on(node)
        processes.send(on_node, signal.SIGSTOP)
        return len(on_node)

    def resume(self, node: Node) -> int:
        """Continue suspended processes; return their number."""
        on_node = self.processes_on(node)
        processes.send(on_node, signal.SIGCONT)
        return len(on_node)

    def start_daemons(self, node: Node) -> None:
        """Start all daemons of a node and wait until they serve.

        Raises:
            OpExecError: a daemon does not start.
        """
        self._daemon_util(node, "start-all")

    def start_daemon(self, node: Node, daemon: str) -> None:
        """Start one daemon."""
        name = daemon if daemon.startswith("ganeti-") else f"ganeti-{daemon}"
        self._daemon_util(node, "start", name)

    def _daemon_util(self, node: Node, *words: str) -> None:
        program = os.path.join(_buildconf.TOOLSDIR, "daemon-util")
        result = self.run(node, [program, *words])
        if result.failed:
            raise errors.OpExecError(
                f"node {node.short}: daemon-util {' '.join(words)} {result.reason}:"
                f" {result.output.strip()}"
            )

    # SSH server
    def start_sshd(self, node: Node) -> None:
        """Start a node's SSH server unless it runs, and wait until it listens."""
        if self.answers(node):
            return
        if os.getuid() == 0:
            os.makedirs(_SSHD_PRIVSEP, mode=0o755, exist_ok=True)
        root = "" if self._layout.isolated else node.root
        log = f"{root}/var/log/ganeti/sshd.log"
        command = [SSHD, "-f", f"{root}/etc/ssh/sshd_config", "-E", log]
        result = self.run(node, command)
        if result.failed:
            raise errors.OpExecError(
                f"node {node.short}: sshd {result.reason}: {result.output.strip()}"
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers(node):
            if time.monotonic() > deadline:
                raise errors.OpExecError(
                    f"node {node.short}: sshd does not listen on {node.address} port"
                    f" {self._layout.ssh_port}; see"
                    f" {self._layout.host_path(node, '/var/log/ganeti/sshd.log')}"
                )
            time.sleep(_POLL_S)

    def answers(self, node: Node) -> bool:
        """Return whether the SSH server of a node answers."""
        try:
            address = (node.address, self._layout.ssh_port)
            socket.create_connection(address, 1.0).close()
        except OSError:
            return False
        return True


_STATUS: Final = "status"
_HEALTH: Final = "health"
#: Command of an out-of-band helper -> action.
POWER_ACTIONS: Final[Mapping[str, str]] = {
    oob.OOB_POWER_ON: "on",
    oob.OOB_POWER_OFF: "off",
    oob.OOB_POWER_CYCLE: "cycle",
    oob.OOB_POWER_STATUS: _STATUS,
    oob.OOB_HEALTH: _HEALTH,
}


def power_act(layout: Layout, control: NodeControl, action: str, name: str) -> str:
    """Execute an action of `POWER_ACTIONS`; return the output of an out-of-band helper.

    Raises:
        GenericError: there is no such node, or its daemons do not start.
    """
    node = layout.node(name)
    if action == _STATUS:
        powered = {oob.OOB_POWER_STATUS_POWERED: control.is_powered(node)}
        return json.dumps(powered) + "\n"
    if action == _HEALTH:
        is_on = control.is_powered(node)
        state = oob.OOB_STATUS_OK if is_on else oob.OOB_STATUS_CRITICAL
        return json.dumps([["Power", state]]) + "\n"
    if action in ("off", "cycle"):
        control.power_off(node)
    if action in ("on", "cycle"):
        control.power_on(node)
    return ""
