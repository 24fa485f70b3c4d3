"""Decisions of ``epo``: what becomes of each node, which instances stop or start.

The functions here see rows of queries and return plans;
`ganeti.commands.cluster.power.epo` asks, submits jobs and waits. Nodes that ``epo``
switches off carry a tag, from before their first change until ``epo --on`` has brought
them back. So a second run, after a crash of the master, knows which offline nodes are
its own.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants.protocols import oob
from ganeti.base.text import messages
from ganeti.commands.cli.waiting import jobs

#: Tag of nodes that ``gnt-cluster epo`` switches off, until ``epo --on`` is done.
_OOB_EPO_TAG: Final = "ganeti:epo"

#: Fields of nodes that the plans need.
NODE_FIELDS: Final = (
    *("name", "master", "powered", "offline", "tags", "pip"),
    *("pinst_list", "sinst_list", "master_candidate", "ndp/ssh_port"),
)
#: Fields of instances that the plans need.
INSTANCE_FIELDS: Final = ("name", "admin_state", "status", "pnode", "snodes")
#: Status of instances that do not run, or on whose node nothing can be stopped.
_NOT_RUNNING: Final = frozenset(
    (
        *("ADMIN_down", "ADMIN_offline", "ERROR_down", "ERROR_nodeoffline"),
        *("USER_down", "FORTHCOMING"),
    )
)
#: Status of instances whose node does not answer.
_SILENT: Final = "ERROR_nodedown"
#: Starts the master daemon while no other node can vote; only its own copy counts then,
#: because all other nodes are offline.
_START: Final = (
    "daemon-util start ganeti-masterd --no-voting --yes-do-it --require-majority"
)
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of looking at all nodes.

    Attributes:
        notes: lines about nodes that are not, or not wholly, handled.
        instances_of: nodes whose instances are stopped, or started.
        tag: nodes to be marked as switched off by this command.
        switch: nodes whose power is switched.
        wait: nodes that must answer before instances start.
        restore: those of them that go online again.
        master: name of the master if it is one of the nodes, else empty.
    """

    notes: tuple[str, ...]
    instances_of: tuple[Row, ...]
    tag: tuple[Row, ...] = ()
    switch: tuple[Row, ...] = ()
    wait: tuple[Row, ...] = ()
    restore: tuple[Row, ...] = ()
    master: str = ""


def is_tagged(node: Row) -> bool:
    """Return whether an earlier run began to switch a node off."""
    return _OOB_EPO_TAG in (node["tags"] or ())


def off(nodes: Iterable[Row]) -> Plan:
    """Return what is done to switch nodes off."""
    notes: list[str] = []
    stopped: list[Row] = []
    switch: list[Row] = []
    master = ""
    for node in nodes:
        name = node["name"]
        if node["master"]:
            master = name
            stopped.append(node)
        elif node["powered"] is None:
            notes.append(_no_helper(name))
            if not node["offline"]:
                stopped.append(node)
        elif not node["powered"]:
            notes.append(_already(name))
        elif node["offline"] and not is_tagged(node):
            notes.append(f"Node {name} is marked offline, skipping")
        else:
            switch.append(node)
            if not node["offline"]:
                stopped.append(node)
    return Plan(
        tuple(notes),
        tuple(stopped),
        tag=tuple(node for node in switch if not is_tagged(node)),
        switch=tuple(switch),
        master=master,
    )


def successors(others: Iterable[Row]) -> list[Row]:
    """Return those nodes that may be master, in their order."""
    return [node for node in others if node["master_candidate"] and not node["offline"]]


def handover_steps(master: str, successor: Row | None) -> list[str]:
    """Return the steps before and after the jobs if another node takes over."""
    if successor is None:
        return []
    name = successor["name"]
    return [
        f"have node {name} take the master role, and go on there",
        f"switch off {master}, as the other nodes, from node {name}",
    ]


def remains(master: str, others: Iterable[Row]) -> str:
    """Return what is left to a person when the master is to go off, and stays on.

    Args:
        master: its name.
        others: nodes that stay on.
    """
    names = [node["name"] for node in others]
    if not names:
        return (
            f"The master {master} cannot power itself off: halt it by hand when all"
            " other nodes are off. Later, when it has booted, start its daemon with"
            f" '{_START}', and run 'gnt-cluster epo --on --all'."
        )
    return (
        f"The master {master} cannot power itself off, and no other node has taken its"
        f" role. When one of {messages.some(names)} can, as a master candidate"
        " (gnt-node modify --master-candidate=yes NODE), type there: gnt-cluster epo"
        f" --become-master {master}"
    )


