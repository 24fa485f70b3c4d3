"""The rules for histories. Pure: a history in, violations out.

The rules are those of ``doc/design/commit-rule.rst``. An operator who accepted loss may
lose what was acknowledged, but only what ``gnt-cluster lost-changes`` lists then.
"""

import collections
import dataclasses
import itertools

from ganeti.decisions.quorum import Term

#: Stages of a job that has ended.
FINAL = ("success", "error", "canceled")


@dataclasses.dataclass
class Submission:
    """One job of a client.

    Times are seconds on one clock, and None where nothing was answered.

    Attributes:
        mark: text in the job that no other one has.
        kind: ``delay``, ``tag``, ``register`` or ``role``.
        value: the tag or the register's value, if the job sets one.
        invoked, acknowledged: when the job was sent, and when its id came back.
        job: its id.
        ended: when the client got to know its end.
        status: which end.
    """

    mark: str
    kind: str
    value: str = ""
    invoked: float = 0.0
    acknowledged: float | None = None
    job: int | None = None
    ended: float | None = None
    status: str = ""


@dataclasses.dataclass(frozen=True)
class Point:
    """A group in a history of the store: its revision and the number of its term."""

    revision: int
    term: int


@dataclasses.dataclass(frozen=True)
class Copy:
    """Where a copy of the store stands.

    Attributes:
        revision, digest: of its history.
        serial: of the configuration.
        last_job: the highest job id that was given out.
    """

    revision: int
    digest: str
    serial: int = 0
    last_job: int = 0


@dataclasses.dataclass
class History:
    """All that was recorded in one history.

    Attributes:
        submissions: of all clients.
        is_forced: an operator accepted loss.
        acts: node -> in the order of its log, the terms of the calls that it carried out
            and (with None as the procedure) of those that it promised.
        elected: terms that master daemons won, with the node of each.
        before, after: candidate -> its copy at the beginning, and at the end.
        lost: copies that were set aside.
        chain: groups of the last master's history, in order.
        jobs: id -> (status, mark) of the last master.
        tags: of the cluster.
        register: its value; empty if it was never set.
        lost_jobs: ids that ``lost-changes`` lists on any node.
        serving: nodes that serve at the end.
        answers: candidate -> the serials that its confd answered, in order.
        refusals: texts of commands and daemons that refused to go on.
    """

    submissions: list[Submission] = dataclasses.field(default_factory=list)
    is_forced: bool = False
    acts: dict[str, list[tuple[str | None, Term]]] = dataclasses.field(
        default_factory=dict
    )
    elected: list[tuple[str, Term]] = dataclasses.field(default_factory=list)
    before: dict[str, Copy] = dataclasses.field(default_factory=dict)
    after: dict[str, Copy] = dataclasses.field(default_factory=dict)
    lost: list[Copy] = dataclasses.field(default_factory=list)
    chain: list[Point] = dataclasses.field(default_factory=list)
    jobs: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict)
    tags: set[str] = dataclasses.field(default_factory=set)
    register: str = ""
    lost_jobs: set[int] = dataclasses.field(default_factory=set)
    serving: list[str] = dataclasses.field(default_factory=list)
    answers: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    refusals: list[str] = dataclasses.field(default_factory=list)


def violations(history):
    """Return what a history must not show, as texts; none if it keeps all rules."""
    return [
        *_masters(history),
        *_acts(history),
        *_chain(history),
        *_ids(history),
        *_jobs(history),
        *_tags(history),
        *_register(history),
        *_copies(history),
        *_numbers(history),
        *_answers(history),
        *_end(history),
    ]


def _masters(history):
    """Each term has one master, and is won once."""
    winners = collections.defaultdict(list)
    for node, term in history.elected:
        winners[term].append(node)
    for term, nodes in sorted(winners.items()):
        if len(nodes) > 1:
            yield f"term {term} was won more than once: by {', '.join(nodes)}"
    if history.is_forced:
        return
    # A term in the header of a call is one that its owner has won.
    acting = {
        term
        for acts in history.acts.values()
        for name, term in acts
        if name is not None
    }
    owners = collections.defaultdict(set)
    for term in acting | set(winners):
        owners[term.number].add(term.owner)
    for number, collected in sorted(owners.items()):
        if len(collected) > 1:
            yield f"term {number} has {len(collected)} masters: {', '.join(sorted(collected))}"


#: Calls that were under way when a node learned of a term may be logged after it.
_UNDER_WAY = 3


