"""One run over all instances: each gets the step that ``decisions.repair`` decides on.

The order of effects makes an interruption harmless at any point. A pending tag is set,
and its job waited for, before the first job of the repair is submitted. Every decision
that leads to an effect is made again on data queried just before the effect.
"""

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from ganeti.automation.autorepair import cluster_view
from ganeti.automation.autorepair.cluster_view import ClusterView, KnownJobs
from ganeti.automation.autorepair.recorder import Recorder
from ganeti.automation.autorepair.tag_changes import (
    REFUSALS,
    Reporter,
    RunSettings,
    TagChanges,
)
from ganeti.base import errors, pathutils
from ganeti.base.clock import Clock
from ganeti.base.constants.jobqueue import JOB_STATUS_ERROR, JOB_STATUS_SUCCESS
from ganeti.base.filesystem import files
from ganeti.base.text.control_chars import escape
from ganeti.decisions.repair import diagnosis, journal, plan, tags
from ganeti.decisions.repair.journal import Decision, Item, JobEnd
from ganeti.decisions.repair.limits import Act
from ganeti.decisions.repair.plan import JobState, RepairState, RepairStep
from ganeti.decisions.repair.tags import (
    RepairKind,
    RepairOutcome,
    RepairPolicy,
    RepairRecord,
)
from ganeti.protocols import luxi


def summary(count: Mapping[RepairState, int]) -> str:
    """Return the numbers of instances by state as a text; empty for none."""
    return ", ".join(f"{state}: {count[state]}" for state in sorted(count))


# The lock that keeps two programs from repairing at the same time.

_LOCK_FILE: Final = "ganeti-autorepair.lock"


