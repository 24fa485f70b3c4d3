"""The answer about the state of the cluster, in wire form: verdict, numbers, findings.

Pure. ``doc/luxi.rst`` documents the members.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganeti.base.constants.instance import INSTST_RUNNING
from ganeti.decisions.status import rules
from ganeti.decisions.status.facts import (
    Facts,
    Finding,
    JobFact,
    NodeFact,
    Severity,
)

#: Jobs under way that are named; all are counted.
_SHOWN_JOBS: Final = 10


def document(facts: Facts) -> dict[str, Any]:
    """Return the whole answer."""
    findings = rules.judge(facts)
    severity = rules.severity_of(findings)
    answer = {
        "severity": severity,
        "status": severity.exit_code,
        "time": facts.now,
        "cluster": facts.cluster,
        "master": _master(facts),
        "candidates": list(facts.copies),
        "nodes": _nodes(facts),
        "instances": {
            "total": sum(facts.instances.values()),
            INSTST_RUNNING: 0,
            **facts.instances,
        },
        "jobs": {
            "running": 0,
            "waiting": 0,
            "queued": 0,
            **facts.jobs,
            "failed": facts.failures,
        },
        "running_jobs": [_job(job) for job in facts.running[-_SHOWN_JOBS:]],
        "automation": {
            "freeze": _freeze(facts),
            "watcher_pause": facts.watcher_pause,
            "queue_drained": facts.is_drained,
            "incidents": len(facts.incidents),
            "node_deaths": len(facts.deaths),
        },
        "capacity": _capacity(facts),
        "certificate": _next_certificate(facts),
        "releases": Counter(node.release for node in facts.nodes if node.release),
        "findings": findings,
    }
    built: dict[str, Any] = msgspec.to_builtins(answer)
    return built


def unreachable(host: str, text: str, command: str) -> dict[str, Any]:
    """Return the answer of a client that gets none from the master daemon."""
    severity = Severity.CRITICAL
    finding = Finding(
        severity=severity, kind="cluster", object=host, text=text, command=command
    )
    answer = {
        "severity": severity,
        "status": severity.exit_code,
        "findings": [finding],
    }
    built: dict[str, Any] = msgspec.to_builtins(answer)
    return built


def _master(facts: Facts) -> dict[str, Any]:
    return {
        "name": facts.master,
        "release": facts.release,
        "term": facts.term,
        "revision": facts.revision,
        "store": facts.store,
        "policy": facts.policy,
        "accepts_changes": not facts.stall,
        "warning": facts.stall or facts.exposure,
    }


def _state(node: NodeFact) -> str:
    if node.offline:
        return "offline"
    if node.problem:
        return "silent" if node.is_silent else "failing"
    return "drained" if node.drained else "online"


def _nodes(facts: Facts) -> dict[str, int]:
    states = Counter(map(_state, facts.nodes))
    words = ("online", "drained", "offline", "silent", "failing")
    return {"total": len(facts.nodes), **{word: states[word] for word in words}}


def _job(job: JobFact) -> dict[str, Any]:
    return {"id": job.id, "summary": job.summary, "since": job.time}


def _freeze(facts: Facts) -> Mapping[str, Any] | None:
    if facts.freeze is None:
        return None
    reason, since = facts.freeze
    return {"reason": reason, "since": since}


def _capacity(facts: Facts) -> dict[str, Any]:
    """Return sums over the nodes that have answered; sizes in MiB."""
    return {
        "memory_total": sum(node.memory_total for node in facts.nodes),
        "memory_free": sum(node.memory_free for node in facts.nodes),
        "memory_promised": facts.memory_promised,
        "cpus": sum(node.cpus for node in facts.nodes),
        "vcpus_promised": facts.vcpus_promised,
        "is_n_plus_one": not facts.shortages,
    }


def _next_certificate(facts: Facts) -> dict[str, Any] | None:
    """Return the certificate that ends first, None if none is known."""
    ends = [
        (left, path)
        for path, left in facts.certificates.items()
        if not isinstance(left, str)
    ]
    ends += [
        (left, f"{node.name}: {name}")
        for node in facts.nodes
        for name, left in node.certificates.items()
    ]
    if not ends:
        return None
    left, where = min(ends)
    return {"object": where, "seconds_left": int(left)}
