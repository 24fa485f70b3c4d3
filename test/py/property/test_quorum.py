"""Whatever fails and whenever: acknowledged groups are in the history of each master.

The machine holds copies as lists of groups and decides by `ganeti.decisions.quorum` alone.
Masters that do not know yet that they are deposed go on trying; messages reach any
subset of the nodes; elections and commits end half-way; candidate sets change; disks
are lost one at a time.
"""

import dataclasses
import random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakes.seeds import examples
from ganeti.decisions.quorum import (
    Ack,
    Copy,
    Election,
    Term,
    Voters,
    acknowledgement,
    next_number,
    refusal,
)

NODES = tuple("abcde")
NODE = st.sampled_from(NODES)
SOME = st.integers(0, 2 ** len(NODES) - 1).map(
    lambda bits: frozenset(n for i, n in enumerate(NODES) if bits >> i & 1)
)
#: Which of the masters that there are.
INDEX = st.integers(0, 3)


class Group(NamedTuple):
    term: int
    ident: int
    voters: Voters


class Disk:
    """One node's copy: what it has promised, and its history."""

    def __init__(self):
        self.promised = Term()
        self.log = ()
        #: Who was master last, or may have become it, as far as this disk knows.
        self.master = ""

    @property
    def copy(self):
        written = self.log[-1].term if self.log else 0
        return Copy(written, len(self.log), str(hash(self.log)))

    @property
    def voters(self):
        return self.log[-1].voters

    def promise(self, term, *, is_own=False):
        if refusal(self.promised, term) is not None:
            return False
        self.promised = term
        if not is_own:
            self.master = term.owner
        return True

    def take(self, term, log, most):
        """Catch up with a master by at most so many groups; return whether all."""
        if not self.promise(term):
            return False
        if self.log and self.log == log[: len(self.log)]:
            self.log = log[: len(self.log) + most]
        else:
            self.log = log  # a whole copy, in one transaction
        return self.log == log


@dataclasses.dataclass
class Master:
    node: str
    term: Term
    #: Sent, but the own disk failed: nothing else may be written before.
    unwritten: Group | None = None
    #: Written, and not acknowledged: the same.
    is_waiting: bool = False
    #: Acknowledged something, so that what it began with is settled.
    has_begun: bool = False


class Simulation:
    """Copies and masters; checks what the rule promises after each step."""

    def __init__(self, size):
        self.disks = {node: Disk() for node in NODES}
        self.masters = {}
        self.acknowledged = set()
        self.elected = {}
        self.count = 0
        voters = Voters(frozenset(NODES[:size]))
        disk = self.disks["a"]
        disk.promised, disk.master = Term(1, "a"), "a"
        disk.log = (Group(1, 0, voters),)
        self.masters["a"] = Master("a", Term(1, "a"))
        self.elected[1] = "a"

    # Elections
    def elect(self, node, reached, is_cut, *, known=NODES):
        """Elect a node; it has heard of the promises of some nodes before."""
        disk = self.disks[node]
        if not disk.log:
            return
        self.masters.pop(node, None)
        was_last = disk.master == node
        numbers = [self.disks[each].promised.number for each in reached & set(known)]
        term = Term(next_number(disk.promised.number, numbers), node)
        assert disk.promise(term, is_own=True)
        election = self.gather(node, term, reached, was_last=was_last)
        if is_cut or not election.is_won:
            return
        assert self.elected.setdefault(term.number, node) == node
        missing = self.acknowledged - {group.ident for group in disk.log}
        assert not missing, f"{node} was elected for {term} without {missing}"
        disk.master = node
        self.masters[node] = Master(node, term)

    def gather(self, node, term, reached, *, was_last):
        """Collect promises and take the newest history, until the set is stable."""
        disk = self.disks[node]
        while True:
            voters = disk.voters
            asked = (voters.everyone & reached) | {node}
            promised = {
                n: self.disks[n].copy
                for n in asked
                if self.disks[n].promise(term, is_own=n == node)
            }
            election = Election(node, voters, promised, was_last)
            if election.newest == node:
                return election
            disk.log = self.disks[election.newest].log
            was_last = False

    # Commits
    def commit(self, index, reached, *, most, change, is_lost):
        if not self.masters:
            return
        node = sorted(self.masters)[index % len(self.masters)]
        master = self.masters[node]
        disk = self.disks[node]
        if disk.promised != master.term:
            del self.masters[node]  # its own disk refuses it
            return
        if not master.is_waiting:
            group = master.unwritten
            if group is None:
                self.count += 1
                group = Group(master.term.number, self.count, self.next(master, change))
            log = (*disk.log, group)
            master.unwritten = None
            if is_lost:
                # Candidates were faster than the own disk, which failed.
                for each in group.voters.everyone & reached - {node}:
                    self.disks[each].take(master.term, log, most)
                master.unwritten = group
                return
            disk.log = log
            master.is_waiting = True
        self.replicate(master, reached, most)

    def next(self, master, change):
        voters = self.disks[master.node].voters
        if not master.has_begun:
            return voters
        if change is None:
            return voters.settled()
        return voters.changed(change | {master.node})

    def replicate(self, master, reached, most):
        disk = self.disks[master.node]
        voters = disk.voters
        having = {master.node} | {
            each
            for each in voters.everyone & reached
            if self.disks[each].take(master.term, disk.log, most)
        }
        actual = acknowledgement(
            voters, having, is_open=False, is_overdue=True, is_lenient=False
        )
        if actual is Ack.REFUSE:
            return
        master.is_waiting = False
        if actual is Ack.SAFE:
            master.has_begun = True
            self.acknowledged.add(disk.log[-1].ident)

    # Failures
    def crash(self, node):
        self.masters.pop(node, None)

    def lose_disk(self, node):
        held = {each for each in NODES if self.disks[each].log}
        sets = [disk.voters.everyone for disk in self.disks.values() if disk.log]
        whole = all(everyone <= held for everyone in sets)
        if node not in self.masters and whole and len(held) > 1:
            # A second loss before the first is made good may lose anything. The
            # promise is in another file, too.
            self.disks[node].log = ()

    def check(self):
        for node, master in self.masters.items():
            rivals = self.disks[node].voters.everyone
            refusing = {
                each
                for each in rivals
                if refusal(self.disks[each].promised, master.term) is not None
            }
            if not self.disks[node].voters.is_deposed(refusing):
                idents = {group.ident for group in self.disks[node].log}
                assert self.acknowledged <= idents


