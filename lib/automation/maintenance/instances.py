"""Steps of automatic repair of instances, by its rules and tags.

Of those of a dead node, and, if that is switched on, of all whose nodes are free.
"""

import logging
import uuid
from collections.abc import Collection
from typing import Final, NamedTuple

from ganeti.automation import autorepair
from ganeti.base.clock import Clock
from ganeti.base.constants import jobqueue, versions
from ganeti.base.pathutils import Paths
from ganeti.decisions.repair.plan import RepairState
from ganeti.protocols.luxi import Client

_log = logging.getLogger(__name__)

#: Seconds to wait for a program that repairs at the same time, such as the watcher; and
#: for all changes of tags.
_LOCK_S: Final = 30.0
_WAIT_S: Final = 30.0


class Recovery(NamedTuple):
    """The repairs of the instances of a dead node.

    Attributes:
        pending: number of those that are under way.
        failed: names of instances whose repair has failed.
    """

    pending: int
    failed: tuple[str, ...] = ()


def repair(paths: Paths, clock: Clock, node: str, since: float) -> Recovery:
    """Do the next step of each instance of a node that died at some time.

    Raises:
        LockError: another program repairs instances.
        GenericError: the master daemon does not answer.
    """
    with (
        autorepair.exclusive(paths, timeout_s=_LOCK_S),
        Client.of_node(paths, retries=0) as client,
    ):
        return advance(client, clock, node, since)


def advance(client: Client, clock: Clock, node: str, since: float) -> Recovery:
    """Do the same over a connection; the caller lets nobody else repair."""
    run = _run(client, clock, f"death of {node}")
    count = run.of_node(node, since)
    _log.info("instances of %s: %s", node, autorepair.summary(count) or "none")
    return Recovery(count[RepairState.PENDING], tuple(run.failed))


class Advanced(NamedTuple):
    """The result of a pass over instances.

    Attributes:
        jobs: ids of the submitted jobs.
        nodes: names of nodes that repairs use.
    """

    jobs: tuple[int, ...]
    nodes: frozenset[str]


def repair_within(paths: Paths, clock: Clock, nodes: Collection[str]) -> Advanced:
    """Do the next step of each instance all of whose nodes have one of the names.

    Raises:
        LockError: another program repairs instances.
        GenericError: the master daemon does not answer.
        DataError: its answer is malformed.
    """
    with (
        autorepair.exclusive(paths, timeout_s=0),
        Client.of_node(paths, retries=0) as client,
    ):
        return advance_within(client, clock, nodes)


def advance_within(client: Client, clock: Clock, nodes: Collection[str]) -> Advanced:
    """Do the same over a connection; the caller lets nobody else repair."""
    run = _run(client, clock, "autorepair")
    count = run.within(nodes)
    _log.info("repairs of instances: %s", autorepair.summary(count) or "none")
    return Advanced(tuple(run.jobs), frozenset(run.touched))


def _run(client: Client, clock: Clock, reason: str) -> autorepair.RepairRun:
    # A job of a repair can wait for no tag that it would delay: its reason trail names
    # the repair, so the tag may come after it.
    settings = autorepair.RunSettings(
        source=jobqueue.OPCODE_REASON_SRC_MAINTD,
        reason=reason,
        comment=f"automated repairs by ganeti-maintd {versions.RELEASE_VERSION}",
        job_delay_s=0.0,
        wait_s=_WAIT_S,
    )
    reporter = autorepair.LogReporter(_log, logging.INFO)
    return autorepair.RepairRun(
        client, clock, settings, reporter, lambda: str(uuid.uuid4())
    )