def _acts(history):
    """A node that knows a term begins nothing for an earlier one."""
    for node, acts in sorted(history.acts.items()):
        newest, since = Term(), 0
        for procedure, term in acts:
            since += 1
            if term.number > newest.number:
                newest, since = term, 0
            elif term != newest and procedure is not None and since > _UNDER_WAY:
                yield (
                    f"{node} carried out {procedure} for term {term} after it had seen"
                    f" term {newest}"
                )


def _chain(history):
    """Terms never go back along the history, and revisions grow."""
    for old, new in zip(history.chain, history.chain[1:], strict=False):
        if new.term < old.term or new.revision <= old.revision:
            yield (
                f"revision {new.revision} of term {new.term} follows revision"
                f" {old.revision} of term {old.term}"
            )


def _ids(history):
    """No job id is given out twice."""
    given = collections.defaultdict(list)
    for item in history.submissions:
        if item.job is not None:
            given[item.job].append(item.mark)
    for job, marks in sorted(given.items()):
        if len(marks) > 1:
            yield f"job id {job} was given to {', '.join(marks)}"


def _excused(history, item):
    return history.is_forced and item.job in history.lost_jobs


def _jobs(history):
    """An acknowledged job is there, and its end stays what it was."""
    for item in history.submissions:
        if item.job is None or _excused(history, item):
            continue
        if item.job not in history.jobs:
            yield f"job {item.job} ({item.mark}) was acknowledged and is lost"
            continue
        status, mark = history.jobs[item.job]
        if mark != item.mark:
            yield f"job {item.job} was given to {item.mark} and is {mark}'s now"
        elif item.status and status != item.status:
            yield f"job {item.job} ({mark}) had ended as {item.status}, now {status}"
        elif status not in FINAL:
            yield f"job {item.job} ({mark}) does not end: it is {status}"


def _tags(history):
    """A tag is there if the job that set it has succeeded."""
    for item in history.submissions:
        if item.kind != "tag" or _excused(history, item):
            continue
        is_done = item.status or history.jobs.get(item.job or 0, ("", ""))[0]
        if is_done == "success" and item.value not in history.tags:
            yield f"job {item.job} ({item.mark}) set tag {item.value}, which is lost"


def _register(history):
    """The register has no value that was known to be overwritten."""
    writes = [item for item in history.submissions if item.kind == "register"]
    [last] = [item for item in writes if item.value == history.register] or [None]
    if last is None:
        if any(
            item.status == "success" and not _excused(history, item) for item in writes
        ):
            yield f"the register is {history.register!r}, which nobody has written"
        return
    for item in writes:
        is_later = item.ended is not None and item.invoked > (last.ended or item.ended)
        if (
            is_later
            and last.ended is not None
            and item.status == "success"
            and not _excused(history, item)
        ):
            yield (
                f"the register is {last.value} of job {last.job}, which had ended before"
                f" job {item.job} set {item.value}"
            )


def _copies(history):
    """All candidates have the same history in the end."""
    if len({(copy.revision, copy.digest) for copy in history.after.values()}) > 1:
        collected = ", ".join(
            f"{node}: {copy.revision} {copy.digest[:8]}"
            for node, copy in sorted(history.after.items())
        )
        yield f"the copies differ: {collected}"


def _numbers(history):
    """Revisions, serials and job ids never go back, not even behind lost ones."""
    given = [item.job for item in history.submissions if item.job is not None]
    for node, new in sorted(history.after.items()):
        olds = list(history.before.values())
        if history.is_forced:
            olds += history.lost
        for old in olds:
            for name in ("revision", "serial", "last_job"):
                if getattr(new, name) < getattr(old, name):
                    yield (
                        f"{node}: {name} went back from {getattr(old, name)} to"
                        f" {getattr(new, name)}"
                    )
        if given and new.last_job < max(given):
            yield f"{node}: the last job id is {new.last_job}, {max(given)} was given"


def _answers(history):
    """No answer of confd is older than one that the same candidate gave before.

    The newest answer of several candidates, which clients take, is then never older
    than one of the same candidates before. A copy that a forced failover left behind
    answers with the lower numbers until the master has replaced it.
    """
    if history.is_forced:
        return
    for node, serials in history.answers.items():
        for before, after in itertools.pairwise(serials):
            if after < before:
                yield f"confd on {node}: serial {after} after {before}"


def _end(history):
    """One master serves, and each refusal has a reason."""
    if len(history.serving) != 1:
        yield f"masters at the end: {', '.join(history.serving) or 'none'}"
    for text in history.refusals:
        if not text.strip():
            yield "a command failed without a word"
        elif "Traceback" in text:
            yield f"a command failed with a traceback: {text[-2000:]}"
