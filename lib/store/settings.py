"""How a master commits to the copies of candidates, see `ganeti.store.copies.peers`."""

import dataclasses
from collections.abc import Callable

from ganeti.store import numbers


@dataclasses.dataclass
class CommitSettings:
    """How a master commits.

    Attributes:
        is_lenient: returns whether the administrator chose availability: commits are
            acknowledged without a majority, with a warning.
        accept_loss: the administrator started this master without a majority; until
            there is one, the master goes on without.
        is_patient: without a majority, wait for one; else the commit fails, and may be
            durable nevertheless.
        on_deposed: called once, from any thread, when another master has taken over;
            nothing can be written any more.
        on_higher: called from any thread, before a copy with another history is
            replaced, with the numbers to leave out since that copy may have shown them.
            Returns at once.
        on_refusal: called with the uuid of a candidate that refuses this master's term,
            while a majority follows this master. Other candidates do not wait for it.
            Returns whether the candidate's copy lets the master daemon start again.
        silent: uuids of candidates that have just not answered. The first commit does
            not wait until they are heard: that would take a second time limit.
    """

    is_lenient: Callable[[], bool] = bool
    accept_loss: bool = False
    is_patient: bool = True
    on_deposed: Callable[[], None] = lambda: None
    on_higher: Callable[[numbers.Numbers], None] = lambda _numbers: None
    on_refusal: Callable[[str], bool] = lambda _node: True
    silent: frozenset[str] = frozenset()
