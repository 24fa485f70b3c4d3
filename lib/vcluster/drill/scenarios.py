"""The drills: the fault of each one, and the end that it must have."""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ganeti.repair import node_death
from ganeti.repair.node_lives import Phase
from ganeti.vcluster.drill.site import Site
from ganeti.vcluster.layout import Node

#: Seconds for which a node that is alive is watched: longer than a silence that fences.
WATCHED_S: Final = 2 * node_death.SILENCE_S
#: Phases in the order of a death.
_PHASES: Final = (Phase.SUSPECTED, Phase.FENCING, Phase.FENCED, Phase.OFFLINE)


class End(enum.Enum):
    """The end that a drill must have."""

    #: The node is switched off, and the guest runs on another one.
    MOVED = enum.auto()
    #: Nothing is done, for a reason that is shown.
    REFUSED = enum.auto()
    #: The node is alive, and nobody doubts it.
    ALIVE = enum.auto()


class Drill(NamedTuple):
    """A drill.

    Attributes:
        text: the fault, for people.
        begin: makes the fault.
        end: the end that it must have.
        limit: the reason of a refusal.
        act: goes on when the fault has been made.
    """

    text: str
    begin: Callable[[Site, Node], object]
    end: End = End.MOVED
    limit: str = ""
    act: Callable[[Site, Node], object] = lambda _site, _node: None


def _kill(site: Site, node: Node) -> None:
    site.control.kill(node)


def _cut_out(site: Site, node: Node) -> None:
    site.cut(node, site.others(node))


def _cut_in(site: Site, node: Node) -> None:
    for other in site.others(node):
        site.cut(other, [node])


def _cut(site: Site, node: Node) -> None:
    _cut_out(site, node)
    _cut_in(site, node)


def _cut_master(site: Site, node: Node) -> None:
    site.cut(node, [site.master])
    site.cut(site.master, [node])


def _freeze(site: Site, node: Node) -> None:
    site.control.pause(node)


def _fill_disk(site: Site, node: Node) -> None:
    site.fill_disk(node)


def _lie_and_cut(site: Site, node: Node) -> None:
    site.lie(hold=True)
    _cut(site, node)


def _come_back(site: Site, node: Node) -> None:
    """End the cut while the helper is asked, which then says "off"."""
    del node
    # A job that has not called the helper yet would notice that the node is back.
    site.until("the helper is asked", lambda: site.is_helper_asked)
    site.heal()
    site.lie(hold=False)


def _phase(site: Site, node: Node) -> Phase | None:
    death = site.deaths().get(node.name)
    return None if death is None else death.phase


def _kill_master_in(phase: Phase) -> Callable[[Site, Node], None]:
    """Return what kills the daemons of the master in a phase.

    A short phase may be over before it is seen; then a later one is hit.
    """
    wanted = _PHASES[_PHASES.index(phase) :]

    def act(site: Site, node: Node) -> None:
        site.until(f"the node is {phase}", lambda: _phase(site, node) in wanted)
        site.kill_master_daemons()

    return act


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
}
