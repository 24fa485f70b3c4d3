"""The drills: the fault of each one, and the end that it must have."""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.node_lives import Phase
from ganeti.devel.drill.faults import MASTER_DAEMONS
from ganeti.devel.drill.site import GUEST, Site
from ganeti.devel.vcluster.layout import Node

#: Seconds for which a node that is alive is watched: longer than a silence that fences.
WATCHED_S: Final = 2 * node_death.SILENCE_S
#: Phases in the order of a death.
_PHASES: Final = (Phase.SUSPECTED, Phase.FENCING, Phase.FENCED, Phase.OFFLINE)


#: Seconds of a fault that ends before anybody doubts the node, and of one that lasts.
_SHORT_S: Final = 5.0
_LONG_S: Final = 45.0
#: Most seconds until the cluster decides something about a fault.
_DECIDED_S: Final = 90.0
#: Seconds of a wrong clock; certificates of a new cluster are valid 10 minutes early.
_AHEAD_S: Final = 3600
_BEHIND_S: Final = -540
_NODE_DAEMONS: Final = ("ganeti-noded", "ganeti-mond")
Act = Callable[[Site, Node], object]


class End(enum.Enum):
    """The end that a drill must have."""

    #: The node is switched off, and the guest runs on another one.
    MOVED = enum.auto()
    #: Nothing is done, for a reason that is shown.
    REFUSED = enum.auto()
    #: The node is alive, and nobody doubts it.
    ALIVE = enum.auto()
    #: The fault has ended, and the guest runs, wherever, without a person's help.
    SETTLED = enum.auto()


def _of_guest(site: Site) -> Node:
    return site.guest()[0]


def _of_master(site: Site) -> Node:
    return site.master


class Drill(NamedTuple):
    """A drill.

    Attributes:
        text: the fault, for people.
        begin: makes the fault.
        end: the end that it must have.
        limit: the reason of a refusal.
        act: goes on when the fault has been made; a drill with the end `End.SETTLED`
            ends its fault.
        victim: returns the node that it is about.
    """

    text: str
    begin: Act
    end: End = End.MOVED
    limit: str = ""
    act: Act = lambda _site, _node: None
    victim: Callable[[Site], Node] = _of_guest


def _kill(site: Site, node: Node) -> None:
    site.control.kill(node)


def _cut_out(site: Site, node: Node) -> None:
    site.faults.cut(node, site.layout.others(node))


def _cut_in(site: Site, node: Node) -> None:
    for other in site.layout.others(node):
        site.faults.cut(other, [node])


def _cut(site: Site, node: Node) -> None:
    _cut_out(site, node)
    _cut_in(site, node)


def _cut_master(site: Site, node: Node) -> None:
    site.faults.cut(node, [site.master])
    site.faults.cut(site.master, [node])


def _freeze(site: Site, node: Node) -> None:
    site.control.pause(node)


def _fill_disk(site: Site, node: Node) -> None:
    site.faults.fill_disk(node)


def _lie_and_cut(site: Site, node: Node) -> None:
    site.faults.lie(hold=True)
    _cut(site, node)


def _come_back(site: Site, node: Node) -> None:
    """End the cut while the helper is asked, which then says "off"."""
    del node
    # A job that has not called the helper yet would notice that the node is back.
    site.until("the helper is asked", lambda: site.faults.is_helper_asked)
    site.faults.heal()
    site.faults.lie(hold=False)


def _phase(site: Site, node: Node) -> Phase | None:
    death = site.deaths().get(node.name)
    return None if death is None else death.phase


def _kill_master_in(phase: Phase) -> Act:
    """Return what kills the daemons of the master in a phase.

    A short phase may be over before it is seen; then a later one is hit.
    """
    wanted = _PHASES[_PHASES.index(phase) :]

    def act(site: Site, node: Node) -> None:
        site.until(f"the node is {phase}", lambda: _phase(site, node) in wanted)
        site.kill_master_daemons()

    return act


# Faults that end
def _all(*acts: Act) -> Act:
    def act(site: Site, node: Node) -> None:
        for each in acts:
            each(site, node)

    return act


def _rest(seconds: float) -> Act:
    return lambda site, _node: site.rest(seconds)


def _once(phase: Phase) -> Act:
    """Return what waits for a phase or a later one, as long as it may come."""
    wanted = _PHASES[_PHASES.index(phase) :]
    return lambda site, node: site.await_if(
        lambda: _phase(site, node) in wanted, _DECIDED_S
    )


