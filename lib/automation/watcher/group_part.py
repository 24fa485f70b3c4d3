"""Part of a run for one node group: report, verdicts, jobs, state."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from ganeti.automation.autorepair import Recorder
from ganeti.automation.watcher import jobs
from ganeti.automation.watcher.effects import Watch
from ganeti.automation.watcher.jobs import Ended, Jobs, Op
from ganeti.automation.watcher.master_part import (
    NotMaster,
    confirm_master,
    is_master_node,
)
from ganeti.base import errors
from ganeti.base.constants.jobqueue import JOB_STATUS_ERROR, JOB_STATUS_SUCCESS
from ganeti.decisions import watching
from ganeti.decisions.repair.journal import INSTANCE, WATCHER, Decision, Item, JobEnd
from ganeti.decisions.repair.limits import Act, Refusal
from ganeti.decisions.watching import Action, GroupReport, GroupState, Verdict
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
#: Seconds that all jobs of a run have until the run ends without them; less than the
#: interval of five minutes between two runs.
_WAIT_S: Final = 240.0
#: Priority of checks: work for users comes first.
_LOW: Final = 10
#: Disk templates whose disks Ganeti cannot check.
_UNCHECKED: Final = frozenset({"ext"})
#: Action of items about disks.
_ACTIVATE: Final = "activate disks"
_LEVELS: Final = {
    Action.NONE: logging.DEBUG,
    Action.SILENT: logging.DEBUG,
    Action.GIVE_UP: logging.WARNING,
    Action.STUCK: logging.WARNING,
    Action.REFUSE: logging.ERROR,
}


class StateKeeper(Protocol):
    """The state of a group between two runs, see `group_files.StateFile`."""

    state: GroupState

    def save(self, state: GroupState) -> None:
        """Replace the state durably."""

    def publish(self, statuses: Mapping[str, str], groups: Collection[str]) -> None:
        """Publish the status of each instance."""


def run(watch: Watch, group: str, file: StateKeeper) -> None:
    """Do the work for one group.

    Args:
        watch: the run.
        group: uuid.
        file: the locked state of the group.

    Raises:
        NotMaster: this node is not the master.
        GenericError: the master refuses something or does not answer.
    """
    if not is_master_node(watch):
        raise NotMaster(f"node {watch.paths.hostname} is not the master")
    with watch.connect() as client:
        confirm_master(watch, client)
        _GroupRun(watch, group, client, file).all()


class _GroupRun:
    """One run over one group."""

    def __init__(
        self,
        watch: Watch,
        group: str,
        client: luxi.Client,
        file: StateKeeper,
    ) -> None:
        self._watch = watch
        self._group = group
        self._client = client
        self._file = file
        groups = watch.ssconf.nodegroups()
        self._round = Recorder(client.call, WATCHER, groups.get(group, group))
        self._jobs = Jobs(client, watch.clock, wait_s=_WAIT_S, recorder=self._round)

    def all(self) -> None:
        """Do the steps in their documented order, and report them to the journal.

        Without the journal instances are helped nevertheless; the log has the reasons.
        """
        try:
            self._all()
        finally:
            self._warn(self._round.finish())

    def _warn(self, problem: str) -> None:
        if problem:
            _log.warning("group %s: %s", self._group, problem)

    def _all(self) -> None:
        report = jobs.load(self._client, self._group)
        statuses = {name: item.status for name, item in report.instances.items()}
        self._file.publish(statuses, self._watch.ssconf.nodegroups())
        now = self._watch.clock.time()
        verdicts = watching.judge_instances(report, self._file.state, now)
        refusal = self._round.refusal(Act.START, now)
        self._round.add(*_items(verdicts, report, refusal))
        if refusal is not None:
            verdicts = [_held(verdict, refusal.text) for verdict in verdicts]
        started = self._help_instances(verdicts, now)
        self._help_rebooted(report, started)
        if self._watch.settings.verify_disks:
            self._verify_disks(report)

    # Instances
    def _help_instances(self, verdicts: list[Verdict], now: float) -> dict[str, int]:
        """Start instances and record shutdowns; return instance -> start job.

        The attempts are saved before the wait for the jobs, so that they count also if
        this process is killed.
        """
        for verdict in verdicts:
            _log_verdict(verdict)
        busy = [v for v in verdicts if v.action is not Action.NONE]
        ops = {v.instance: self._op(v) for v in busy if v.action in _OPCODES}
        accepted, refused = self._submit(
            ops, {v.instance: v.action.value for v in busy}
        )
        state = self._file.state
        instances = watching.settle(state, verdicts, refused, now)
        self._file.save(GroupState(instances, state.boot_ids))
        counted = Counter(verdict.action.value for verdict in busy)
        if len(busy) < len(verdicts):
            counted[Action.NONE.value] = len(verdicts) - len(busy)
        _log.info(
            "group %s: %d instances%s",
            self._group,
            len(verdicts),
            "".join(f"; {text}: {count}" for text, count in sorted(counted.items())),
        )
        self._log_ends(accepted, {v.instance: v for v in busy})
        return {
            verdict.instance: accepted[verdict.instance]
            for verdict in busy
            if verdict.action is Action.RESTART and verdict.instance in accepted
        }

    def _op(self, verdict: Verdict) -> Op:
        op_id, why, fields = _OPCODES[verdict.action]
        return self._jobs.op(op_id, why, instance_name=verdict.instance, **fields)

    def _submit(
        self, ops: Mapping[str, Op], actions: Mapping[str, str]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Submit a job per instance.

        Args:
            ops: instance name -> opcode.
            actions: instance name -> action of its item in the journal.
        """
        if not ops:
            return {}, {}
        self._warn(self._round.report())
        accepted, refused = self._jobs.submit(ops)
        for action in sorted({actions[name] for name in ops}):
            self._round.note_jobs(INSTANCE, accepted, action)
            self._round.note_refusals(INSTANCE, refused, action)
        self._warn(self._round.report())
        for name, job_id in sorted(accepted.items()):
            _log.info("instance %s: job %d: %s", name, job_id, ops[name]["OP_ID"])
        for name, error in sorted(refused.items()):
            _log.error("instance %s: %s refused: %s", name, ops[name]["OP_ID"], error)
        return accepted, refused

    def _log_ends(
        self, accepted: Mapping[str, int], verdicts: Mapping[str, Verdict]
    ) -> None:
        ended = self._wait(accepted.values())
        for name, job_id in sorted(accepted.items()):
            end, attempt = ended.get(job_id), verdicts[name].attempt
            tried = f"attempt {attempt} of {watching.MAX_ATTEMPTS}"
            if end is None:
                _log.warning("instance %s: job %d has not ended yet", name, job_id)
            elif end.succeeded:
                _log.info("instance %s: job %d succeeded, %s", name, job_id, tried)
            else:
                text = "instance %s: job %d failed, %s: %s"
                _log.error(text, name, job_id, tried, end.text)

    def _wait(self, job_ids: Collection[int]) -> dict[int, Ended]:
        ended = self._jobs.wait(list(job_ids))
        self._round.note_ends(
            JobEnd(
                job=job_id,
                status=JOB_STATUS_SUCCESS if end.succeeded else JOB_STATUS_ERROR,
                error=end.text,
            )
            for job_id, end in sorted(ended.items())
        )
        return ended

    # Disks
    def _help_rebooted(self, report: GroupReport, started: Collection[str]) -> None:
        """Activate disks on nodes that have rebooted, then remember the boots."""
        state = self._file.state
        plan = watching.judge_boots(
            report, state, started, is_checked=self._watch.settings.verify_disks
        )
        for node in plan.unknown:
            _log.error("node %s: did not report its boot id", node)
        refused: Collection[str] = ()
        if self._is_held(plan):
            # Their nodes keep the old boot ids, so a later run helps them.
            refused = plan.activate.keys()
        elif plan.activate:
            for name, why in plan.activate.items():
                _log.info("instance %s: activating its disks, %s", name, why)
            ops = {name: self._activation(name, w) for name, w in plan.activate.items()}
            self._note(plan)
            accepted, refused = self._submit(ops, dict.fromkeys(ops, _ACTIVATE))
            self._log_activations(accepted)
        boot_ids = watching.settle_boots(state, plan, report, refused)
        self._file.save(GroupState(state.instances, boot_ids))

    def _is_held(self, plan: watching.DiskPlan) -> bool:
        """Return whether automatons must not activate disks, and note that."""
        if not plan.activate:
            return False
        refusal = self._round.refusal(Act.START, self._watch.clock.time())
        if refusal is None:
            return False
        _log.info("group %s: no disks are activated: %s", self._group, refusal.text)
        self._round.add(
            *(
                Item(
                    kind=INSTANCE,
                    name=name,
                    decision=Decision.REFUSED,
                    action=_ACTIVATE,
                    reason=refusal.text,
                    limit=refusal.limit,
                )
                for name in plan.activate
            )
        )
        return True

    def _note(self, plan: watching.DiskPlan) -> None:
        for decision, chosen in (
            (Decision.CHOSEN, plan.activate),
            (Decision.REFUSED, plan.skipped),
        ):
            self._round.add(
                *(
                    Item(
                        kind=INSTANCE,
                        name=name,
                        decision=decision,
                        action=_ACTIVATE,
                        reason=why,
                    )
                    for name, why in chosen.items()
                )
            )

    def _activation(self, name: str, why: str) -> Op:
        return self._jobs.op("OP_INSTANCE_ACTIVATE_DISKS", why, instance_name=name)

    def _log_activations(self, accepted: Mapping[str, int]) -> None:
        ended = self._wait(accepted.values())
        for name, job_id in sorted(accepted.items()):
            end = ended.get(job_id)
            if end is None:
                _log.warning("instance %s: job %d has not ended yet", name, job_id)
            elif not end.succeeded:
                text = "instance %s: job %d could not activate its disks: %s"
                _log.error(text, name, job_id, end.text)

    def _verify_disks(self, report: GroupReport) -> None:
        """Have the group's disks checked, and activate those that are not active."""
        templates = {item.disk_template for item in report.instances.values()}
        if templates <= _UNCHECKED:
            _log.debug("group %s: no disks to check", self._group)
            return
        busy = report.unfinished.get(f"GROUP_VERIFY_DISKS({self._group})")
        if busy is not None:
            _log.info("group %s: job %d checks its disks already", self._group, busy)
            return
        inactive = self._inactive_disks()
        plan = watching.judge_disks(report, inactive)
        for name, why in plan.skipped.items():
            _log.info("instance %s: disks not activated, %s", name, why)
        if self._is_held(plan):
            return
        self._note(plan)
        if not plan.activate:
            return
        self._warn(self._round.report())
        ops = [self._activation(name, why) for name, why in plan.activate.items()]
        job_id = self._jobs.submit_one(ops)
        names = ", ".join(plan.activate)
        _log.info("job %d: activating inactive disks of %s", job_id, names)
        self._round.note_jobs(INSTANCE, dict.fromkeys(plan.activate, job_id), _ACTIVATE)
        end = self._wait([job_id]).get(job_id)
        if end is not None and not end.succeeded:
            _log.error("job %d: disks could not be activated: %s", job_id, end.text)

    def _inactive_disks(self) -> list[str]:
        """Return the instances that the check of the group's disks finds inactive."""
        op = self._jobs.op(
            "OP_GROUP_VERIFY_DISKS",
            "periodic check of disks",
            group_name=self._group,
            is_strict=self._watch.settings.strict,
            priority=_LOW,
        )
        job_id = self._jobs.submit_one([op])
        end = self._jobs.wait([job_id]).get(job_id)
        if end is None:
            text = "group %s: job %d, the check of its disks, has not ended yet"
            _log.warning(text, self._group, job_id)
            return []
        self._archive(job_id)
        if not end.succeeded:
            text = "group %s: job %d could not check its disks: %s"
            _log.error(text, self._group, job_id, end.text)
            return []
        problems, inactive, missing = end.results[0]
        for node, text in sorted(problems.items()):
            _log.error("node %s: its disks could not be checked: %s", node, text)
        for name, volumes in sorted(missing.items()):
            words = ", ".join(f"{volume} on {node}" for node, volume in volumes)
            _log.error("instance %s: missing disks: %s", name, words)
        return list(inactive)

    def _archive(self, job_id: int) -> None:
        try:
            self._jobs.archive(job_id)
        except errors.GenericError as err:
            _log.warning("job %d: cannot be archived: %s", job_id, err)


