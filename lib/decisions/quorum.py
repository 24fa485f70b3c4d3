"""The commit rule: who may acknowledge, who may be elected, and why nothing is lost.

Pure decisions. Copies on disk are `ganeti.store.database`, sending change-sets is
`ganeti.store.copies.peers`, asking for promises is `ganeti.store.copies.election`.

**Quantities.** A *copy* is one node's configuration and jobs. Its history is a sequence
of groups; each group carries the term in which it was written. A copy stores

* ``P``, the term that it has promised: a pair (number, owner);
* ``w``, the number of the term in which its last group was written;
* ``r``, its revision, which grows with each group.

The *candidate set* ``C`` of a copy is part of its history: it is the set of master
candidates that the last group that changed the set has recorded. While a change from
``B`` to ``C`` is not settled, both sets count, and a *majority* means a majority of
``B`` and a majority of ``C``.

**Rules.**

1. *Promise.* A copy makes a promise for term ``T`` only if ``T.number > P.number``, or
   ``T == P``. It refuses a lower number, and an equal number of another owner. The
   promise is on disk before it is answered, and the answer holds ``w`` and ``r`` as of
   that moment. (`refusal`)
2. *Write.* A copy takes groups only from the owner of a term which rule 1 admits, in
   the same disk transaction that checks the term, and only if they go on from the end
   of its own history. Histories are compared by a chained digest, never by ``r``.
3. *Election.* A master of term ``T`` has promises for ``T`` from a majority. It takes
   the history with the greatest ``(w, r)`` among the copies that promised. The majority
   is that of the candidate set in the history that it takes, and the master is in that
   set. An empty copy gives promises but does not count: it may have lost what it once
   acknowledged. (`Election`)
4. *Acknowledgement.* A master acknowledges a group when the group and all before it are
   on disk in a majority, and the group was written in the master's own term.
   (`acknowledgement`)
5. *One history per term.* A master sends a group while its own disk writes it. When its
   disk fails after that, it writes nothing else before that group.
   (`ganeti.store.committer`)
6. *Change of the set.* The group that changes ``B`` to ``C`` records both. The next
   group that follows its acknowledgement records ``C`` alone. (`Voters`)

**One master per number.** Two masters of one number need two majorities. Without a
change of the set these share a copy, and a copy promises a number to one owner. With a
change, see below.

**An acknowledged group survives.** Let group ``g`` be acknowledged in term ``t``, on
the majority ``Q``. Claim: each master elected in a term ``u > t`` begins with a history
that contains ``g``. By induction over ``u``, assume it for all terms between. The
majority of promises for ``u`` shares a copy ``c`` with ``Q``. Copy ``c`` took ``g``
before it promised ``u``, since it refuses ``t`` afterwards. From then on ``c`` took
only groups of masters with terms in ``[t, u)``, whose histories all contain ``g``. So
``c`` answered with ``(w, r) >= (t, r_g)`` and with ``g``. Let ``d`` be the copy whose
history is taken; its ``(w, r)`` is not smaller. If ``w_d = t``, the history of ``d``
ends in a group of the same master as ``g``, at a revision ``>= r_g``; histories of one
master are prefixes of one another by rule 5, so it contains ``g``. If ``w_d > t``, the
last group of ``d`` was written by a master of a term in ``(t, u)``, and all of that
master's history up to that group contains ``g`` by the induction. Rule 4 is about the
master's own term because otherwise ``w`` of the copies in ``Q`` could be smaller than
that of a minority's history which lacks ``g``.

**Across changes of the set.** Let ``h`` be the group that changes ``B`` to ``C``. A
copy without ``h`` elects with majorities of ``B``, a copy with it needs majorities of
both, so two masters of one number still share a copy of ``B``. A history with ``C``
alone exists only after ``h`` was acknowledged, that is on majorities of both. A master
elected afterwards from ``B`` alone would share a copy with that majority of ``B``, get
``h`` from it by rule 3, and then need ``C`` as well. So any two majorities in force
share a copy, and the proof above holds. Hence a change needs the old majority, and the
new one.

**One or two candidates.** One copy is its own majority. A majority of two is both, so
one silent copy would stop the cluster. There the administrator's decision of having no
third copy counts as consent: the master goes on with the copies that answer, and warns
its clients (`Ack.EXPOSED`). It may also be started again while the other copy is
silent, provided that its own copy has made no promise to another node since it was
master, that it knows no newer history, and that no change of the set is open. Making
the other node the master while one copy is silent needs the administrator's word.

**Accepted loss.** With ``--accept-loss`` rule 3 goes on without a majority. What only
silent copies hold may be lost, and the proof holds again from the first group that a
majority has. Numbers that the lost groups may have used are left out in the first group
of the term, which also settles an open change of the set: a copy that has any group of
the term, and from which a later master goes on, has that one.

**Numbers are data of other nodes.** One copy that claims an absurd number must not use
up all numbers: a number which is far above what a majority of copies has promised is
not believed (`next_number`), and no number above `MAX_NUMBER` is. One node's refusal
ends no master: a master is deposed when those that refuse leave no majority
(`Voters.is_deposed`).

The attack on all this is ``test/py/property/test_quorum.py``.
"""

