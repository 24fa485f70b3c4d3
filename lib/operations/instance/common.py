"""Code shared by units of one existing instance: locks, look-ups, node calls."""

import dataclasses
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.decisions.repair import journal
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations import base
from ganeti.operations.instance.run import elsewhere
from ganeti.operations.instance.show import hook_env
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, encode
from ganeti.protocols.rpc.answers import Guest

#: Seconds that a node gets in addition to the time limit for a guest to stop.
STOP_GRACE_S: Final = 60
#: Seconds that a node may be silent. A restart of its daemon takes less than ten.
SILENCE_S: Final = 60.0
#: Seconds until a node that was silent is asked again.
_AGAIN_S: Final = 2.0

O = TypeVar("O", bound=opcodes.Opcode)  # noqa: E741
T = TypeVar("T")


class InstanceUnit(base.LogicalUnit[O]):
    """Base of units that work on one instance.

    Class attributes: ``LOCK_NODES`` also locks the instance's nodes and their
    resources, ``LOCK_PRIMARY_RES`` only the resources of its primary node.
    ``NEEDS_EXISTING`` says why a forthcoming instance is refused; it is empty for units
    that handle one.
    """

    HOOKS_TYPE: ClassVar[str | None] = "INSTANCE"
    LOCK_NODES: ClassVar[bool] = False
    LOCK_PRIMARY_RES: ClassVar[bool] = False
    NEEDS_EXISTING: ClassVar[str] = "it has nothing on any node yet"

    uuid: str

    def expand_names(self) -> None:
        """Look the instance up and declare its lock."""
        name = self.op.instance_name  # type: ignore[attr-defined]
        self.uuid = lookup.expand_instance(self.ctx.snapshot, name)
        # It may be created while the job waits for locks, but does not cease to exist.
        self.check_forthcoming(self.instance)
        self.locks.names[locking.Level.INSTANCE] = [self.instance.name]
        if self.LOCK_NODES:
            self.locks.names[locking.Level.NODE] = []
            self.locks.names[locking.Level.NODE_RES] = []
        elif self.LOCK_PRIMARY_RES:
            self.locks.names[locking.Level.NODE_RES] = []

    def declare_locks(self, level: locking.Level) -> None:
        """Declare the locks of the instance's nodes, now that it is locked."""
        if level not in (locking.Level.NODE, locking.Level.NODE_RES):
            return
        if self.LOCK_NODES:
            self.locks.names[level] = self.nodes_to_lock()
        elif self.LOCK_PRIMARY_RES:
            self.locks.names[level] = [self.instance.primary_node]

    def check_forthcoming(self, instance: objects.Instance) -> None:
        """Refuse a forthcoming instance if the unit does not handle one."""
        if instance.forthcoming and self.NEEDS_EXISTING:
            raise not_created(instance.name, self.NEEDS_EXISTING)

    def nodes_to_lock(self) -> Sequence[str]:
        """Return the node uuids that the operation touches."""
        return self.ctx.snapshot.instance_nodes(self.instance)

    @property
    def instance(self) -> objects.Instance:
        """The current record of the instance.

        Raises:
            OpPrereqError: it was removed before it was locked.
        """
        record = self.ctx.snapshot.instances.get(self.uuid)
        if record is None:
            name = self.op.instance_name  # type: ignore[attr-defined]
            raise errors.OpPrereqError(
                f"instance {name}: was removed while the job waited for locks",
                ecodes.ECODE_NOENT,
            )
        return record

    @property
    def primary(self) -> objects.Node:
        """The primary node's record."""
        return self.ctx.snapshot.nodes[self.instance.primary_node]

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance."""
        return hook_env.instance_env(self.ctx.snapshot, self.instance)

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master and the instance's nodes, for both phases."""
        nodes = self.with_master(self.ctx.snapshot.instance_nodes(self.instance))
        return nodes, nodes

    # Node calls
    def encode(self, **overrides: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the filled form of the instance that node calls take."""
        return encode.instance(self.ctx.snapshot, self.instance, **overrides)

    def encode_start(self, **overrides: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the filled form that calls take which start the guest."""
        return encode.startable_instance(self.ctx.snapshot, self.instance, **overrides)

    def runtime_info(self) -> Guest:
        """Return the primary node's data about it, false if it does not run.

        Raises:
            OpPrereqError: the node does not answer.
        """
        return query_runtime(self.ctx, self.instance)

    def require_online_primary(self) -> None:
        """Refuse if the primary node is marked offline."""
        if self.primary.offline:
            raise errors.OpPrereqError(
                f"instance {self.instance.name}: its primary node {self.primary.name}"
                " is marked offline",
                ecodes.ECODE_STATE,
            )

    def require_admin_state(self, states: Sequence[str], action: str) -> None:
        """Refuse if the administrative state is not one of ``states``."""
        state = self.instance.admin_state
        if state not in states:
            raise errors.OpPrereqError(
                f"instance {self.instance.name}: is marked {state}, must be"
                f" {' or '.join(states)} to {action}",
                ecodes.ECODE_STATE,
            )

    def require_stopped(self, action: str, *, offline_is_fine: bool = True) -> None:
        """Refuse if it is marked up, or runs on a node that reaches its data."""
        states = ("down", "offline") if offline_is_fine else ("down",)
        self.require_admin_state(states, action)
        if not self.primary.offline and self.runtime_info():
            raise errors.OpPrereqError(
                f"instance {self.instance.name}: is running, stop it to {action}",
                ecodes.ECODE_STATE,
            )
        self.require_nowhere_else(action)

    def require_nowhere_else(
        self,
        action: str,
        *,
        except_for: Collection[str] = (),
        must_answer: bool | None = None,
    ) -> None:
        """Refuse if another node than the primary node runs it, see `elsewhere.refuse`.

        By default, all nodes must answer if an automaton has submitted the job: nobody
        reads a warning then. See also `elsewhere.refuse_left`.
        """
        is_automaton = journal.is_of_automaton(self.op.reason)
        if must_answer is None:
            must_answer = is_automaton
        elsewhere.refuse_left(self.ctx, self.instance, is_automaton=is_automaton)
        elsewhere.refuse(
            *(self.ctx, self.instance, action),
            except_for=except_for,
            must_answer=must_answer,
        )


class InstanceWork:
    """Base of steps on one instance that a later master daemon may continue."""

    def __init__(self, ctx: base.Context, instance: objects.Instance) -> None:
        self.ctx = ctx
        self._uuid = instance.uuid

    @property
    def instance(self) -> objects.Instance:
        """The present record of the instance."""
        return self.ctx.snapshot.instances[self._uuid]

    @property
    def what(self) -> str:
        """The instance, for messages."""
        return f"instance {self.instance.name}"


def start_guest(
    ctx: base.Context, instance: objects.Instance, reason: Sequence[Any]
) -> rpc.Result:
    """Have the primary node start a guest; return its answer."""
    wire = encode.startable_instance(ctx.snapshot, instance)
    return ctx.rpc.call_node(
        instance.primary_node, calls.instance_start(wire, False, reason)
    )


def not_created(name: str, why: str) -> errors.OpPrereqError:
    """Return the error for an operation that a forthcoming instance does not allow."""
    return errors.OpPrereqError(
        f"instance {name}: is forthcoming, so {why}; create it first, with gnt-instance"
        " add --commit",
        ecodes.ECODE_STATE,
    )


def query_runtime(ctx: base.Context, instance: objects.Instance) -> Guest:
    """Return the primary node's data about an instance, false if it does not run.

    Raises:
        OpPrereqError: the node does not answer.
    """
    snapshot = ctx.snapshot
    full = snapshot.cluster.hvparams.get(instance.hypervisor, {})
    return ctx.rpc.call_node(
        instance.primary_node,
        calls.instance_info(instance.name, instance.hypervisor, full),
    ).require(f"cannot get the state of instance {instance.name}", ecodes.ECODE_ENVIRON)


def stop_guest(
    ctx: base.Context,
    instance: objects.Instance,
    timeout_s: int,
    reason: Sequence[Any],
    *,
    node: str | None = None,
) -> rpc.Result:
    """Have the primary node, or another one, stop a guest; return its answer."""
    return ctx.rpc.call_node(
        node or instance.primary_node,
        calls.instance_shutdown(
            encode.instance(ctx.snapshot, instance), timeout_s, reason
        ),
        timeout_s=timeout_s + STOP_GRACE_S,
    )


def ask_again(ctx: base.Context, node: str, request: rpc.Request[T]) -> rpc.Answer[T]:
    """Call a node; again for a while if it does not answer. Calls can be repeated.

    A last call that was not carried out counts as lost if an earlier one was.
    """
    begun, was_lost = ctx.clock.monotonic(), False
    while True:
        result = ctx.rpc.call_node(node, request)
        was_lost = (was_lost or result.is_lost) and not result.is_answered
        is_unsure = result.failed and (result.is_silent or result.is_lost)
        silent_s = ctx.clock.monotonic() - begun
        if not is_unsure or silent_s >= SILENCE_S:
            return dataclasses.replace(result, is_lost=was_lost)
        ctx.clock.wait(threading.Event(), _AGAIN_S)


def set_instance(ctx: base.Context, uuid: str, **changes: Any) -> objects.Instance:
    """Commit changed fields of an instance, if any; return the instance."""
    current = ctx.snapshot.instances[uuid]
    if all(getattr(current, name) == value for name, value in changes.items()):
        return current
    with ctx.config.edit(ctx.owner) as edit:
        edit.update(edit.snapshot.instances[uuid].replace(**changes))
    return ctx.snapshot.instances[uuid]
