"""Numbers about the master daemon for monitoring."""

from collections import Counter
from typing import Any, Final

import msgspec

from ganeti.daemons.masterd import cluster_facts
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method

_ADMIN: Final = ("up", "down", "offline")


class _Opcode(msgspec.Struct):
    op_id: str = msgspec.field(name="OP_ID")


@method("QueryMetrics")
def query_metrics(deps: MasterDeps) -> Later:
    """Return numbers for monitoring; an addition to Ganeti."""
    return Later(deps.slow.submit(numbers, deps), can_cancel=True)


def numbers(deps: MasterDeps) -> dict[str, Any]:
    """Return the present numbers; no node is asked."""
    jobs: Counter[tuple[str, str]] = Counter()
    for job in deps.queue.jobs(with_logs=False):
        if not job.is_final:
            opcode = msgspec.json.decode(job.ops[0].input, type=_Opcode).op_id
            jobs[job.status.value, opcode] += 1
    waits: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for lock in cluster_facts.locks(deps.queue, deps.locks):
        level = lock.name.partition("/")[0]
        held[level] += bool(lock.owners)
        waits[level] += sum(len(names) for _mode, names in lock.pending)
    statistics = deps.queue.statistics()
    snapshot = deps.config.snapshot()
    states = Counter(each.admin_state for each in snapshot.instances.values())
    incidents = Counter(i.state.value for i in deps.maintenance.state().incidents)
    deaths = deps.config.node_deaths.state()
    return {
        "jobs": [[*key, count] for key, count in sorted(jobs.items())],
        "queue": {
            "unfinished": statistics.unfinished,
            "running": statistics.running,
            "workers": statistics.workers,
            "last_id": deps.queue.last_id,
        },
        "locks": [[level, held[level], waits[level]] for level in sorted(held)],
        "calls": deps.call_times.rows(),
        "incidents": dict(incidents),
        "nodes": {
            "total": len(snapshot.nodes),
            "offline": sum(node.offline for node in snapshot.nodes.values()),
            "drained": sum(node.drained for node in snapshot.nodes.values()),
        },
        "instances": {state: states[state] for state in _ADMIN},
        "is_frozen": bool(snapshot.cluster.automation_freeze),
        "revision": snapshot.revision,
        "node_deaths": dict(Counter(each.phase.value for each in deaths.deaths)),
        "refused_deaths": dict(
            Counter(each.limit for each in deaths.deaths if each.limit)
        ),
        "fenced": len(deaths.fenced),
    }
