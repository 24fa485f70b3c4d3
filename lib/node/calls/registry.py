"""Registry of node procedures, and the node object that they work with.

A procedure is a function registered under its wire name; its arguments are converted
by their annotations. The other modules of this package implement the procedures;
transport belongs to `ganeti.daemons.mains.noded`.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from ganeti.base import clock, errors, pathutils, process
from ganeti.node.calls.membership.master_term import TermGuard
from ganeti.node.calls.power import NoSwitch, PowerSwitch
from ganeti.node.calls.running_calls import RunningCalls
from ganeti.node.consoles.relay import Consoles
from ganeti.node.hypervisor.base import Hypervisor
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store.copies.replica import Replica


@dataclasses.dataclass(frozen=True)
class LocalNode:
    """One node's effect interfaces and drivers.

    Attributes:
        paths: paths of this node's files.
        process: starts child processes.
        clock: time and waiting.
        hypervisors: driver by hypervisor name, of all that this node offers.
        power: resets the machine.
        terms: remembers the newest master term that this node has seen.
        running_calls: calls whose programs can be ended.
        consoles: tickets for consoles, and their viewers.
    """

    paths: pathutils.Paths
    process: process.Runner
    clock: clock.Clock
    hypervisors: Mapping[str, Hypervisor]
    power: PowerSwitch = dataclasses.field(
        default_factory=lambda: NoSwitch("the node daemon has no power switch")
    )
    terms: TermGuard | None = None
    running_calls: RunningCalls | None = None
    consoles: Consoles | None = None

    @functools.cached_property
    def replica(self) -> Replica:
        """This node's copy of the store, one object for all calls."""
        return Replica(self.paths.store_db)

    @property
    def newest_term(self) -> int:
        """The number of the newest master term that this node has seen, 0 for none."""
        return 0 if self.terms is None else self.terms.seen.number

    @property
    def ssconf(self) -> SimpleStore:
        """The ssconf files of this node."""
        return SimpleStore(self.paths)

    def hypervisor(self, name: str) -> Hypervisor:
        """Return the driver of a hypervisor.

        Raises:
            HypervisorError: this node does not offer it.
        """
        driver = self.hypervisors.get(name)
        if driver is None:
            raise errors.HypervisorError(
                f"hypervisor {name}: not offered by node {self.paths.hostname},"
                f" which has {', '.join(sorted(self.hypervisors)) or 'none'}"
            )
        return driver


@dataclasses.dataclass(frozen=True)
class LastAnswer:
    """The result of a procedure after which the daemon ends.

    Attributes:
        payload: sent to the caller before.
    """

    payload: Any


@dataclasses.dataclass(frozen=True)
class Procedure:
    """One registered procedure: the function and the types of its arguments."""

    function: Callable[..., Any]
    kinds: tuple[Any, ...]


#: All procedures by wire name; filled by the decorators when modules are imported.
PROCEDURES: Final[dict[str, Procedure]] = {}


F = TypeVar("F", bound=Callable[..., Any])


def procedure(name: str) -> Callable[[F], F]:
    """Register a function ``(node, *arguments)`` under a wire name."""

    def register(function: F) -> F:
        if name in PROCEDURES:
            raise errors.ProgrammerError(f"procedure {name} is registered twice")
        hints = get_type_hints(function, include_extras=True)
        names = list(inspect.signature(function).parameters)[1:]
        PROCEDURES[name] = Procedure(function, tuple(hints[arg] for arg in names))
        return function

    return register


def call(node: LocalNode, name: str, args: Sequence[Any]) -> Any:
    """Run a procedure with arguments of JSON types, and return what it returns.

    Raises:
        RpcError: unknown procedure, or arguments of a wrong number or type.
        GenericError: the procedure failed.
    """
    entry = PROCEDURES.get(name)
    if entry is None:
        raise errors.RpcError(f"{name}: no such procedure")
    if len(args) != len(entry.kinds):
        raise errors.RpcError(
            f"{name}: wanted {len(entry.kinds)} arguments, found {len(args)}"
        )
    try:
        values = [
            msgspec.convert(arg, kind)
            for arg, kind in zip(args, entry.kinds, strict=True)
        ]
    except msgspec.ValidationError as err:
        raise errors.RpcError(f"{name}: {err}") from err
    return entry.function(node, *values)
