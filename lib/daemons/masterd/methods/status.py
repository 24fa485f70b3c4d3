"""The LUXI method that returns the state of the cluster; an addition to Ganeti.

The facts come from the newest snapshot, from what the master knows already, and from
one short call of each node, all at once. `ganeti.decisions.status` judges them. The
answer needs no majority.
"""

from collections import Counter
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.daemons.masterd import cluster_facts, cluster_status
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.status import room, rules
from ganeti.decisions.status.document import document
from ganeti.decisions.status.facts import Facts
from ganeti.master.config import topology
from ganeti.model.objects import Snapshot
from ganeti.protocols.luxi.server import Encoded
from ganeti.protocols.rpc import Answer, Request, calls
from ganeti.protocols.rpc.answers import NodeStatus
from ganeti.store import choice

#: Seconds that nodes have to answer; clients wait for all of them.
_ANSWER_S: Final = 2.0
#: Jobs that failed within this many seconds are findings.
_RECENT_S: Final = 3600.0


@method("QueryStatus")
def query_status(deps: MasterDeps) -> Later:
    """Return the state of the cluster with a verdict; clients share an answer."""

    def compute() -> bytes:
        return msgspec.json.encode(document(facts(deps)))

    ask = deps.shared_answers.ask
    return Later(ask(deps.reporting, ("QueryStatus",), compute), Encoded)


def facts(deps: MasterDeps) -> Facts:
    """Return the facts of this moment; asks the nodes."""
    snapshot = deps.config.snapshot()
    cluster = snapshot.cluster
    answers = _ask(deps, snapshot)
    now = deps.clock.time()
    jobs = deps.queue.present_jobs(now - _RECENT_S, rules.MOST)
    working = cluster_status.working(jobs.unfinished)
    states, guests = cluster_status.guests(snapshot, answers, working)
    wanted = room.needs(snapshot)
    free = cluster_status.free_memory(answers)
    frozen = cluster.automation_freeze
    return Facts(
        now=now,
        cluster=cluster.cluster_name,
        master=cluster_status.node_name(snapshot, cluster.master_node),
        release=versions.RELEASE_VERSION,
        term=str(deps.store.term),
        revision=snapshot.revision,
        store=choice.describe(deps.paths),
        policy=cluster.commit_policy,
        stall=deps.store.stall(),
        exposure=deps.store.exposure(),
        candidates_missing=topology.missing(snapshot),
        copies=tuple(cluster_status.copies(snapshot, deps.store.copies())),
        nodes=tuple(cluster_status.nodes(snapshot, answers)),
        instances=states,
        guests=guests,
        jobs=Counter(job.status.value for job in jobs.unfinished),
        running=tuple(cluster_status.running(jobs.unfinished)),
        failures=jobs.failures,
        failed=tuple(map(cluster_status.failed, jobs.failed)),
        is_drained=deps.queue.is_drained,
        watcher_pause=cluster_facts.watcher_pause(deps.paths, deps.clock),
        freeze=(str(frozen["reason"]), float(frozen["time"])) if frozen else None,
        incidents=tuple(
            cluster_status.incidents(snapshot, deps.maintenance.state().incidents)
        ),
        deaths=tuple(map(cluster_status.death, deps.config.node_deaths.state().deaths)),
        certificates=dict(cluster_status.certificates(deps.paths)),
        shortages=tuple(room.shortages(snapshot, wanted, free)),
        memory_promised=wanted.memory,
        vcpus_promised=wanted.vcpus,
    )


def _ask(deps: MasterDeps, snapshot: Snapshot) -> cluster_status.Answers:
    runner = deps.listing_rpc or deps.rpc
    uuids = [uuid for uuid, node in snapshot.nodes.items() if not node.offline]
    hypervisors = list(snapshot.cluster.enabled_hypervisors)

    def question(uuid: str) -> Request[NodeStatus]:
        # A node that cannot have guests need not offer a hypervisor.
        is_host = snapshot.nodes[uuid].vm_capable
        return calls.node_status(hypervisors if is_host else [])

    try:
        return runner.call_nodes(uuids, question, timeout_s=_ANSWER_S)
    except errors.TermError as err:
        # This master was deposed, which is worth knowing, too.
        return {
            uuid: Answer(
                "node_status",
                cluster_status.node_name(snapshot, uuid),
                fail_msg=str(err),
            )
            for uuid in uuids
        }
