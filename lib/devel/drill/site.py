"""The virtual cluster of drills: its settings, its guest, and what it knows.

Everything that a drill changes is undone: a node is switched on and taken back, and the
settings of the cluster are those of before when the drills end.
"""

import concurrent.futures
import contextlib
import glob
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import Entry
from ganeti.decisions.repair.node_lives import Death, DeathState
from ganeti.devel.drill import witness
from ganeti.devel.drill.faults import MAINTD, MASTER_DAEMONS, Faults
from ganeti.devel.vcluster import isolation
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
#: Least number of nodes: with one dead, two candidates besides the master agree.
MIN_NODES: Final = 4
#: Seconds between two looks at something that is waited for.
_POLL_S: Final = 0.05
#: Most seconds until the cluster follows a command of a person.
PATIENCE_S: Final = 120.0
_CALL_S: Final = 20.0
#: Most seconds until a master daemon answers an easy question.
_LOOK_S: Final = 3.0


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
        self.faults = Faults(layout, control)

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
        return [self._leader, *self.layout.others(self._leader)]

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

    def watch(self) -> None:
        """Let the cluster handle deaths of nodes, from now on.

        A maintenance daemon that runs looks at the switch every 10 seconds only.
        """
        limits = ",".join(f"{name}={value}" for name, value in _LIMITS.items())
        words = ("--node-death=yes", f"--automation-limits={limits}")
        self.run("gnt-cluster", "modify", *words)
        master = self.master
        with contextlib.suppress(errors.OpPrereqError):
            self.control.kill(master, MAINTD)
        self.control.start_daemon(master, MAINTD)

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

    def boots(self) -> tuple[witness.Boot, ...]:
        """Return the boots of the guest; none before its first one."""
        paths = glob.glob(f"{self.layout.shared_directory}/{GUEST}/*")
        return witness.read_boots(paths[0]) if paths else ()

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

    def make_master(self, node: Node) -> None:
        """Wait until another node is the master; with files a person makes it so."""
        if not self.layout.has_etcd:
            result = self.control.run(node, ["gnt-cluster", "master-failover"])
            if result.failed:
                raise errors.OpExecError(f"drill: {result.output.strip()}")
        self.until("another master serves", self._find_master)

    def at_once(self, node: Node, commands: tuple[tuple[str, ...], ...]) -> None:
        """Run commands on a node at the same time; each may fail."""
        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            list(pool.map(lambda words: self.control.run(node, words), commands))

    def kill_master_daemons(self) -> None:
        """Kill the daemons that handle deaths, and start them again."""
        master = self.master
        for name in MASTER_DAEMONS:
            self.control.kill(master, name)
        for name in MASTER_DAEMONS:
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

    def take_back(self) -> None:
        """Bring all nodes back as a person does, and the guest on a node of its own.

        Raises:
            OpExecError: the cluster is not as before in time.
        """
        self.faults.mend()
        words = ("gnt-node", "list", "--no-headers", "-o", "name,powered,offline")
        for line in self.run(*words).splitlines():
            name, powered, offline = line.split()
            if powered != "Y":
                self.run("gnt-node", "modify", "--node-powered=yes", name)
            if offline == "Y":
                self.run("gnt-node", "modify", "--offline=no", "--force", name)
        self.forget()
        if self.guest()[0] == self.master:
            target = self.layout.others(self.master)[-1].short
            self.run("gnt-instance", "migrate", "-f", "-n", target, GUEST)


@contextlib.contextmanager
def prepared(site: Site) -> Iterator[None]:
    """Set the cluster up for drills during a block, with a guest.

    Raises:
        OpPrereqError: the cluster does not use KVM.
    """
    before = json.loads(site.run("gnt-cluster", "info", "--json"))
    if "kvm" not in before["enabled_hypervisors"]:
        raise errors.OpPrereqError(
            "drill: the guest that proves its runs needs the hypervisor kvm, the"
            f" cluster has {', '.join(before['enabled_hypervisors'])}",
            ecodes.ECODE_STATE,
        )
    helper = site.faults.write_helper()
    try:
        site.run("gnt-cluster", "modify", f"--node-parameters=oob_program={helper}")
        if _TAG not in before["tags"]:
            site.run("gnt-cluster", "add-tags", _TAG)
        _create_guest(site)
        yield
    finally:
        _restore(site, before)


def _create_guest(site: Site) -> None:
    arguments = "quiet tiny.record=/dev/vda tiny.heartbeat=no"
    site.run(
        *("gnt-instance", "add", "--no-install", "--no-start", "--no-nics"),
        *("-t", "sharedfile", "-s", "1m", "-o", "tiny+default"),
        *("-B", "memory=96m", "-n", site.layout.others(site.master)[-1].short),
        *("-H", f"kvm:kernel_args={arguments}", GUEST),
    )
    site.run("gnt-instance", "startup", GUEST)


def _restore(site: Site, before: dict[str, Any]) -> None:
    limits = {name: f"{value:g}" for name, value in before[_LIMITS_KEY].items()}
    wanted = [f"{name}={value}" for name, value in limits.items()]
    wanted += [f"-{name}" for name in _LIMITS if name not in limits]
    program = before["ndparams"]["oob_program"]
    switch = "yes" if before["node_death"] else "no"
    site.run(
        *("gnt-cluster", "modify", f"--node-death={switch}"),
        f"--automation-limits={','.join(wanted)}",
        f"--node-parameters=oob_program={program}",
    )
    if _TAG not in before["tags"]:
        site.run("gnt-cluster", "remove-tags", _TAG)
    with contextlib.suppress(errors.OpExecError):
        site.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", GUEST)