import dataclasses
import enum
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

#: No term has a greater number; at one start per second this lasts 68 years.
MAX_NUMBER: Final = 2**31 - 1
#: A number this far above the others is not believed. Each start of a master takes
#: one, so a node that was away for years is still in range.
MAX_JUMP: Final = 1_000_000
#: Sets of so many candidates cannot lose a copy and have a majority.
_SMALL: Final = 2


class Term(NamedTuple):
    """One master's time in office: its number, and the uuid of the master's node.

    An empty owner is one that is not known: files of earlier releases have numbers
    alone.
    """

    number: int = 0
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.number}:{self.owner}" if self.owner else str(self.number)


def parse_term(text: str) -> Term:
    """Return the term in a text such as ``7:<uuid>`` or ``7``.

    Raises:
        ValueError: it is none, or its number is out of range.
    """
    digits, _colon, owner = text.partition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len("2147483647")):
        raise ValueError(f"{text[:60]!r} is no master term")
    return term_of([int(digits), owner])


def term_of(value: Any) -> Term:
    """Return the term that a stored or received value stands for.

    Args:
        value: a number, or a pair of number and owner.

    Raises:
        ValueError: it is neither, or its number is out of range.
    """
    pair = [value, ""] if isinstance(value, int) else value
    if not (isinstance(pair, list | tuple) and len(pair) == 2):
        raise ValueError("a master term is a number and an owner")
    number, owner = pair
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError("the number of a master term is an integer")  # noqa: TRY004
    if not (0 <= number <= MAX_NUMBER and isinstance(owner, str) and _is_id(owner)):
        raise ValueError(f"a master term is out of range: {str(pair)[:60]}")
    return Term(number, owner)


def _is_id(text: str) -> bool:
    return len(text) <= 64 and all(
        char.isascii() and (char.isalnum() or char in "-_.") for char in text
    )


def refusal(promised: Term, asked: Term) -> str | None:
    """Return why a copy that has made a promise refuses a term, None if it admits it.

    >>> refusal(Term(4, "b"), Term(3, "a"))
    'term 3 is over: this node has seen term 4 of b'
    """
    if asked.number > promised.number or asked == promised:
        return None
    if asked.number == promised.number and not promised.owner:
        return None
    whose = f" of {promised.owner}" if promised.owner else ""
    return (
        f"term {asked.number} is over: this node has seen term {promised.number}{whose}"
    )


def is_credible(promised: Term, asked: Term) -> bool:
    """Return whether a term is in reach of the one that a copy has promised.

    A copy that has made no promise yet accepts any number.
    """
    return not promised.number or asked.number <= promised.number + MAX_JUMP


