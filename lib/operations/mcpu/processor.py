"""The phases of one opcode.

Order: arguments, big lock, names, locks level by level under one time limit,
prerequisites, pre hooks, execution, result check, post hooks, config-update hook,
release of locks and reservations. The operations are in `ganeti.operations`;
`ganeti.master.jqueue` decides when they run.
"""

import contextlib
import dataclasses
import logging
import os.path
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes, jobqueue
from ganeti.base.constants.protocols import hooks
from ganeti.decisions.jobs import serials
from ganeti.master import config, hooksmaster
from ganeti.master.jqueue.effects import Callbacks, Canceled, LockTimeout
from ganeti.master.locking import Level, LockManager
from ganeti.model import objects, opcodes
from ganeti.operations import base
from ganeti.operations.mcpu.locks import HeldLocks
from ganeti.operations.mcpu.runners import (
    NotingRunner,
    PresentWaits,
    SharedAnswers,
    SharingRunner,
    Wait,
    acts,
)
from ganeti.protocols.rpc import Arguments, Result, Runner, Target
from ganeti.protocols.ssh import host_keys

# A pause in an operation, which ends when a client asks to kill the job.


class Pauses:
    """The pauses of one opcode."""

    def __init__(self, clock: Clock, callbacks: Callbacks, waits: PresentWaits) -> None:
        self._clock = clock
        self._callbacks = callbacks
        self._waits = waits
        self._is_killed = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait.

        Raises:
            Canceled: a client asked to kill the job before the time ran out.
        """
        wait = Wait("", (), self._clock.monotonic(), seconds)
        with self._waits.during(self._callbacks.owner, wait):
            is_killed = self._clock.wait(self._is_killed, seconds)
        if is_killed:
            self._callbacks.check_canceled()

    def end(self) -> None:
        """End the present pause and all later ones; for other threads."""
        self._is_killed.set()


# A runner that waits for nodes that are silent when an opcode is continued.
#
# Daemons of the master and of its nodes are often restarted together, as by an upgrade.
# An opcode that the new master daemon continues must not fail because it is the first
# to be ready: what it leaves behind would be half done.

#: Seconds from the first call during which silent nodes are asked again. Node daemons
#: start in a few seconds; a node that has died delays the opcode by this time.
PATIENCE_S: Final = 30.0
#: Seconds between two attempts.
POLL_S: Final = 1.0


class PatientRunner(Runner):
    """A runner that repeats calls without an effect, for a limited time.

    Args:
        inner: calls the nodes.
        clock: measures the time, and pauses.
    """

    def __init__(self, inner: Runner, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._end: float | None = None

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        clock, never = self._clock, threading.Event()
        if self._end is None:
            self._end = clock.monotonic() + PATIENCE_S
        results = dict(self._inner.call(procedure, nodes, args, timeout_s=timeout_s))
        while clock.monotonic() < self._end:
            # A lost call that acts may have had its effect; its caller decides.
            silent = [
                node
                for node, result in results.items()
                if result.is_silent and not (result.is_lost and acts(procedure, args))
            ]
            if not silent:
                break
            clock.wait(never, POLL_S)
            results |= self._inner.call(procedure, silent, args, timeout_s=timeout_s)
        return results


# A runner that has the job's log stored before each act on a node.
#
# After a crash of the master, the log then names each step that nodes may have begun.


class LogSavingRunner(Runner):
    """A runner that calls ``save_log`` before each call that acts.

    Args:
        inner: calls the nodes.
        save_log: returns when the log is on disk, see `ganeti.master.jqueue.Callbacks`.
    """

    def __init__(self, inner: Runner, save_log: Callable[[], None]) -> None:
        self._inner = inner
        self._save_log = save_log

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Arguments = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        if acts(procedure, args):
            self._save_log()
        return self._inner.call(procedure, nodes, args, timeout_s=timeout_s)


def at(
    inner: Callable[[Sequence[Target]], Runner], save_log: Callable[[], None]
) -> Callable[[Sequence[Target]], Runner]:
    """Return a maker of runners whose runners save the log, too."""
    return lambda targets: LogSavingRunner(inner(targets), save_log)


# Messages of logical units to the user, as entries of the job's log.


class JobLog:
    """A job's log with the documented line formats."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def message(self, text: str) -> None:
        """Log a line as it is, such as ``* creating instance disks...``."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, text)

    def info(self, text: str) -> None:
        """Log a line of information."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f" - INFO: {text}")

    def warn(self, text: str, hint: str | None = None) -> None:
        """Log a warning with advice."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f" - WARNING: {text}")
        if hint:
            self._callbacks.log(jobqueue.ELOG_MESSAGE, f"      Hint: {hint}")

    def step(self, number: int, total: int, text: str) -> None:
        """Log ``STEP number/total text``."""
        self._callbacks.log(jobqueue.ELOG_MESSAGE, f"STEP {number}/{total} {text}")

    def entry(self, kind: str, payload: Any) -> None:
        """Log an entry of another kind, see ``constants.jobqueue`` ELOG_*."""
        self._callbacks.log(kind, payload)


_log: Final = logging.getLogger(__name__)
#: Levels that a logical unit may declare, in the order of acquisition.
_LEVELS: Final = tuple(level for level in Level if level is not Level.CLUSTER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineDeps(base.UnitDeps):
    """The dependencies of the engine: those of logical units, and the locks."""

    locks: LockManager
    write_known_hosts: Callable[[str, str], None] = host_keys.write_known_hosts_text
    #: Ends the node call that a thread waits for.
    abort_call: Callable[[threading.Thread], None] = lambda _thread: None
    #: Facts about nodes that jobs share.
    answers: SharedAnswers = dataclasses.field(default_factory=SharedAnswers)
    #: The node calls and pauses that jobs wait for now.
    present_waits: PresentWaits = dataclasses.field(default_factory=PresentWaits)


class _WatchedConfig:
    """A configuration that records whether an operation changed it.

    Changes take the log entries along that are not on disk yet. The first change calls
    ``check``, which may refuse it, with the configuration that nobody else changes.
    What was done on nodes is recorded in any case: the check is before the first act.
    """

    def __init__(
        self,
        inner: config.Config,
        callbacks: Callbacks,
        check: Callable[[objects.Snapshot], None],
    ) -> None:
        self._inner = inner
        self._callbacks = callbacks
        self._check = check
        self.was_written = self._has_acted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def snapshot(self) -> objects.Snapshot:
        return self._inner.snapshot()

    def begin_work(self) -> None:
        """Forget the acts so far, which were those of hooks."""
        self._has_acted = False

    def before_act(self) -> None:
        """Refuse an act on a node if the first change would be refused now."""
        if not (self.was_written or self._has_acted):
            self._check(self.snapshot())
        self._has_acted = True

    @contextlib.contextmanager
    def edit(
        self, owner: str, *, also: Sequence[store.Document] = ()
    ) -> Iterator[config.Edit]:
        with self._callbacks.carry_log() as carried:
            log = [store.Document(*document) for document in carried.documents]
            with self._inner.edit(owner, also=[*log, *also]) as change:
                if not (self.was_written or self._has_acted):
                    self._check(change.snapshot)
                yield change
            carried.is_stored = change.is_changed
        self.was_written |= change.is_changed


class Processor:
    """Executes opcodes; thread-safe, one for the whole master.

    Args:
        deps: the dependencies of the engine.
        units: opcode id -> logical unit.
    """

    def __init__(
        self, deps: EngineDeps, units: Mapping[str, type[base.LogicalUnit[Any]]]
    ) -> None:
        self._deps = deps
        self._units = units

    def execute(
        self,
        op: opcodes.Opcode,
        callbacks: Callbacks,
        *,
        timeout_s: float | None,
        priority: int,
    ) -> Any:
        """Execute one opcode; see `ganeti.master.jqueue.effects.Executor`."""
        unit_class = self._units.get(op.op_id())
        if unit_class is None:
            raise errors.OpCodeUnknown(f"{op.op_id()} is not offered by this release")
        unit_class = unit_class.for_request(op)
        held = HeldLocks(
            self._deps.locks,
            self._deps.clock,
            timeout_s=timeout_s,
            priority=priority,
        )
        locks, worker = self._deps.locks, threading.current_thread()
        locks.resume()
        callbacks.on_interrupt(lambda: locks.interrupt(worker))
        pauses = Pauses(self._deps.clock, callbacks, self._deps.present_waits)

        def on_kill() -> None:
            pauses.end()
            self._deps.abort_call(worker)

        callbacks.on_kill(on_kill)
        run = _Run(self._deps, unit_class, op, callbacks, held, pause=pauses.wait)
        try:
            return run.run()
        except (errors.GenericError, LockTimeout, Canceled):
            raise
        except Exception as err:
            _log.exception("%s: unexpected error in %s", callbacks.owner, op.op_id())
            raise errors.OpExecError(
                f"{op.op_id()}: unexpected {type(err).__name__}: {err}"
            ) from err
        finally:
            held.finish(self._deps.config.snapshot(), members_changed=run.was_written)


class _Run:
    """The run of one opcode."""

    def __init__(
        self,
        deps: EngineDeps,
        unit_class: type[base.LogicalUnit[Any]],
        op: opcodes.Opcode,
        callbacks: Callbacks,
        held: HeldLocks,
        *,
        pause: Callable[[float], None],
    ) -> None:
        self._deps = deps
        self._op = op
        self._callbacks = callbacks
        self._held = held
        self._continues = callbacks.resumption is not None
        self._config = _WatchedConfig(deps.config, callbacks, self._check_serials)
        self._log = JobLog(callbacks)
        runner = deps.rpc
        if self._continues:
            runner = PatientRunner(runner, deps.clock)
        self._rpc = LogSavingRunner(
            SharingRunner(
                NotingRunner(runner, deps.present_waits, callbacks.owner, deps.clock),
                deps.answers,
                deps.clock,
                callbacks.submitted_at,
            ),
            self._before_act,
        )
        self._unit = unit_class(
            op,
            base.view(
                base.Context,
                deps,
                config=cast("config.Config", self._config),
                rpc=self._rpc,
                rpc_at=at(deps.rpc_at, self._before_act),
                log=self._log,
                locks=held,
                owner=callbacks.owner,
                resumption=callbacks.resumption,
                save_resumption=callbacks.save_resumption,
                pause=pause,
            ),
        )
        self._operation = hooksmaster.Operation(
            op.op_id(), unit_class.HOOKS_PATH or "", unit_class.HOOKS_TYPE
        )
        #: Prefixed hook variables from before the execution.
        self._pre_env: dict[str, str] = {}

    def _before_act(self) -> None:
        self._config.before_act()
        self._callbacks.save_log()

    @property
    def was_written(self) -> bool:
        return self._config.was_written

    def run(self) -> Any:
        unit = self._unit
        unit.check_arguments()
        self._callbacks.check_canceled()
        if unit.needs_big_lock(self._op):
            self._held.take_big_lock(exclusive=unit.EXCLUSIVE)
        try:
            unit.expand_names()
            for level in _LEVELS:
                self._take_level(level)
            return self._with_locks()
        finally:
            self._deps.config.release(self._callbacks.owner)

    def _take_level(self, level: Level) -> None:
        self._unit.declare_locks(level)
        request = self._unit.locks
        if level in request.names or level in request.add:
            self._callbacks.check_canceled()
            self._held.take_level(level, request)

    def _with_locks(self) -> Any:
        unit = self._unit
        if self._continues:
            return self._resumed()
        # With opportunistic locks, the checks may request another attempt with more
        # locks. Only an opcode that is still in state waiting can have one.
        may_retry = bool(unit.locks.opportunistic) and self._held.timeout_s is not None
        if not may_retry:
            self._callbacks.started(durable=self._must_wait)
        try:
            self._check_serials(self._deps.config.snapshot())
            unit.check_prereq()
        except errors.OpPrereqError as err:
            if may_retry and err.args[1:] == (ecodes.ECODE_TEMP_NORES,):
                raise LockTimeout(str(err.args[0])) from err
            raise
        if may_retry:
            self._callbacks.started(durable=self._must_wait)
        post_nodes = self._pre_hooks()
        self._config.begin_work()
        if self._op.dry_run:
            return unit.dry_run_result()
        return self._carry_out(unit.execute, post_nodes)

    def _check_serials(self, snapshot: objects.Snapshot) -> None:
        """Refuse an opcode that is for an earlier state of an object.

        It is checked before anything is done, with the locks, and again in the first
        commit: not every change of an object takes its lock. An opcode that continues
        was checked when it began.
        """
        if not self._continues and (text := serials.conflict(snapshot, self._op)):
            raise errors.OpPrereqError(text, ecodes.ECODE_STATE)

    @property
    def _must_wait(self) -> bool:
        """Return whether the start must be on disk before the unit goes on.

        Not if all its effects are commits, which follow that of the start, and calls
        of nodes, which wait for it themselves.
        """
        unit = self._unit
        return not (unit.READS_ONLY or unit.can_plan(self._op))

    def _resumed(self) -> Any:
        """Continue after a restart of the master; checks and pre hooks are done."""
        unit = self._unit
        self._callbacks.started()
        post_nodes: Sequence[str] = ()
        if unit.HOOKS_PATH is not None:
            self._pre_env = hooksmaster.pre_variables(unit.hooks_env())
            _pre, post_nodes = unit.hooks_nodes()
        return self._carry_out(unit.resume, post_nodes)

    def _carry_out(self, work: Callable[[], Any], post_nodes: Sequence[str]) -> Any:
        """Do the work of the unit, then run hooks; return the result."""
        try:
            result = self._checked(self._finished(work()))
            if post_nodes:
                result = self._post_hooks(post_nodes, result)
            return result
        finally:
            # After a failure as well: commits that preceded it stay.
            if self._config.was_written:
                self._config_update_hook()

    # Results
    def _finished(self, result: Any) -> Any:
        if isinstance(result, base.SubmitJobs):
            jobs = [[self._inherit(child) for child in job] for job in result.jobs]
            rows = self._callbacks.submit_jobs(jobs)
            return {
                **result.other,
                jobqueue.JOB_IDS_KEY: [list(row) for row in rows],
            }
        return result

    def _inherit(self, child: opcodes.Opcode) -> opcodes.Opcode:
        return child.replace(
            debug_level=self._op.debug_level,
            priority=self._op.priority,
            reason=[*self._op.reason, *child.reason],
            comment=child.comment or f"Submitted by {self._op.op_id()}",
        )

    def _checked(self, result: Any) -> Any:
        shape = type(self._op).RESULT
        if shape is None and result is None:
            return None
        plain = msgspec.to_builtins(result)
        try:
            msgspec.convert(plain, shape)
        except msgspec.ValidationError as err:
            raise errors.OpResultError(
                f"{self._op.op_id()}: the result has the wrong type: {err}"
            ) from err
        return plain

    # Hooks
    def _env(self, hook: str, phase: str) -> dict[str, str]:
        return hooksmaster.common(
            self._deps.config.snapshot(),
            op_id=self._operation.op_id,
            hook=hook,
            phase=phase,
            object_type=self._operation.object_type,
        )

    def _pre_hooks(self) -> Sequence[str]:
        if self._unit.HOOKS_PATH is None:
            return ()
        hook = self._operation.hook
        self._pre_env = hooksmaster.pre_variables(self._unit.hooks_env())
        common = self._env(hook, hooks.HOOKS_PHASE_PRE)
        env = hooksmaster.merge(common, self._pre_env)
        pre, post = self._unit.hooks_nodes()
        if not self._is_idle(hook, hooks.HOOKS_PHASE_PRE, pre):
            hooksmaster.run_pre(
                self._rpc, self._operation, pre, env, warn=self._log.warn
            )
        return post

    def _post_hooks(self, nodes: Sequence[str], result: Any) -> Any:
        hook = self._operation.hook
        own = {
            **self._pre_env,
            **hooksmaster.post_variables(self._unit.hooks_env()),
        }
        env = hooksmaster.merge(self._env(hook, hooks.HOOKS_PHASE_POST), own)
        if self._is_idle(hook, hooks.HOOKS_PHASE_POST, nodes):
            return self._unit.after_hooks([], {}, result)
        results, silent = hooksmaster.run(
            self._rpc, hook, hooks.HOOKS_PHASE_POST, nodes, env
        )
        return self._unit.after_hooks(results, silent, result)

    def _config_update_hook(self) -> None:
        hook, phase = hooks.HOOKS_NAME_CFGUPDATE, hooks.HOOKS_PHASE_POST
        nodes = (self._deps.config.snapshot().cluster.master_node,)
        if self._is_idle(hook, phase, nodes):
            return
        env = hooksmaster.merge(self._env(hook, phase), self._pre_env)
        hooksmaster.run(self._rpc, hook, phase, nodes, env)

    def _is_idle(self, hook: str, phase: str, nodes: Sequence[str]) -> bool:
        """Return whether hooks could run on the master only, and it has no scripts.

        The scripts of other nodes are unknown, so these nodes are always called.
        """
        if not nodes:
            return True
        if tuple(nodes) != (self._deps.config.snapshot().cluster.master_node,):
            return False
        return not os.path.isdir(f"{self._deps.paths.hooks_dir}/{hook}-{phase}.d")