def _refused(site: Site, node: Node) -> None:
    """Wait until the master gives a reason for doing nothing."""

    def has_reason() -> bool:
        death = site.deaths().get(node.name)
        return death is not None and death.limit not in ("", node_death.ASKED_AGAIN)

    site.await_if(has_reason, _DECIDED_S)


def _thaw(site: Site, node: Node) -> None:
    site.control.resume(node)


def _return(site: Site, node: Node) -> None:
    """Switch a node on, and let its helper work."""
    site.faults.stop_lying()
    site.control.power_on(node)


def _heal(site: Site, _node: Node) -> None:
    site.faults.heal()


def _end_cut(site: Site, node: Node) -> None:
    """Connect a node again; it may have been switched off."""
    site.faults.heal()
    site.control.power_on(node)


def _flap(site: Site, node: Node) -> None:
    for _ in range(8):
        _cut(site, node)
        site.rest(_SHORT_S)
        site.faults.heal()
        site.rest(1.0)


def _slow(site: Site, node: Node) -> None:
    """Let the node compute a tenth of the time."""
    for _ in range(60):
        site.control.pause(node)
        site.rest(0.6)
        site.control.resume(node)
        site.rest(0.07)


def _shift(daemons: tuple[str, ...], seconds: int) -> Act:
    return lambda site, node: site.faults.shift_clock(node, daemons, seconds)


def _wrong_clock(whose: str, daemons: tuple[str, ...], seconds: int) -> Drill:
    return Drill(
        f"the clock of {whose} is {'ahead' if seconds > 0 else 'behind'}",
        _shift(daemons, seconds),
        End.SETTLED,
        act=_all(_rest(_LONG_S), _shift(daemons, 0)),
        victim=_of_master if daemons is MASTER_DAEMONS else _of_guest,
    )


def _odd_helper(text: str, script: str) -> Drill:
    return Drill(
        f"the node is dead, its helper {text}, then the node is switched on",
        _all(lambda site, _node: site.faults.spoil_helper(script), _kill),
        End.SETTLED,
        act=_all(_refused, _return),
    )


def _master_cut(site: Site, node: Node) -> None:
    site.faults.isolate(node)
    for other in site.layout.others(node):
        site.faults.cut(other, [node])


def _next_master(site: Site, node: Node) -> None:
    site.make_master(site.layout.others(node)[0])


def _kill_next_master(site: Site, node: Node) -> None:
    _next_master(site, node)
    second = site.master
    site.control.kill(second)
    site.make_master(next(each for each in site.layout.others(second) if each != node))


def _return_all(site: Site, _node: Node) -> None:
    site.faults.mend()


def _lose_majority(site: Site, node: Node) -> None:
    """Kill two of three servers of etcd, or three of five candidates."""
    if site.layout.has_etcd:
        site.faults.servers("kill", (0, 1))
        return
    victims = [each for each in site.layout.others(node) if each != _of_guest(site)]
    for each in victims[:3]:
        site.control.kill(each)


def _beside(*commands: tuple[str, ...]) -> Drill:
    """Return a drill in which people and cron act while the master handles a death."""
    texts = ", ".join(" ".join(words[:2]) for words in commands)

    def act(site: Site, node: Node) -> None:
        def is_over() -> bool:
            site.at_once(site.master, commands)
            return _phase(site, node) is Phase.OFFLINE or site.guest()[0] != node

        site.await_if(is_over, _DECIDED_S)

    return Drill(f"the node is dead, and at the same time: {texts}", _kill, act=act)


_MOVE: Final = ("gnt-instance", "failover", "-f", GUEST)
_START: Final = ("gnt-instance", "startup", GUEST)
_MIGRATE: Final = ("gnt-instance", "migrate", "-f", GUEST)
_HAREP: Final = ("harep",)
_WATCHER: Final = ("ganeti-watcher",)

