"""Query fields of instances: data of the nodes, and the displayed status."""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base.constants import instance, query
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
from ganeti.model.objects import Instance, Snapshot, consoles, params
from ganeti.protocols.rpc import Answer, calls
from ganeti.protocols.rpc.answers import NO_GUEST, Guest
from ganeti.protocols.ssh import account


class ObservedState(enum.Enum):
    """The state of an instance that the nodes report."""

    #: Its primary node is marked offline.
    NODE_OFFLINE = "node offline"
    #: Its primary node does not answer.
    NODE_DOWN = "node down"
    #: Some other node runs it.
    ELSEWHERE = "elsewhere"
    RUNNING = "running"
    #: The hypervisor knows it, but the guest powered itself down.
    SHUTDOWN = "shut down"
    ABSENT = "absent"


_WHATEVER_WANTED: Final = {
    ObservedState.NODE_OFFLINE: instance.INSTST_NODEOFFLINE,
    ObservedState.NODE_DOWN: instance.INSTST_NODEDOWN,
    ObservedState.ELSEWHERE: instance.INSTST_WRONGNODE,
}


def instance_status(
    observed: ObservedState,
    admin_state: str,
    *,
    is_user_source: bool,
    user_shutdown: bool,
    guest_may_shut_down: bool,
    is_unfinished: bool = False,
) -> str:
    """Return the status word.

    Args:
        observed: state that the nodes report.
        admin_state: the wanted state.
        is_user_source: the wanted state results from the guest's own shutdown.
        user_shutdown: the cluster distinguishes shutdowns by users.
        guest_may_shut_down: also true for this instance (kvm: its ``user_shutdown``
            parameter).
        is_unfinished: its installation did not finish, so it is not well while down.
    """
    if observed in _WHATEVER_WANTED:
        return _WHATEVER_WANTED[observed]
    wanted_up = admin_state == instance.ADMINST_UP
    if observed is ObservedState.RUNNING:
        return instance.INSTST_RUNNING if wanted_up else instance.INSTST_ERRORUP
    if observed is ObservedState.SHUTDOWN:
        if not wanted_up:
            return instance.INSTST_ADMINDOWN
        allowed = user_shutdown and guest_may_shut_down
        return instance.INSTST_USERDOWN if allowed else instance.INSTST_ERRORDOWN
    if wanted_up or is_unfinished:
        return instance.INSTST_ERRORDOWN
    if admin_state == instance.ADMINST_OFFLINE:
        return instance.INSTST_ADMINOFFLINE
    by_user = is_user_source and user_shutdown
    return instance.INSTST_USERDOWN if by_user else instance.INSTST_ADMINDOWN


#: Name of the live data.
_INFO: Final = "all_instances_info"
_Answers = Mapping[str, Answer[dict[str, Guest]]]


def _fetch_info(context: QueryContext, rows: Sequence[Instance]) -> _Answers:
    """Ask each node of the instances once for all instances that it runs."""
    snapshot = context.snapshot
    cluster = snapshot.cluster
    capable = _nodes_of(snapshot, rows)
    hvparams = {
        hypervisor: params.hvparams_for(cluster, hypervisor, "", {})
        for hypervisor in cluster.enabled_hypervisors
    }
    request = calls.all_instances_info(list(cluster.enabled_hypervisors), hvparams)
    return context.call(capable, request)


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


def _seen(instance: Instance, answers: _Answers) -> ObservedState:
    """Return the state of an instance that the nodes report."""
    primary = answers.get(instance.primary_node)
    if primary is not None and primary.offline:
        return ObservedState.NODE_OFFLINE
    if primary is None or primary.failed:
        return ObservedState.NODE_DOWN
    info = primary.payload.get(instance.name)
    if info is not None:
        return ObservedState.SHUTDOWN if info.is_shut_down else ObservedState.RUNNING
    return ObservedState.ABSENT


def _running_names(answers: _Answers) -> dict[str, set[str]]:
    """Return the nodes that run each instance name."""
    nodes: dict[str, set[str]] = {}
    for node, result in answers.items():
        if not result.failed:
            for name in result.payload:
                nodes.setdefault(name, set()).add(node)
    return nodes


def _find_elsewhere(answers: _Answers) -> Callable[[Instance], bool]:
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
    answers: _Answers = context.live[_INFO]
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
    make: Callable[[Guest], Cell],
) -> Callable[[QueryContext], Getter]:
    """Return a field from the primary node's answer.

    Args:
        make: returns the cell for the instance's entry, which is empty if missing.
    """

    def bind(context: QueryContext) -> Getter:
        answers: _Answers = context.live[_INFO]

        def cell(instance: Instance) -> Cell:
            result = answers.get(instance.primary_node)
            if result is None or result.failed:
                return failed_cell(result)
            return make(result.payload.get(instance.name, NO_GUEST))

        return cell

    return bind


def _running_value(key: str) -> Callable[[Guest], Cell]:
    def make(info: Guest) -> Cell:
        return maybe(getattr(info, key)) if info.is_running else UNAVAIL

    return make


def _stuck(info: Guest) -> Cell:
    return normal(int(info.stuck or 0)) if info.is_running else UNAVAIL


def _is_running(info: Guest) -> Cell:
    return normal(info.is_running)


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
    answers: _Answers = context.live[_INFO]
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
            memory, vcpus = info.memory, info.vcpus
            # Equal numbers of two types are two texts.
            kinds = (type(memory), type(vcpus))
            states.append(
                (is_elsewhere(row), info.state, memory, vcpus, *kinds, info.stuck)
            )
        else:
            states.append((is_elsewhere(row), info is None))
    return states


_OPER_STATE: Final = _of_info(_is_running)
FIELDS: Final = (
    Field(
        "status",
        "Status",
        query.QFT_TEXT,
        "Actual state, compared with the wanted state",
        _bind_status,
        live=_INFO,
    ),
    Field(
        "oper_state",
        "Running",
        query.QFT_BOOL,
        "Is running",
        _OPER_STATE,
        live=_INFO,
    ),
    Field(
        "oper_ram",
        "Memory",
        query.QFT_UNIT,
        "Memory in use",
        _of_info(_running_value("memory")),
        live=_INFO,
    ),
    Field(
        "oper_vcpus",
        "VCPUs",
        query.QFT_NUMBER,
        "Virtual CPUs in use",
        _of_info(_running_value("vcpus")),
        live=_INFO,
    ),
    Field(
        "stuck",
        "Stuck",
        query.QFT_NUMBER,
        "Seconds for which a guest has computed without any input or output since a"
        " live migration, 0 if it is not stuck",
        _of_info(_stuck),
        live=_INFO,
    ),
    Field(
        "console",
        "Console",
        query.QFT_OTHER,
        "How to reach the console",
        _bind_console,
        live=_INFO,
    ),
)
FETCH: Final = {_INFO: _fetch_info}
STATES: Final = {_INFO: _states}