class Cluster(RuleBasedStateMachine):
    """Short histories, which shrink to readable ones."""

    @initialize(size=st.integers(1, 4))
    def actual(self, size):
        self.simulation = Simulation(size)

    @rule(node=NODE, reached=SOME, is_cut=st.sampled_from([False, False, True]))
    def elect(self, node, reached, is_cut):
        self.simulation.elect(node, reached, is_cut)

    @rule(
        index=INDEX,
        reached=SOME,
        most=st.integers(1, 3),
        change=st.none() | SOME,
        is_lost=st.sampled_from([False, False, False, True]),
    )
    def commit(self, index, reached, most, change, is_lost):
        self.simulation.commit(
            index, reached, most=most, change=change, is_lost=is_lost
        )

    @rule(node=NODE)
    def crash(self, node):
        self.simulation.crash(node)

    @rule(node=NODE)
    def lose_disk(self, node):
        self.simulation.lose_disk(node)

    @invariant()
    def check(self):
        if hasattr(self, "simulation"):
            self.simulation.check()


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    deadline=None, max_examples=examples(50), stateful_step_count=40
)

WALKS = 2000
STEPS = 60


@pytest.mark.parametrize("part", range(4))
def test_long_walks(part):
    """Long histories, with partitions that last; a failure names its seed."""
    for seed in range(part * WALKS, (part + 1) * WALKS):
        try:
            walk(random.Random(seed))
        except AssertionError as err:
            raise AssertionError(f"seed {seed}: {err}") from err


def walk(chance):
    simulation = Simulation(chance.choice((1, 2, 3, 3, 3, 4)))
    side = frozenset(NODES)
    for _ in range(STEPS):
        if chance.random() < 0.2:
            side = frozenset(node for node in NODES if chance.random() < 0.5)
        if chance.random() < 0.1:
            side = frozenset(NODES)
        node = chance.choice(NODES)
        other = side if node in side else frozenset(NODES) - side
        reached = some(chance, other)
        event = chance.random()
        if event < 0.25:
            simulation.elect(
                node, reached, chance.random() < 0.2, known=some(chance, NODES)
            )
        elif event < 0.9:
            masters = sorted(simulation.masters)
            if not masters:
                continue
            index = chance.randrange(len(masters))
            mine = side if masters[index] in side else frozenset(NODES) - side
            simulation.commit(
                index,
                some(chance, mine),
                most=chance.randint(1, 3),
                change=some(chance, NODES[: chance.randint(1, 5)])
                if chance.random() < 0.2
                else None,
                is_lost=chance.random() < 0.1,
            )
        elif event < 0.95:
            simulation.crash(node)
        else:
            simulation.lose_disk(node)
        simulation.check()


def some(chance, nodes):
    return frozenset(node for node in sorted(nodes) if chance.random() < 0.8)