DRILLS: Final[Mapping[str, Drill]] = {
    "kill": Drill("all processes of the node die", _kill),
    "cut": Drill("the node is cut off from all others", _cut),
    "cut-out": Drill("nothing arrives that the node sends", _cut_out),
    "cut-in": Drill("nothing arrives at the node", _cut_in),
    "freeze": Drill("the node is stopped, and its kernel still answers", _freeze),
    "cut-master": Drill(
        "only the master does not reach the node",
        _cut_master,
        End.REFUSED,
        node_death.REACHED,
    ),
    "lie": Drill(
        "the helper reports that the node is off, and does nothing",
        _lie_and_cut,
        End.REFUSED,
        node_death.LYING_HELPER,
        _come_back,
    ),
    "disk-full": Drill("the disk of the node is full", _fill_disk, End.ALIVE),
    **{
        f"master-{phase}": Drill(
            f"the master daemon is killed while the node is {phase}",
            _kill,
            act=_kill_master_in(phase),
        )
        for phase in _PHASES
    },
    "freeze-early": Drill(
        "the node is stopped for some seconds",
        _freeze,
        End.SETTLED,
        act=_all(_rest(_SHORT_S), _thaw),
    ),
    "freeze-late": Drill(
        "the node is stopped, and goes on while it is switched off",
        _freeze,
        End.SETTLED,
        act=_all(_once(Phase.FENCING), _thaw),
    ),
    "cut-early": Drill(
        "the node is cut off for some seconds",
        _cut,
        End.SETTLED,
        act=_all(_rest(_SHORT_S), _heal),
    ),
    "cut-late": Drill(
        "the node is cut off, and connected while it is switched off",
        _cut,
        End.SETTLED,
        act=_all(_once(Phase.FENCING), _end_cut),
    ),
    "flap": Drill("the node is cut off again and again", _flap, End.SETTLED),
    "slow": Drill("the node computes a tenth of the time", _slow, End.SETTLED),
    "clock-ahead": _wrong_clock("the node", _NODE_DAEMONS, _AHEAD_S),
    "clock-behind": _wrong_clock("the node", _NODE_DAEMONS, _BEHIND_S),
    "master-ahead": _wrong_clock("the master", MASTER_DAEMONS, _AHEAD_S),
    "master-behind": _wrong_clock("the master", MASTER_DAEMONS, _BEHIND_S),
    "helper-hangs": _odd_helper("hangs", "exec sleep 600"),
    "helper-garbage": _odd_helper("prints garbage", "exec head -c 9999 /dev/urandom"),
    "helper-fails": _odd_helper("fails", "echo 'no route to the BMC' >&2; exit 1"),
    "back-fenced": Drill(
        "the node is dead, and is switched on when it was fenced",
        _kill,
        End.SETTLED,
        act=_all(_once(Phase.FENCED), _return),
    ),
    "back-marked": Drill(
        "the node is dead, and is switched on when it was marked offline",
        _kill,
        End.SETTLED,
        act=_all(_once(Phase.OFFLINE), _return),
    ),
    "master-freeze": Drill(
        "the master is stopped for some seconds",
        _freeze,
        End.SETTLED,
        act=_all(_rest(_SHORT_S), _thaw),
        victim=_of_master,
    ),
    "master-frozen": Drill(
        "the master is stopped for long",
        _freeze,
        End.SETTLED,
        act=_all(_rest(_LONG_S), _thaw),
        victim=_of_master,
    ),
    "master-full": Drill(
        "the disk of the master gets full, and is freed",
        _fill_disk,
        End.SETTLED,
        act=_all(_rest(_LONG_S), lambda site, node: site.faults.free_space(node)),
        victim=_of_master,
    ),
    "master-cut": Drill(
        "the master is cut off from all others and from the store",
        _master_cut,
        End.SETTLED,
        act=_all(_rest(_LONG_S), _heal),
        victim=_of_master,
    ),
    "two-masters": Drill(
        "the master dies, and the next one, too",
        _kill,
        End.SETTLED,
        act=_all(_kill_next_master, _return_all),
        victim=_of_master,
    ),
    "minority": Drill(
        "the majority of the store is lost",
        _lose_majority,
        End.SETTLED,
        act=_all(_rest(_LONG_S), _return_all),
        victim=_of_master,
    ),
    "beside-harep": _beside(_HAREP, _WATCHER, _HAREP),
    "beside-failover": _beside(_MOVE, _HAREP, _WATCHER),
    "beside-start": _beside(_START, _WATCHER, _HAREP),
    "beside-migrate": _beside(_MIGRATE, _MOVE, _START, _WATCHER),
}
#: Drills of which any two can be played at once: each one ends its fault.
PAIRABLE: Final = tuple(
    name for name, each in DRILLS.items() if each.end is End.SETTLED
)