@contextlib.contextmanager
def exclusive(paths: pathutils.Paths, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock of automatic repairs on this node, the master.

    Raises:
        LockError: another program had it for longer than the timeout.
        OSError: the lock file cannot be opened.
    """
    with files.locked(f"{paths.lock_dir}/{_LOCK_FILE}", timeout_s=timeout_s):
        yield


class RepairRun:
    """One run.

    Attributes:
        jobs: ids of the jobs of repairs that were submitted.
        touched: nodes of the instances with a repair under way.
        failed: names of the instances whose repair has failed.
    """

    def __init__(
        self,
        client: luxi.Client,
        clock: Clock,
        settings: RunSettings,
        reporter: Reporter,
        new_id: Callable[[], str],
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._report = reporter
        self._new_id = new_id
        self._now = int(clock.time())
        self._changes = TagChanges(client, clock, settings, reporter)
        #: Report of this run to the journal; None if it has no effects.
        self._round: Recorder | None = None
        #: Instance -> tags that a run without effects would have set.
        self._pretended: dict[str, list[str]] = {}
        self.jobs: list[int] = []
        self.touched: set[str] = set()
        self.failed: list[str] = []

    @property
    def has_failed(self) -> bool:
        """Whether the master refused a job, or a change of tags failed."""
        return self._changes.has_failed

    def all(self) -> Counter[RepairState]:
        """Do the next step of every instance; return the number of each state.

        Repairs begin first: the tags of all are set before the first job is submitted.

        Raises:
            DataError: an answer of the master is malformed.
            GenericError: the master does not answer.
        """
        return self._reported(lambda _row: True)

    def within(self, nodes: Collection[str]) -> Counter[RepairState]:
        """Do the next step of the instances all of whose nodes have one of the names.

        Raises:
            DataError, GenericError: see `all`.
        """
        return self._reported(lambda row: {*_nodes(row)}.issubset(nodes))

    def of_node(self, node: str, since: float) -> Counter[RepairState]:
        """Do the next step of the instances of a node that died at some time.

        A failover gives an instance its new primary node before it starts it there. So
        they are those of the node, and those with a repair that has begun or failed
        since then.

        Raises:
            DataError, GenericError: see `all`.
        """
        return self._reported(
            lambda row: row["pnode"] == node or _is_open(row["tags"], int(since))
        )

    def _reported(
        self, is_wanted: Callable[[cluster_view.Row], bool]
    ) -> Counter[RepairState]:
        if self._settings.dry_run:
            return self._all(is_wanted)
        self._round = Recorder(self._client.call, journal.AUTOREPAIR)
        self._changes.round = self._round
        try:
            return self._all(is_wanted)
        finally:
            self._warn(self._round.finish())

    def _all(
        self, is_wanted: Callable[[cluster_view.Row], bool]
    ) -> Counter[RepairState]:
        view = cluster_view.load(self._client)
        rows = {name: row for name, row in view.instances.items() if is_wanted(row)}
        # Most instances are healthy in most runs.
        idle = {name for name in rows if view.is_idle(name)}
        wanted = {name: row for name, row in rows.items() if name not in idle}
        view = dataclasses.replace(view, instances=wanted)
        records = {n: tags.records(row["tags"]) for n, row in wanted.items()}
        pending = {n: rs for n, rs in records.items() if _is_pending(rs)}
        jobs = cluster_view.load_jobs(self._client, pending)
        self._remove_expired(view)
        states: dict[str, RepairState | None] = dict.fromkeys(idle, RepairState.HEALTHY)
        states |= {
            name: self._one(name, view, jobs) for name in wanted if name not in pending
        }
        begun = [name for name, state in states.items() if state == RepairState.PENDING]
        for name in (*sorted(pending, key=lambda n: (_oldest(pending[n]), n)), *begun):
            states[name] = self._one(name, view, jobs, is_new=name in begun)
        for name, row in wanted.items():
            if states.get(name) == RepairState.PENDING:
                self.touched.update(_nodes(row))
        self.failed = sorted(n for n in states if states[n] == RepairState.FAILED)
        return Counter(state for state in states.values() if state is not None)

    def _one(
        self, name: str, view: ClusterView, jobs: KnownJobs, *, is_new: bool = False
    ) -> RepairState | None:
        """Do the next step of one instance; return its state, None if it is gone."""
        own, step, policy = self._decide(name, view, jobs)
        if step.is_change or is_new:
            view = cluster_view.load(self._client, name)
            if name not in view.instances:
                return None
            own = tags.records(self._tags(name, view))
            jobs = cluster_view.load_jobs(self._client, {name: own})
            own, step, policy = self._decide(name, view, jobs)
        step, limit = self._limited(name, own, step)
        self._explain(name, own, step)
        is_quiet = step.state == RepairState.HEALTHY and not step.is_change
        if self._round is not None and (step.note or not is_quiet):
            self._round.add(_item(view.instances[name], own, step, limit))
            if step.repair is not None:
                self._warn(self._round.report())
        if self._round is not None:
            self._round.note_ends(_ends(own, step, jobs))
        if step.repair is None or step.record is None:
            removed = [record.original_tag for record in step.remove]
            added = [record.tag for record in step.add]
            is_done = self._changes.change("instance", name, added, removed)
            if self._settings.dry_run:
                present = set(self._tags(name, view))
                self._pretended[name] = sorted(present - {*removed} | {*added})
            is_begin = step.state == RepairState.PENDING and not _is_pending(own)
            return step.state if is_done or not is_begin else RepairState.NEEDS_REPAIR
        return self._submit(name, step, policy)

    def _decide(
        self, name: str, view: ClusterView, jobs: KnownJobs
    ) -> tuple[list[RepairRecord], RepairStep, RepairPolicy]:
        """Return records of an instance, its next step, and the permitted repairs."""
        present = self._tags(name, view)
        records = cluster_view.complete(tags.records(present), jobs)
        damaged = tags.unreadable_records(present)
        health = view.health(name)
        repair = start = None
        obstacle = ""
        if health is not None:
            repair = diagnosis.find_repair(health, view.allocators)
            obstacle = "" if repair else diagnosis.obstacle(health)
            if health.primary is diagnosis.NodeHealth.GOOD and view.is_down(name):
                start = diagnosis.start(name)
        policy = view.policy(name, present, self._now)
        step = plan.step(
            plan.InstanceTags(records, damaged[0] if damaged else "", start, obstacle),
            jobs.states,
            repair,
            policy,
            plan.NewRecord(self._now, self._new_id()),
            busy=jobs.busy.get(name),
        )
        return records, step, policy

    def _tags(self, name: str, view: ClusterView) -> Sequence[str]:
        own: Sequence[str] = view.instances[name]["tags"]
        return self._pretended.get(name, own)

    def _explain(
        self, name: str, records: Sequence[RepairRecord], step: RepairStep
    ) -> None:
        was_pending = _is_pending(records)
        if step.note:
            text = f"{name}: {escape(step.note)}"
            if step.is_alarming:
                self._report.warning(text)
            elif step.is_change or step.state == RepairState.PENDING:
                self._report.info(text)
            else:
                self._report.detail(text)
        if was_pending and step.state != RepairState.PENDING and step.is_change:
            before = RepairState.PENDING
            self._report.info(f'Moving {name} from "{before}" to "{step.state}"')

    def _limited(
        self, name: str, records: Sequence[RepairRecord], step: RepairStep
    ) -> tuple[RepairStep, str]:
        """Return a step, without its act if a limit refuses it; and that limit.

        Ends of repairs are recorded nevertheless: they are facts.
        """
        act = _act_of(step)
        if self._round is None or act is None:
            return step, ""
        moved = name if act is Act.MOVE else ""
        refusal = self._round.refusal(act, self._clock.time(), moved)
        if refusal is None:
            return step, ""
        state = step.state if _is_pending(records) else RepairState.NEEDS_REPAIR
        return RepairStep(state, note=refusal.text), refusal.limit

    def _warn(self, problem: str) -> None:
        if problem:
            self._report.warning(problem)

    # Acting
    def _submit(self, name: str, step: RepairStep, policy: RepairPolicy) -> RepairState:
        """Submit a repair's job and add its id to the tag; return the state."""
        repair, record = step.repair, step.record
        if repair is None or record is None:
            raise errors.ProgrammerError(f"{name}: step without a repair: {step}")
        self._report.info(f"{name}: {repair.reason}, repair: {repair.kind.word}")
        ops = [dict(op) for op in repair.ops]
        if self._settings.job_delay_s > 0:
            delay = self._settings.job_delay_s
            ops.insert(0, {"OP_ID": "OP_TEST_DELAY", "duration": delay})
        removed = [old.original_tag for old in step.remove]
        if self._settings.dry_run:
            self._report.info(f"Would submit: {json.dumps(ops)}")
            return step.state
        permission = policy.origin or "a request for this instance alone"
        common = self._changes.common(
            record, f"{repair.reason}, permitted by {permission}"
        )
        try:
            job = self._client.call("SubmitJob", [[op | common for op in ops]])
        except (errors.JobQueueFull, errors.JobQueueDrainError):
            raise
        except REFUSALS as err:
            self._changes.fail(f"{name}: the repair was not accepted: {err}")
            if self._round is not None:
                refused = {name: f"the repair was not accepted: {err}"}
                self._round.note_refusals(journal.INSTANCE, refused, repair.kind.word)
            return step.state
        self._report.detail(f"{name}: job {job}: {repair.kind.word}")
        self.jobs.append(int(job))
        if self._round is not None:
            if _act_of(step) is Act.MOVE:
                self._round.note_move(name)
            self._round.note_jobs(journal.INSTANCE, {name: int(job)}, repair.kind.word)
        grown = dataclasses.replace(record, jobs=(*record.jobs, int(job)))
        self._changes.change("instance", name, [grown.tag], removed, is_optional=True)
        return step.state

    def _remove_expired(self, view: ClusterView) -> None:
        """Remove suspensions that have ended."""
        owners: list[tuple[str, str | None, Sequence[str]]] = [
            ("cluster", None, view.cluster_tags),
            *(("nodegroup", g["name"], g["tags"]) for g in view.groups.values()),
            *(
                ("instance", row["name"], row["tags"])
                for row in view.instances.values()
            ),
        ]
        for kind, name, present in owners:
            ended = tags.expired(present, self._now)
            if ended and self._changes.change(kind, name, [], ended):
                where = f"{kind} {name}" if name else kind
                if not self._settings.dry_run:
                    self._report.detail(f"{where}: removed {' '.join(ended)}")


def _nodes(row: cluster_view.Row) -> tuple[str, ...]:
    """Return the names of the nodes of an instance."""
    return tuple(filter(None, (row["pnode"], *(row["snodes"] or ()))))


def _act_of(step: RepairStep) -> Act | None:
    """Return the kind of act of a step that begins or goes on with a repair."""
    if step.repair is not None:
        is_move = step.repair.kind in (RepairKind.MIGRATE, RepairKind.FAILOVER)
        return Act.MOVE if is_move else Act.REPAIR
    begins = any(record.outcome is None for record in step.add)
    return Act.REPAIR if begins else None


def _item(
    row: cluster_view.Row,
    records: Sequence[RepairRecord],
    step: RepairStep,
    limit: str,
) -> Item:
    """Return the decision about an instance; ``limit`` is what refuses its act."""
    pending = [record for record in records if record.outcome is None]
    named = [*pending, *step.add, *step.remove]
    ids = dict.fromkeys(record.id for record in named if record.id)
    return Item(
        kind=journal.INSTANCE,
        name=row["name"],
        decision=Decision.REFUSED if limit else _decision(step),
        action=step.repair.kind.word if step.repair else _action(step),
        reason=_reason(records, step),
        ids=tuple(ids),
        nodes=_nodes(row),
        moves=_act_of(step) is Act.MOVE,
        limit=limit,
    )


def _ends(
    records: Sequence[RepairRecord], step: RepairStep, jobs: KnownJobs
) -> Iterator[JobEnd]:
    """Yield the ends of the jobs of repairs that end with a step."""
    ended = {record.id for record in step.add if record.outcome is not None}
    for record in records:
        for job in record.jobs if record.id in ended else ():
            if (known := jobs.states.get(job)) is not None:
                is_success = known.state is JobState.SUCCESS
                status = JOB_STATUS_SUCCESS if is_success else JOB_STATUS_ERROR
                yield JobEnd(job=job, status=status, error=known.error)


def _decision(step: RepairStep) -> Decision:
    if step.is_change:
        return Decision.CHOSEN
    return Decision.WAITING if step.state == RepairState.PENDING else Decision.REFUSED


def _reason(records: Sequence[RepairRecord], step: RepairStep) -> str:
    """Return why a step is done, or why nothing is."""
    if step.note:
        return step.note
    if step.repair is not None:
        return step.repair.reason
    failed = [r.id for r in records if r.outcome is RepairOutcome.FAILURE]
    if step.state is RepairState.FAILED and failed:
        return (
            f"repair {failed[0]} failed; the instance is left alone until a person"
            " removes the tag of its result"
        )
    if step.state is RepairState.PENDING and not step.is_change:
        pending = [r for r in records if r.outcome is None]
        jobs = ", ".join(str(job) for job in pending[0].jobs[-1:]) if pending else ""
        return f"job {jobs} has not ended" if jobs else ""
    return ""


def _action(step: RepairStep) -> str:
    """Return the action of a step that submits no repair."""
    for record in step.add:
        if record.outcome is not None:
            return f"end the repair: {record.outcome}"
        return f"begin a repair: {record.kind.word}"
    return "remove tags" if step.remove else "repair"


def _is_open(present: Sequence[str], since: int) -> bool:
    """Return whether tags record a repair that pends, or has failed, since a time."""
    return any(
        record.time >= since
        for record in tags.records(present)
        if record.outcome in (None, RepairOutcome.FAILURE)
    )


def _is_pending(records: Sequence[RepairRecord]) -> bool:
    return any(record.outcome is None for record in records)


def _oldest(records: Sequence[RepairRecord]) -> int:
    return min(record.time for record in records if record.outcome is None)
