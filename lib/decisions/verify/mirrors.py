"""States of mirrored disks by a comparison of both nodes, and the command for each.

The answer of one node does not distinguish a split brain from a connection that was
ended: in both cases its data is up to date, and it has no connection. Generation
identifiers of the data decide: DRBD gives data a new one when it is written to without
the other node, and keeps the former one, see "How DRBD uses generation identifiers" in
the users' guide of DRBD 8.4.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from ganeti.model import objects

#: A word of the kernel; it is shown.
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z]{1,24}\Z")]
_Generation = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-F]{16}\Z")]
_NO_DISK: Final = ("Diskless", "Failed", "Detaching")
_COMPLETE: Final = "UpToDate"
_OUTDATED: Final = "Outdated"
#: The role of a node that uses the device.
_IN_USE: Final = "Primary"
#: Connections in which a node neither has its peer nor looks for it.
_ALONE: Final = ("StandAlone", "Disconnecting")
_SOURCES: Final = ("SyncSource", "PausedSyncS", "StartingSyncS", "WFBitMapS")
_TARGETS: Final = ("SyncTarget", "PausedSyncT", "StartingSyncT", "WFBitMapT")
TALKING: Final = (
    *("Connected", "VerifyS", "VerifyT", "WFSyncUUID", "Ahead", "Behind"),
    *_SOURCES,
    *_TARGETS,
)
#: Identifiers differ in their lowest bit by the role of the node.
_ROLE_BIT: Final = 1
#: Longest reason of a node that is shown, characters.
_MAX_REASON: Final = 300
_UNREADABLE: Final = "reports a state that cannot be read"
#: How many identifiers a node has of its data.
_COUNT: Final = 4
_SECOND: Final = "; to give it a second copy on another node"
#: No generation, and that of data that was never written to.
_EMPTY: Final = (0, 4)


class State(enum.StrEnum):
    """The state of a mirror of two nodes."""

    SYNCING = "syncing"
    INACTIVE = "inactive"
    LOST = "lost"
    DISKLESS = "diskless"
    INCOMPLETE = "incomplete"
    SPLIT_BRAIN = "split brain"
    UNRELATED = "unrelated data"
    OUTDATED = "outdated"
    STANDALONE = "standalone"
    CONNECTING = "connecting"
    ALONE = "degraded"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A mirror that is not complete on two connected nodes.

    Attributes:
        state: a word for it.
        text: one line for administrators, without the disk.
        command: that mends it; empty if none does.
        is_error: whether somebody has to act; otherwise it ends by itself.
        activates: whether the command only activates the disks, which loses nothing.
        forbids: whether an activation lets the guest go on with the wrong data.
        makes_on: names of the nodes on which the command makes new volumes.
        without_group: end of the text, and the command, if one of these lacks the
            volume group.
    """

    state: State
    text: str
    command: str = ""
    is_error: bool = True
    activates: bool = False
    forbids: bool = False
    makes_on: tuple[str, ...] = ()
    without_group: tuple[str, str] = ("", "")

    def elsewhere(self, names: Sequence[str]) -> "Problem":
        """Return the problem with what to do if nodes lack the volume group."""
        text, command = self.without_group
        who = f"node {names[0]} lacks" if len(names) == 1 else "both nodes lack"
        text = f"{self.text}{text}, since {who} the volume group"
        return dataclasses.replace(self, text=text, command=command, makes_on=())

    def line(self) -> str:
        """Return text and command."""
        return f"{self.text}; run {self.command}" if self.command else self.text


#: States in which the data of the secondary node cannot be used any more.
SECONDARY_IS_GIVEN_UP: Final = frozenset({State.SPLIT_BRAIN, State.UNRELATED})


#: Whether a node, by its uuid, is known to lack a volume group of a mirror.
LacksGroup = Callable[[str, objects.Disk], bool]


def lacks_nothing(_node: str, _disk: objects.Disk) -> bool:
    """Return that a node is not known to lack a volume group."""
    return False


def lacks_group(present: frozenset[str] | None, disk: objects.Disk) -> bool:
    """Return whether a mirror needs another volume group than a node has.

    Args:
        present: the groups of the node; None if they are not known.
        disk: the mirror.
    """
    needed = {str(part.logical_id[0]) for part in disk.children}
    return present is not None and not needed <= present