def next_number(own: int, others: Iterable[int]) -> int:
    """Return the number of the next term.

    It is above each number that is believed. A number is not believed if it is more
    than `MAX_JUMP` above the smallest number that half of all copies do not exceed.

    Args:
        own: number that this node's copy has promised.
        others: numbers that the other copies have promised.
    """
    numbers = sorted([own, *others])
    middle = max(own, numbers[(len(numbers) - 1) // 2])
    believed = max(n for n in numbers if n <= middle + MAX_JUMP)
    return min(believed + 1, MAX_NUMBER)


def majority(count: int) -> int:
    """Return how many of so many are a majority."""
    return count // 2 + 1


@dataclasses.dataclass(frozen=True)
class Voters:
    """The candidate set in force: node uuids.

    Attributes:
        now: the set.
        before: the set before a change that is not settled; else empty.
    """

    now: frozenset[str]
    before: frozenset[str] = frozenset()

    @property
    def everyone(self) -> frozenset[str]:
        """All whose copies count."""
        return self.now | self.before

    def _sets(self) -> list[frozenset[str]]:
        return [each for each in (self.now, self.before) if each]

    def has_majority(self, nodes: Collection[str]) -> bool:
        """Return whether nodes are a majority of each set in force."""
        present = frozenset(nodes)
        return all(len(each & present) >= majority(len(each)) for each in self._sets())

    def may_go_on_with(self, nodes: Collection[str]) -> bool:
        """Return whether nodes are a majority of each set that can lose a copy."""
        present = frozenset(nodes)
        return all(
            len(each) <= _SMALL or len(each & present) >= majority(len(each))
            for each in self._sets()
        )

    def is_deposed(self, refusing: Collection[str]) -> bool:
        """Return whether those that do not refuse cannot be a majority any more."""
        return not self.has_majority(self.everyone.difference(refusing))

    def changed(self, wanted: frozenset[str]) -> "Voters":
        """Return what is in force once a group changes the set.

        The set before is `now`: the group that led to it was acknowledged, or this
        one would not be written.
        """
        return Voters(wanted, self.now if self.now != wanted else _NONE)

    def settled(self) -> "Voters":
        """Return what is in force once a change of the set was acknowledged."""
        return Voters(self.now)

    def to_dict(self) -> dict[str, list[str]]:
        """Return the stored form."""
        return {"now": sorted(self.now), "before": sorted(self.before)}


_NONE: Final[frozenset[str]] = frozenset()


def voters_of(value: Any) -> Voters:
    """Return the candidate set that a stored or received value stands for.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, Mapping):
        raise ValueError("a candidate set is a mapping")  # noqa: TRY004
    sets = []
    for name in ("now", "before"):
        nodes = value.get(name, [])
        if not isinstance(nodes, list) or not all(isinstance(n, str) for n in nodes):
            raise ValueError("a candidate set lists node uuids")
        sets.append(frozenset(nodes))
    return Voters(*sets)


class Ack(enum.Enum):
    """Decision of a master about a group that some copies have."""

    #: A majority has it.
    SAFE = "safe"
    #: Copies may still answer.
    WAIT = "wait"
    #: Acknowledge and warn: no majority has it.
    EXPOSED = "exposed"
    #: Do not acknowledge, and take no other change.
    REFUSE = "refuse"


def acknowledgement(
    voters: Voters,
    having: Collection[str],
    *,
    is_open: bool,
    is_overdue: bool,
    is_lenient: bool,
) -> Ack:
    """Decide about a group which was written in the master's own term.

    Args:
        voters: candidate set in force with that group.
        having: candidates that have it on disk.
        is_open: others are up to date and have not answered, or were not tried yet.
        is_overdue: the master has waited as long as it may.
        is_lenient: the administrator lets the master go on without a majority.
    """
    if voters.has_majority(having):
        return Ack.SAFE
    if is_lenient or voters.may_go_on_with(having):
        return Ack.WAIT if is_open and not is_overdue else Ack.EXPOSED
    return Ack.REFUSE if is_overdue else Ack.WAIT


class Copy(NamedTuple):
    """Where the history of one copy ends: ``(w, r)`` of the rules, and the digest."""

    written: int
    revision: int
    digest: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether there is no history."""
        return self.revision == 0

    def is_newer(self, other: "Copy") -> bool:
        """Return whether rule 3 prefers this copy to another."""
        return self[:2] > other[:2] and self.digest != other.digest


@dataclasses.dataclass(frozen=True)
class Election:
    """Promises for one term.

    Attributes:
        own: uuid of this node.
        voters: candidate set in the history that this node has.
        copies: node -> its copy as of its promise; with this node's.
        is_restart: as far as this node's copy knows, this node was master last, and
            no other copy that was heard has a newer history.
    """

    own: str
    voters: Voters
    copies: Mapping[str, Copy]
    is_restart: bool = False

    @property
    def counted(self) -> frozenset[str]:
        """Nodes whose promises count."""
        return frozenset(
            node for node, copy in self.copies.items() if not copy.is_empty
        )

    @property
    def newest(self) -> str:
        """The node whose history is to be taken; this one if it is as new as any."""
        best = self.own
        for node in sorted(self.copies):
            if self.copies[node].is_newer(self.copies[best]):
                best = node
        return best

    @property
    def is_won(self) -> bool:
        """Return whether this node may be master once it has the newest history."""
        if self.own not in self.voters.now:
            return False
        if self.voters.has_majority(self.counted):
            return True
        is_small = not self.voters.before and len(self.voters.now) <= _SMALL
        return is_small and self.is_restart and self.own in self.counted

    @property
    def silent(self) -> list[str]:
        """Candidates whose copies were not heard, or are empty."""
        return sorted(self.voters.everyone - self.counted)