#: Action -> opcode, its reason, and its fields beside the name.
_OPCODES: Final[dict[Action, tuple[str, str, dict[str, Any]]]] = {
    Action.RESTART: ("OP_INSTANCE_STARTUP", "it should run and does not", {}),
    Action.CLEAN_UP: (
        "OP_INSTANCE_SHUTDOWN",
        "its user shut it down from inside",
        {"admin_state_source": "user"},
    ),
}


_DECISIONS: Final = {
    Action.RESTART: Decision.CHOSEN,
    Action.CLEAN_UP: Decision.CHOSEN,
    Action.WAIT: Decision.WAITING,
    Action.GIVE_UP: Decision.REFUSED,
    Action.SILENT: Decision.REFUSED,
    Action.HELPLESS: Decision.REFUSED,
    Action.STUCK: Decision.REFUSED,
    Action.REFUSE: Decision.REFUSED,
}


def _held(verdict: Verdict, why: str) -> Verdict:
    """Return a verdict without its act; attempts are kept."""
    if verdict.action not in _OPCODES:
        return verdict
    text = f"not {verdict.action.value}: {why}"
    return Verdict(verdict.instance, Action.WAIT, text, verdict.attempt - 1)


def _items(
    verdicts: Collection[Verdict], report: GroupReport, refusal: Refusal | None = None
) -> list[Item]:
    """Return the items of the journal: instances that are not healthy."""
    items = []
    for verdict in verdicts:
        if verdict.action is Action.NONE:
            continue
        decision = _DECISIONS[verdict.action]
        why, limit = f"{verdict.reason}{_tried(verdict)}", ""
        if refusal is not None and verdict.action in _OPCODES:
            decision, why, limit = Decision.REFUSED, refusal.text, refusal.limit
        instance = report.instances[verdict.instance]
        # The second and later rounds after giving up repeat the first one.
        action = Action.GIVE_UP if verdict.action is Action.SILENT else verdict.action
        items.append(
            Item(
                kind=INSTANCE,
                name=verdict.instance,
                decision=decision,
                action=action.value,
                reason=why,
                nodes=tuple(filter(None, (instance.primary, *instance.secondaries))),
                limit=limit,
            )
        )
    return items


def _tried(verdict: Verdict) -> str:
    if verdict.action not in _OPCODES:
        return ""
    return f", attempt {verdict.attempt} of {watching.MAX_ATTEMPTS}"


def _log_verdict(verdict: Verdict) -> None:
    """Log what happens with an instance and why."""
    level = _LEVELS.get(verdict.action, logging.INFO)
    if not _log.isEnabledFor(level):
        return
    action, tried = verdict.action.value, _tried(verdict)
    _log.log(
        level, "instance %s: %s: %s%s", verdict.instance, action, verdict.reason, tried
    )
