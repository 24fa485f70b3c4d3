"""Events on a simulated cluster: faults change machines, people submit jobs."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.devel.sim.events import Event
from ganeti.devel.sim.hardware import Hardware, Helper
from ganeti.devel.sim.invariants import Invariants
from ganeti.devel.sim.leadership import Leadership
from ganeti.devel.sim.master import Master
from ganeti.devel.sim.scheduler import Scheduler

#: Seconds in which a machine with the master daemon boots.
BOOT_S: Final = 30.0
_CALL_S: Final = 600.0

Op = dict[str, Any]


class People:
    """Carries events out.

    Attributes:
        master: present master daemon; None while there is none.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        hardware: Hardware,
        invariants: Invariants,
        *,
        leadership: Leadership,
        start_master: Callable[[], None],
        report: Callable[[str, str], None],
    ) -> None:
        """Prepare.

        Args:
            scheduler: the time.
            hardware: the machines.
            invariants: learns what people permit.
            leadership: knows whether a master daemon may start.
            start_master: starts a master daemon.
            report: called with an object and why an event had no effect.
        """
        self._scheduler = scheduler
        self._hardware = hardware
        self._invariants = invariants
        self._leadership = leadership
        self._start_master = start_master
        self._report = report
        self.master: Master | None = None

    def do(self, event: Event) -> None:
        """Carry an event out."""
        _ACTS[event.verb](self, *event.args)

    # Faults
    def _is_master(self, name: str) -> bool:
        return self.master is not None and self.master.machine() == name

    def _kill(self, name: str, why: str = "it lost its power") -> None:
        if self.master is not None and self._is_master(name):
            self.master.kill()
        self._hardware.power_off(name, why)

    def _power_on(self, name: str) -> None:
        is_boot = not self._hardware.machines[name].is_on
        self._hardware.power_on(name)
        if is_boot and self._is_master(name):
            self._restart(BOOT_S)

    def _power_cycle(self, name: str) -> None:
        self._kill(name, "a person restarts it")
        self._power_on(name)

    def _restart(self, seconds: float) -> None:
        if self.master is not None:
            self.master.kill()

        def start() -> None:
            known = self.master
            is_gone = known is not None and known.is_dead
            # Another node has become the master in between.
            if not (known and is_gone):
                return
            name = known.machine()
            is_awake = self._hardware.machines[name].is_awake
            if is_awake and self._leadership.may_start(name):
                self._start_master()
                self._leadership.look()

        self._scheduler.at(seconds, start)

    def _freeze_node(self, name: str) -> None:
        if self.master is not None and self._is_master(name):
            if not self._leadership.is_automatic:
                self._report(
                    name,
                    "is the master, which is not frozen in a simulation with the store"
                    " in files",
                )
                return
            self.master.kill()
        self._hardware.machines[name].is_frozen = self._hardware.machines[name].is_on

    def _unfreeze_node(self, name: str) -> None:
        machine = self._hardware.machines[name]
        if machine.is_frozen and self._is_master(name):
            self._restart(0.0)
        machine.is_frozen = False

    def _cut_master(self, name: str) -> None:
        if self.master is None or self._is_master(name):
            self._report(name, "is the master, which is not cut off from itself")
            return
        self._hardware.cut(name, [self.master.machine()], "both")

    def _cut(self, name: str, direction: str, *others: str) -> None:
        everybody = [each for each in self._hardware.machines if each != name]
        self._hardware.cut(name, others or everybody, direction)

    def _set(self, name: str, attribute: str, value: Any) -> None:
        setattr(self._hardware.machines[name], attribute, value)

    def _diagnose(self, name: str, status: str, command: str = "") -> None:
        data = {"status": status, "details": {"part": "simulated"}}
        more = {"command": command} if command else {}
        self._set(
            name, "diagnosis", {"status": "Ok"} if status == "Ok" else data | more
        )

    def _clock(self, seconds: str) -> None:
        self._scheduler.skew_s = float(seconds)
        self._invariants.has_wrong_clock = True

    def _kill_guest(self, instance: str) -> None:
        for place in self._hardware.places(instance):
            self._hardware.stop(instance, place)

    # People
    def _submit(self, name: str, *ops: Op) -> None:
        """Submit a job as a person does."""

        def work() -> None:
            master = self.master
            try:
                if master is None or master.is_dead:
                    raise errors.NoMasterError("the master daemon does not run")
                trail = [["gnt:user", "simulation", int(self._scheduler.now * 1e9)]]
                master.client().call(
                    "SubmitJob", [[{**o, "reason": trail} for o in ops]]
                )
            except errors.GenericError as err:
                self._report(name, f"the job was not accepted: {err}")

        self._scheduler.spawn(f"person/{name}", work)

    def _call(self, method: str, *args: Any) -> None:
        def work() -> None:
            try:
                if self.master is None or self.master.is_dead:
                    raise errors.NoMasterError("the master daemon does not run")
                self.master.client().call(method, list(args))
            except errors.GenericError as err:
                self._report("cluster", f"{method} was refused: {err}")

        self._scheduler.spawn(f"person/{method}", work)

    def _offline(self, name: str, word: str) -> None:
        more = {"auto_promote": True} if word == "yes" else {}
        self._set_node(name, offline=word == "yes", **more)

    def _drain(self, name: str, word: str) -> None:
        more = {"auto_promote": True} if word == "yes" else {}
        self._set_node(name, drained=word == "yes", **more)

    def _set_node(self, name: str, **flags: Any) -> None:
        op = {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": name, **flags}
        self._submit(name, {**op, "force": True})

    def _instance(self, op_id: str, name: str) -> None:
        self._submit(name, {"OP_ID": op_id, "instance_name": name})

    def _tag(self, target: str, tag: str) -> None:
        self._invariants.requested.add(tag)
        self._submit(target, {"OP_ID": "OP_TAGS_SET", **_target(target), "tags": [tag]})

    def _untag(self, target: str, prefix: str) -> None:
        """Remove all tags that begin with a prefix."""

        def work() -> None:
            if self.master is None or self.master.is_dead:
                self._report(target, "the master daemon does not run")
                return
            place = _target(target)
            client = self.master.client()
            known = client.call("QueryTags", [place["kind"], place.get("name", "")])
            gone = [tag for tag in known if tag.startswith(prefix)]
            if gone:
                op = {"OP_ID": "OP_TAGS_DEL", **place, "tags": gone}
                client.call("SubmitJob", [[op]])

        self._scheduler.spawn(f"person/{target}", work)

    def _node_death(self, word: str) -> None:
        self._submit(
            "cluster", {"OP_ID": "OP_CLUSTER_SET_PARAMS", "node_death": word == "yes"}
        )

    def _cancel(self, name: str) -> None:
        def work() -> None:
            if self.master is None or self.master.is_dead:
                self._report(name, "the master daemon does not run")
                return
            deps = self.master.deps
            nodes = deps.config.snapshot().nodes
            for item in deps.maintenance.state().incidents:
                if item.node in nodes and nodes[item.node].name == name:
                    try:
                        self.master.client().call("CancelIncident", [item.uuid])
                    except errors.GenericError as err:
                        self._report(name, f"the cancellation was refused: {err}")

        self._scheduler.spawn(f"person/{name}", work)


def _target(text: str) -> dict[str, str]:
    """Return the fields of an opcode about tags for the form of an event."""
    kind, _colon, name = text.partition(":")
    wire = {"group": "nodegroup"}.get(kind, kind)
    return {"kind": wire, "name": name} if name else {"kind": wire}


_ACTS: Final[Mapping[str, Callable[..., None]]] = {
    "kill": People._kill,  # noqa: SLF001 - its methods
    "power-off": lambda self, name: self._kill(name, "a person switched it off"),
    "power-on": People._power_on,  # noqa: SLF001
    "power-cycle": People._power_cycle,  # noqa: SLF001
    "freeze-node": People._freeze_node,  # noqa: SLF001
    "unfreeze-node": People._unfreeze_node,  # noqa: SLF001
    "stop-daemon": lambda self, name: self._set(name, "has_daemon", False),
    "start-daemon": lambda self, name: self._set(name, "has_daemon", True),
    "cut": People._cut,  # noqa: SLF001
    "cut-master": People._cut_master,  # noqa: SLF001
    "join": lambda self, name: self._hardware.join(name),
    "disk-full": lambda self, name, word: self._set(name, "is_full", word == "yes"),
    "slow": lambda self, name, word: self._set(name, "slowness", float(word)),
    "helper": lambda self, name, word: self._set(name, "helper", Helper(word)),
    "diagnose": People._diagnose,  # noqa: SLF001
    "forge": lambda self, name, word: self._set(name, "forges", word == "yes"),
    "repairs": lambda self, name, word: self._set(name, "repairs", word == "yes"),
    "starts": lambda self, name, word: self._set(name, "starts", word == "yes"),
    "heartbeat": lambda self, name, word: self._set(
        name, "has_heartbeat", word == "yes"
    ),
    "load": lambda self, name, word: self._set(
        name, "load", None if word == "none" else float(word)
    ),
    "clock-of": lambda self, name, word: self._set(name, "clock_off_s", float(word)),
    "clock": People._clock,  # noqa: SLF001
    "offline": People._offline,  # noqa: SLF001
    "drain": People._drain,  # noqa: SLF001
    "kill-guest": People._kill_guest,  # noqa: SLF001
    "stop-instance": lambda self, name: self._instance("OP_INSTANCE_SHUTDOWN", name),
    "start-instance": lambda self, name: self._instance("OP_INSTANCE_STARTUP", name),
    "tag": People._tag,  # noqa: SLF001
    "untag": People._untag,  # noqa: SLF001
    "freeze": lambda self, *words: self._call("FreezeAutomation", " ".join(words)),
    "thaw": lambda self: self._call("ThawAutomation"),
    "node-death": People._node_death,  # noqa: SLF001
    "cancel-incidents": People._cancel,  # noqa: SLF001
    "restart-master": lambda self, seconds: self._restart(float(seconds)),
    "master-failover": lambda self, name: self._leadership.fail_over(name),
    "drain-queue": lambda self, word: self._call("SetDrainFlag", word == "yes"),
}
