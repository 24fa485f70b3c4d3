"""Query fields of instances: data of the nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.constants import query as constants
from ganeti.base.constants.instance import ADMINST_UP, INSTST_ADMINDOWN, INSTST_RUNNING
from ganeti.master.query.model import (
    UNAVAIL,
    Cell,
    Field,
    Getter,
    QueryContext,
    failed_cell,
    maybe,
    normal,
)
from ganeti.master.query.status import ObservedState, instance_status
from ganeti.model.objects import Instance, Snapshot, consoles, params
from ganeti.protocols.rpc.result import Result
from ganeti.protocols.ssh import account

#: Name of the live data.
_INFO: Final = "all_instances_info"
#: State of a guest that powered itself down: a number, from old nodes a word.
_STATE_SHUTDOWN: Final = frozenset({1, "shutdown"})
_NO_INFO: Final[Mapping[str, Any]] = {}


def _fetch_info(context: QueryContext, rows: Sequence[Instance]) -> dict[str, Result]:
    """Ask each node of the instances once for all instances that it runs."""
    snapshot = context.snapshot
    cluster = snapshot.cluster
    capable = _nodes_of(snapshot, rows)
    hvparams = {
        hypervisor: params.hvparams_for(cluster, hypervisor, "", {})
        for hypervisor in cluster.enabled_hypervisors
    }
    args = [list(cluster.enabled_hypervisors), hvparams]
    return dict(context.call(_INFO, capable, args, wanted_type=dict))


def _nodes_of(snapshot: Snapshot, rows: Sequence[Instance]) -> set[str]:
    """Return the nodes of some instances; indexes know those of all."""
    if len(rows) == len(snapshot.instances):
        return {
            uuid
            for uuid in snapshot.nodes
            if snapshot.primary_instances(uuid) or snapshot.secondary_instances(uuid)
        }
    nodes = {uuid for row in rows for uuid in snapshot.instance_nodes(row)}
    return {uuid for uuid in nodes if uuid in snapshot.nodes}


def is_shut_down(info: Mapping[str, Any]) -> bool:
    """Return whether a node says of a guest that it does not run any more."""
    return info.get("state") in _STATE_SHUTDOWN


def _seen(instance: Instance, answers: Mapping[str, Result]) -> ObservedState:
    """Return the state of an instance that the nodes report."""
    primary = answers.get(instance.primary_node)
    if primary is not None and primary.offline:
        return ObservedState.NODE_OFFLINE
    if primary is None or primary.failed:
        return ObservedState.NODE_DOWN
    info = primary.payload.get(instance.name)
    if info is not None:
        return ObservedState.SHUTDOWN if is_shut_down(info) else ObservedState.RUNNING
    return ObservedState.ABSENT


def _running_names(answers: Mapping[str, Result]) -> dict[str, set[str]]:
    """Return the nodes that run each instance name."""
    nodes: dict[str, set[str]] = {}
    for node, result in answers.items():
        if not result.failed:
            for name in result.payload:
                nodes.setdefault(name, set()).add(node)
    return nodes


def _find_elsewhere(answers: Mapping[str, Result]) -> Callable[[Instance], bool]:
    """Return a function that says whether another node than the primary runs one."""
    node_of: dict[str, str] = {}
    count = 0
    for node, result in answers.items():
        if not result.failed:
            node_of |= dict.fromkeys(result.payload, node)
            count += len(result.payload)
    if count == len(node_of):

        def is_elsewhere(instance: Instance) -> bool:
            primary = instance.primary_node
            return node_of.get(instance.name, primary) != primary

        return is_elsewhere
    # Some run on two nodes.
    nodes = _running_names(answers)
    return lambda instance: bool(
        nodes.get(instance.name, set()) - {instance.primary_node}
    )


def _bind_seen(context: QueryContext) -> Callable[[Instance], ObservedState]:
    answers: Mapping[str, Result] = context.live[_INFO]
    is_elsewhere = context.once("elsewhere", lambda: _find_elsewhere(answers))

    def get(instance: Instance) -> ObservedState:
        state = _seen(instance, answers)
        if state is ObservedState.NODE_OFFLINE or state is ObservedState.NODE_DOWN:
            return state
        return ObservedState.ELSEWHERE if is_elsewhere(instance) else state

    return get


def _bind_status(context: QueryContext) -> Getter:
    state_of = _bind_seen(context)
    user_shutdown = context.snapshot.cluster.enabled_user_shutdown
    running = normal(INSTST_RUNNING)

    def may_shut_down(instance: Instance) -> bool:
        if instance.hypervisor != "kvm":
            return True
        hvparams = params.fill_hvparams(context.snapshot, instance)
        return bool(hvparams.get("user_shutdown"))

    def cell(instance: Instance) -> Cell:
        # It is on no node yet, so the state of its node does not matter.
        if instance.forthcoming:
            return normal(INSTST_ADMINDOWN)
        state = state_of(instance)
        if state is ObservedState.RUNNING and instance.admin_state == ADMINST_UP:
            # Nearly all, in every answer.
            return running
        return normal(
            instance_status(
                state,
                instance.admin_state,
                is_user_source=instance.admin_state_source == "user",
                user_shutdown=user_shutdown,
                guest_may_shut_down=state is ObservedState.SHUTDOWN
                and may_shut_down(instance),
                is_unfinished=instance.is_unfinished,
            )
        )

    return cell


def _of_info(
    make: Callable[[Mapping[str, Any]], Cell],
) -> Callable[[QueryContext], Getter]:
    """Return a field from the primary node's answer.

    Args:
        make: returns the cell for the instance's entry, which is empty if missing.
    """

    def bind(context: QueryContext) -> Getter:
        answers: Mapping[str, Result] = context.live[_INFO]

        def cell(instance: Instance) -> Cell:
            result = answers.get(instance.primary_node)
            if result is None or result.failed:
                return failed_cell(result)
            return make(result.payload.get(instance.name) or _NO_INFO)

        return cell

    return bind


def _running_value(key: str) -> Callable[[Mapping[str, Any]], Cell]:
    def make(info: Mapping[str, Any]) -> Cell:
        return UNAVAIL if not info or is_shut_down(info) else maybe(info.get(key))

    return make


def _stuck(info: Mapping[str, Any]) -> Cell:
    if not info or is_shut_down(info):
        return UNAVAIL
    return normal(int(info.get("stuck") or 0))


def _is_running(info: Mapping[str, Any]) -> Cell:
    return normal(bool(info) and not is_shut_down(info))


def _bind_console(context: QueryContext) -> Getter:
    """Return how to reach consoles; the nodes only answer which guests run."""
    snapshot = context.snapshot
    is_running = _OPER_STATE(context)

    def cell(instance: Instance) -> Cell:
        running = is_running(instance)
        if running != normal(True):
            return normal(None) if running == normal(False) else running
        node = snapshot.nodes[instance.primary_node]
        port = int(params.fill_ndparams(snapshot, node)["ssh_port"])
        paths = context.sources.paths
        host = account.console_host(paths, node.name, node.primary_ip, port)
        hvparams = params.fill_hvparams(snapshot, instance)
        return normal(msgspec.to_builtins(consoles.describe(instance, hvparams, host)))

    return cell


def _states(context: QueryContext, rows: Sequence[Instance]) -> list[tuple[Any, ...]]:
    """Return what decides the live cells of each row; see `Resource.states`.

    Of an answer of a node, the getters above read nothing else.
    """
    answers: Mapping[str, Result] = context.live[_INFO]
    is_elsewhere = context.once("elsewhere", lambda: _find_elsewhere(answers))
    #: Instances by node, or why they are not known.
    payloads: dict[str, Any] = {
        node: (result.offline,) if result.failed else result.payload
        for node, result in answers.items()
    }
    no_answer = (None,)
    states: list[tuple[Any, ...]] = []
    for row in rows:
        payload = payloads.get(row.primary_node, no_answer)
        if type(payload) is tuple:
            states.append(payload)
            continue
        info = payload.get(row.name)
        if info:
            state, memory, vcpus = map(info.get, ("state", "memory", "vcpus"))
            # Equal numbers of two types are two texts.
            kinds = (type(memory), type(vcpus))
            stuck = info.get("stuck")
            states.append((is_elsewhere(row), state, memory, vcpus, *kinds, stuck))
        else:
            states.append((is_elsewhere(row), info is None))
    return states


_OPER_STATE: Final = _of_info(_is_running)
FIELDS: Final = (
    Field(
        "status",
        "Status",
        constants.QFT_TEXT,
        "Actual state, compared with the wanted state",
        _bind_status,
        live=_INFO,
    ),
    Field(
        "oper_state",
        "Running",
        constants.QFT_BOOL,
        "Is running",
        _OPER_STATE,
        live=_INFO,
    ),
    Field(
        "oper_ram",
        "Memory",
        constants.QFT_UNIT,
        "Memory in use",
        _of_info(_running_value("memory")),
        live=_INFO,
    ),
    Field(
        "oper_vcpus",
        "VCPUs",
        constants.QFT_NUMBER,
        "Virtual CPUs in use",
        _of_info(_running_value("vcpus")),
        live=_INFO,
    ),
    Field(
        "stuck",
        "Stuck",
        constants.QFT_NUMBER,
        "Seconds for which a guest has computed without any input or output since a"
        " live migration, 0 if it is not stuck",
        _of_info(_stuck),
        live=_INFO,
    ),
    Field(
        "console",
        "Console",
        constants.QFT_OTHER,
        "How to reach the console",
        _bind_console,
        live=_INFO,
    ),
)
FETCH: Final = {_INFO: _fetch_info}
STATES: Final = {_INFO: _states}
