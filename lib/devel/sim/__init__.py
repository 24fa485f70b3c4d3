"""The production code of automatons over simulated effects, in virtual time.

`Simulation` has the real job queue, engine, logical units, LUXI methods, rounds of the
watcher, of automatic repair, of maintenance and of deaths of nodes. Simulated are only
the effects: the store is in memory, node calls reach simulated machines, time moves
when everybody waits, and people and faults come from a list of events. No decision is
made here.
"""

from ganeti.devel.sim.description import ClusterDescription
from ganeti.devel.sim.events import Event, parse_events
from ganeti.devel.sim.simulation import Report, Simulation

__all__ = [
    "ClusterDescription",
    "Event",
    "Report",
    "Simulation",
    "parse_events",
]