class _Kernel(msgspec.Struct, frozen=True):
    connection: _Word
    role: _Word = "Unknown"
    disk: _Word = "DUnknown"
    peer_disk: _Word = "DUnknown"
    generations: tuple[_Generation, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    """The part of a node's status of a block device that is compared."""

    dev_path: str = ""
    sync_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    estimated_time: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    mirror: _Kernel | None = None


@dataclasses.dataclass(frozen=True)
class _Side:
    """One node, and its answer: None without volumes, a text without an answer."""

    name: str
    answer: _Answer | str | None

    @property
    def kernel(self) -> _Kernel | None:
        return self.answer.mirror if isinstance(self.answer, _Answer) else None

    @property
    def is_active(self) -> bool:
        return isinstance(self.answer, _Answer) and bool(self.answer.dev_path)

    @property
    def is_of_old_release(self) -> bool:
        """Whether the node does not report what is compared."""
        return self.is_active and self.kernel is None

    @property
    def is_diskless(self) -> bool:
        return self.kernel is not None and self.kernel.disk in _NO_DISK

    @property
    def is_complete(self) -> bool:
        return self.kernel is not None and self.kernel.disk == _COMPLETE

    @property
    def connection(self) -> str:
        return self.kernel.connection if self.kernel is not None else ""

    @property
    def generations(self) -> tuple[int, ...]:
        words = self.kernel.generations if self.kernel is not None else ()
        return tuple(int(word, 16) & ~_ROLE_BIT for word in words)


def find(
    instance: str,
    index: int,
    primary: tuple[str, Sequence[Any] | None],
    secondary: tuple[str, Sequence[Any] | None],
) -> Problem | None:
    """Return the problem of an active mirror, None if it has none.

    Args:
        instance: name of its owner.
        index: of the disk.
        primary: name of the node, and its row of ``blockdev_getmirrorstatus_multi``;
            None if the node is marked offline.
        secondary: the same of the other node.
    """
    own, other = (_Side(name, _read(row)) for name, row in (primary, secondary))
    if own.is_of_old_release or other.is_of_old_release:
        return None
    return _Mirror(instance, index, own, other).problem()


def of_instance(
    snapshot: objects.Snapshot,
    instance: objects.Instance,
    rows: Mapping[str, Sequence[Sequence[Any]]],
    lacks: LacksGroup = lacks_nothing,
) -> dict[int, Problem]:
    """Return index -> problem of the active mirrors of an instance.

    Args:
        snapshot: the configuration.
        instance: the owner.
        rows: node uuid -> (whether known, status) of each of its disks. Mirrors on a
            node that is absent, without being marked offline, are left out.
        lacks: decides whether a command can make volumes on a node.
    """
    problems: dict[int, Problem] = {}
    nodes = snapshot.instance_nodes(instance)
    silent = [n for n in nodes if n not in rows and not snapshot.nodes[n].offline]
    if silent or not instance.disks_active:
        return problems
    for index, disk in enumerate(snapshot.instance_disks(instance)):
        if disk.dev_type != "drbd" or disk.forthcoming:
            continue
        others = [node for node in disk.nodes if node != instance.primary_node]
        ends = [
            (snapshot.nodes[node].name, rows[node][index] if node in rows else None)
            for node in (instance.primary_node, *others)
        ]
        problem = find(instance.name, index, *ends)
        if problem is not None:
            problems[index] = with_groups(snapshot, problem, disk, lacks)
    return problems


def with_groups(
    snapshot: objects.Snapshot,
    problem: Problem,
    disk: objects.Disk,
    lacks: LacksGroup,
) -> Problem:
    """Return a problem with a command that the volume groups of the nodes allow."""
    nodes = [snapshot.nodes[uuid] for uuid in disk.nodes]
    names = [
        node.name
        for node in nodes
        if node.name in problem.makes_on and lacks(node.uuid, disk)
    ]
    return problem.elsewhere(names) if names else problem


def _read(row: Sequence[Any] | None) -> _Answer | str | None:
    if row is None:
        return "is marked offline"
    is_known, status = row
    if not is_known:
        # A text of the node, which is shown.
        words = str(status)[:_MAX_REASON]
        shown = "".join(char if char.isprintable() else "?" for char in words)
        return f"does not report its state ({shown})"
    if status is None:
        return None
    try:
        answer = msgspec.convert(status, _Answer, from_attributes=True)
    except msgspec.ValidationError:
        return _UNREADABLE
    count = len(answer.mirror.generations) if answer.mirror is not None else 0
    return answer if count in (0, _COUNT) else _UNREADABLE


@dataclasses.dataclass(frozen=True)
class _Mirror:
    """Both sides of one mirror."""

    instance: str
    index: int
    own: _Side
    other: _Side

    def problem(self) -> Problem | None:
        """Return the first problem, from those of one node to those of both."""
        first = self._first_problem()
        if first is not None and first.activates and self._is_used_elsewhere:
            return self._elsewhere(first.state, first.text)
        return first

    def _elsewhere(self, state: State, text: str) -> Problem:
        """Return a problem of a disk that the secondary node has in use.

        Activated on the primary node, too, the copies would be written to separately.
        """
        text += (
            f"; node {self.other.name}, the secondary one, has it in use; if the guest"
            " runs there after a migration"
        )
        command = self._command("migrate", "--cleanup")
        return Problem(state, text, command, forbids=True)

    @property
    def _is_used_elsewhere(self) -> bool:
        """Whether the secondary node has the disk in use, and the primary has not."""
        own, other = (
            side.kernel.role if side.kernel is not None else ""
            for side in (self.own, self.other)
        )
        return other == _IN_USE and own != _IN_USE

    def _first_problem(self) -> Problem | None:
        for side in (self.own, self.other):
            if isinstance(side.answer, str):
                return self._unknown(side)
        if self.own.answer is None or self.other.answer is None:
            return self._lost()
        if not (self.own.is_active and self.other.is_active):
            return self._inactive()
        if self.own.is_diskless or self.other.is_diskless:
            return self._diskless()
        if self._is_connected:
            return self._copied()
        return self._apart()

    @property
    def _is_connected(self) -> bool:
        # After a connection has ended, one node may notice it later than the other.
        return self.own.connection in TALKING and self.other.connection in TALKING

    # Commands
    def _command(self, name: str, *options: str) -> str:
        return " ".join(["gnt-instance", name, *options, self.instance])

    def _activation(self, state: State, text: str) -> Problem:
        return Problem(state, text, self._command("activate-disks"), activates=True)

    def _forced(self) -> str:
        return self._command("failover", "--ignore-consistency")

    def _replace(self, side: _Side) -> str:
        letter = "-p" if side is self.own else "-s"
        return self._command("replace-disks", letter, f"--disks={self.index}")

    def _another(self) -> str:
        return self._command("replace-disks", "-n NODE")

    def _new_copy(
        self, state: State, text: str, bad: _Side, instead: str = _SECOND
    ) -> Problem:
        """Return a problem that new volumes on a node mend; it needs its group.

        Args:
            state: a word for the problem.
            text: one line.
            bad: the side that has lost its copy.
            instead: end of the text if another node has to get the copy.
        """
        new = self.other if state is State.LOST else bad
        return Problem(
            state,
            text,
            self._replace(new),
            makes_on=(bad.name,),
            without_group=(instead, self._another()),
        )

    # Problems of one node
    def _unknown(self, side: _Side) -> Problem:
        rest = self.other if side is self.own else self.own
        text = f"node {side.name} {side.answer}"
        if rest.kernel is None or rest is self.other:
            return Problem(State.UNKNOWN, text)
        if not rest.is_complete:
            return Problem(
                State.INCOMPLETE, f"{text}, and the data of node {rest.name} is"
                f" {_word(rest)}",
            )  # fmt: skip
        text += f"; only node {rest.name} has the present data"
        text += "; if the node stays away, give the disk another one"
        return Problem(State.ALONE, text, self._another())

    def _lost(self) -> Problem:
        if self.own.answer is None and self.other.answer is None:
            return Problem(
                State.LOST,
                "its volumes are missing on both nodes; to create it again, without"
                " data, stop the instance",
                self._command("recreate-disks", f"--disk={self.index}"),
                makes_on=(self.own.name, self.other.name),
                without_group=(
                    ", and create all of its disks on other nodes",
                    self._command("recreate-disks", "-n NODE:NODE"),
                ),
            )
        if self.other.answer is None:
            text = f"its volumes are missing on node {self.other.name}"
            return self._new_copy(State.LOST, text, self.other)
        text = f"its volumes are missing on node {self.own.name}, its primary node"
        if self.other.is_active and not self.other.is_complete:
            text += f", and the data of node {self.other.name} is {_word(self.other)}"
            return Problem(State.LOST, f"{text}; a backup is needed")
        # It has what was written until the connection ended, so a failover that
        # requires complete data is refused.
        text += (
            f"; to go on with the data of node {self.other.name}, run {self._forced()}"
            " first; then, to give it a second copy"
        )
        return self._new_copy(State.LOST, text, self.own, " on another node")

    def _inactive(self) -> Problem:
        names = [side.name for side in (self.own, self.other) if not side.is_active]
        where = (
            f"node {names[0]}" if len(names) == 1 else f"nodes {' and '.join(names)}"
        )
        return self._activation(State.INACTIVE, f"is not active on {where}")

    def _diskless(self) -> Problem:
        if self.own.is_diskless and self.other.is_diskless:
            text = "both nodes have lost their copies; a backup is needed"
            return Problem(State.DISKLESS, text)
        bad, good = self.own, self.other
        if self.other.is_diskless:
            bad, good = good, bad
        text = f"diskless: node {bad.name} has lost its copy"
        if not good.is_complete:
            text += f", and the data of node {good.name} is {_word(good)}"
            return Problem(State.DISKLESS, text)
        if bad is self.own and not self._is_connected:
            # The last writes may be in the lost copy alone.
            text += (
                f", and is not connected with node {good.name}, whose data may be old;"
                f" to go on with that data, run {self._forced()}; to try the lost copy"
            )
            return self._activation(State.DISKLESS, text)
        text += f", node {good.name} has it"
        instead = _SECOND
        if bad is self.own:
            instead = f"; run {self._command('migrate')}, and then{_SECOND[1:]}"
        return self._new_copy(State.DISKLESS, text, bad, instead)

    # Problems of both
    def _copied(self) -> Problem | None:
        for source, target in ((self.own, self.other), (self.other, self.own)):
            if source.connection in _SOURCES or target.connection in _TARGETS:
                return self._syncing(source, target)
        for side in (self.own, self.other):
            if not side.is_complete:
                text = f"the data of node {side.name} is {_word(side)}"
                return self._activation(State.INCOMPLETE, text)
        return None

    def _syncing(self, source: _Side, target: _Side) -> Problem:
        text = f"is being copied from node {source.name} to node {target.name}"
        answers = [
            side.answer
            for side in (source, target)
            if isinstance(side.answer, _Answer) and side.answer.sync_percent is not None
        ]
        if answers:
            text += f", {answers[0].sync_percent:.1f} % done"
            if answers[0].estimated_time is not None:
                text += f", about {answers[0].estimated_time:.0f} s left"
        if source.connection.startswith("Paused"):
            return Problem(State.SYNCING, f"{text}, paused")
        return Problem(State.SYNCING, text, is_error=False)

    def _apart(self) -> Problem:
        own, other = self.own, self.other
        for side in (own, other):
            if not side.is_complete and side.kernel and side.kernel.disk != _OUTDATED:
                text = (
                    f"the nodes are not connected, and the data of node {side.name} is"
                    f" {_word(side)}"
                )
                return self._activation(State.INCOMPLETE, text)
        state = compare(own.generations, other.generations)
        if state is Age.SPLIT:
            return self._torn(
                State.SPLIT_BRAIN, "split brain: both nodes were written to alone"
            )
        if state is Age.UNRELATED:
            return self._torn(State.UNRELATED, "the nodes have unrelated data")
        if state is Age.OLDER:
            # Its activation would let the guest go on with the older data.
            text = (
                f"outdated: node {own.name}, the primary one, has older data than node"
                f" {other.name}"
            )
            return Problem(State.OUTDATED, text, self._forced(), forbids=True)
        about = self._connection_text()
        kind = State.OUTDATED
        if state is Age.NEWER:
            text = f"outdated: the data of node {other.name} is old, since {about}"
        else:
            text, kind = about, State.STANDALONE
        if {own.connection, other.connection} & set(_ALONE):
            return self._activation(kind, text)
        text += "; check the network between their secondary addresses"
        return Problem(State.CONNECTING if kind is State.STANDALONE else kind, text)

    def _connection_text(self) -> str:
        alone = [
            side.name for side in (self.own, self.other) if side.connection in _ALONE
        ]
        if not alone:
            return "the nodes cannot reach each other"
        verb = "does" if len(alone) == 1 else "do"
        names = " and ".join(alone)
        nodes = "node" if len(alone) == 1 else "nodes"
        return f"standalone: {nodes} {names} {verb} not try to connect"

    def _torn(self, state: State, text: str) -> Problem:
        if self._is_used_elsewhere:
            return self._elsewhere(state, text)
        text += (
            f"; to give up the data of node {self.own.name}, run {self._forced()}"
            " first; to give up that of the secondary node"
        )
        return Problem(state, text, self._replace(self.other))


def _word(side: _Side) -> str:
    return side.kernel.disk if side.kernel is not None else "unknown"


class Age(enum.Enum):
    """How the data of one node relates to that of another one."""

    EQUAL = enum.auto()
    NEWER = enum.auto()
    OLDER = enum.auto()
    SPLIT = enum.auto()
    UNRELATED = enum.auto()
    UNKNOWN = enum.auto()


def compare(own: Sequence[int], other: Sequence[int]) -> Age:
    """Return how data relates to that of another node, as DRBD decides it.

    Args:
        own: identifiers of its generations: present, since the other node was lost,
            and two former ones, without the bit of the role.
        other: the same of the other node.
    """
    if not own or not other:
        return Age.UNKNOWN
    present, since, *former = own
    peer, peer_since, *peer_former = other
    if present == peer or {present, peer} & set(_EMPTY):
        return Age.EQUAL if present == peer else Age.UNKNOWN
    if since == peer:
        return Age.NEWER
    if peer_since == present:
        return Age.OLDER
    if peer in former:
        return Age.NEWER
    if present in peer_former:
        return Age.OLDER
    known = {since, *former} - set(_EMPTY)
    return Age.SPLIT if known & {peer_since, *peer_former} else Age.UNRELATED