def on(nodes: Iterable[Row], went_off: Collection[str] = ()) -> Plan:
    """Return what is done to bring nodes back.

    Args:
        nodes: the nodes.
        went_off: names of those that are off, although they are recorded as on: the
            master did not live to record what an earlier run did.
    """
    notes: list[str] = []
    started: list[Row] = []
    switch: list[Row] = []
    wait: list[Row] = []
    master = ""
    for node in nodes:
        name = node["name"]
        if node["master"]:
            master = name
            started.append(node)
            continue
        if node["powered"] is None:
            notes.append(_no_helper(name))
        elif not node["powered"] or name in went_off:
            switch.append(node)
        elif not node["offline"]:
            notes.append(_already(name))
        if node["offline"] and not is_tagged(node):
            notes.append(_stays_offline(node))
            continue
        wait.append(node)
        started.append(node)
    return Plan(
        tuple(notes),
        tuple(started),
        switch=tuple(switch),
        wait=tuple(wait),
        restore=tuple(n for n in wait if is_tagged(n)),
        master=master,
    )


def _no_helper(name: str) -> str:
    return (
        f"Node {name} does not support out-of-band handling, it cannot be handled fully"
        " automatically: switch it by hand"
    )


def _already(name: str) -> str:
    return f"Node {name} is already in desired power state, skipping"


def _stays_offline(node: Row) -> str:
    name = node["name"]
    return (
        f"Node {name} was marked offline by someone else, so it stays offline; to use"
        f" it again: gnt-node modify --offline=no {name}"
    )


def instance_names(nodes: Iterable[Row]) -> list[str]:
    """Return the primary and secondary instances of nodes, each once, sorted."""
    lists = ("pinst_list", "sinst_list")
    return sorted({name for node in nodes for key in lists for name in node[key] or ()})


def to_stop(instances: Iterable[Row], nodes: Iterable[Row]) -> list[str]:
    """Return the names of those instances that may run.

    Nodes get their tag when the instances are stopped. So a tagged one that is silent
    is off already, and an earlier run did not live to record that.
    """
    tagged = {node["name"] for node in nodes if is_tagged(node)}
    return [
        item["name"]
        for item in instances
        if item["status"] not in _NOT_RUNNING
        and not (item["status"] == _SILENT and item["pnode"] in tagged)
    ]


def to_start(instances: Iterable[Row]) -> list[Row]:
    """Return those instances that should run and do not."""
    return [
        item
        for item in instances
        if item["admin_state"] == "up" and item["status"] != "running"
    ]


def ready(instances: Iterable[Row], missing: Collection[str]) -> list[Row]:
    """Return those instances of which no node is missing."""
    return [
        item
        for item in instances
        if not {item["pnode"], *(item["snodes"] or ())} & set(missing)
    ]


# Jobs
def stop_job(name: str, timeout_s: int) -> list[jobs.Op]:
    """Return the job that stops an instance; its recorded state stays up."""
    return [
        jobs.op(
            "OP_INSTANCE_SHUTDOWN",
            instance_name=name,
            timeout=timeout_s,
            no_remember=True,
        )
    ]


def start_job(name: str) -> list[jobs.Op]:
    """Return the job that starts an instance."""
    return [jobs.op("OP_INSTANCE_STARTUP", instance_name=name)]


def tag_job(name: str) -> list[jobs.Op]:
    """Return the job that marks a node as switched off by this command."""
    tags = [_OOB_EPO_TAG]
    return [jobs.op("OP_TAGS_SET", kind="node", name=name, tags=tags)]


def untag_job(name: str) -> list[jobs.Op]:
    """Return the job that takes the mark of this command from a node."""
    tags = [_OOB_EPO_TAG]
    return [jobs.op("OP_TAGS_DEL", kind="node", name=name, tags=tags)]


def restore_job(node: Row) -> list[jobs.Op]:
    """Return the job that uses a node again, which answers and so has power."""
    name = node["name"]
    ops = []
    if node["offline"]:
        powered = None if node["powered"] is None else True
        ops.append(
            jobs.op(
                "OP_NODE_SET_PARAMS", node_name=name, offline=False, powered=powered
            )
        )
    return [*ops, *untag_job(name)]


def power_job(
    nodes: Sequence[Row], command: str, *, timeout_s: int, delay_s: float
) -> list[jobs.Op]:
    """Return the job that switches the power of nodes.

    Those that go off are marked offline when their helpers confirm that.
    """
    is_off = command == oob.OOB_POWER_OFF
    marks = {"mark_offline": True, "auto_promote": True} if is_off else {}
    return [
        jobs.op(
            "OP_OOB_COMMAND",
            node_names=[node["name"] for node in nodes],
            command=command,
            ignore_status=True,
            timeout=timeout_s,
            power_delay=delay_s,
            **marks,
        )
    ]
