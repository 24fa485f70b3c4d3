"""The verdict on the state of the cluster: facts in, findings out. Pure.

Each rule yields its findings. A critical finding means that something which should work
does not, or that changes are not safe; a warning, that it may come to that, or that a
person has switched something off.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ganeti.base.constants.instance import (
    ADMINST_UP,
    INSTST_ERRORDOWN,
    INSTST_ERRORUP,
    INSTST_WRONGNODE,
)
from ganeti.decisions.status.facts import Facts, Finding, GuestFact, NodeFact, Severity
from ganeti.decisions.verify.cluster import (
    CERTIFICATE_ERROR_DAYS,
    CERTIFICATE_WARN_DAYS,
    renewal_command,
)

_DAY_S: Final = 86400
#: Kinds of objects in the order of the findings.
KINDS: Final = ("cluster", "node", "instance", "job", "certificate", "capacity")
#: Instances that a finding about their node names.
_NAMED: Final = 3
#: Findings of one kind and severity that are returned: all instances of a large cluster
#: can be down at once.
MOST: Final = 100
_WARNING, _CRITICAL = Severity.WARNING, Severity.CRITICAL
_CLUSTER_INFO: Final = "gnt-cluster info"

Findings = Iterator[Finding]


def judge(facts: Facts) -> list[Finding]:
    """Return the findings, the critical ones first, at most `MOST` of each kind."""
    findings = [finding for rule in _RULES for finding in rule(facts)]
    findings.sort(key=lambda each: (-each.severity.exit_code, KINDS.index(each.kind)))
    groups = itertools.groupby(findings, lambda each: (each.severity, each.kind))
    return [each for _key, group in groups for each in _bounded(list(group))]


def severity_of(findings: Sequence[Finding]) -> Severity:
    """Return the worst severity."""
    return max(
        (finding.severity for finding in findings),
        key=lambda severity: severity.exit_code,
        default=Severity.OK,
    )


def _bounded(findings: list[Finding]) -> list[Finding]:
    rest = len(findings) - MOST
    if rest <= 0:
        return findings
    last = findings[-1]
    more = Finding(
        severity=last.severity, kind=last.kind, object="", text=f"{rest} more like that"
    )
    return [*findings[:MOST], more]


def _store(facts: Facts) -> Findings:
    if facts.stall:
        text = f"no change is accepted: {facts.stall}"
        yield _of_cluster(facts, _CRITICAL, text, _CLUSTER_INFO)
    elif facts.exposure:
        yield _of_cluster(facts, _WARNING, facts.exposure, _CLUSTER_INFO)
    if facts.candidates_missing:
        text = f"{facts.candidates_missing} master candidates too few"
        command = "gnt-node modify --master-candidate=yes NODE"
        yield _of_cluster(facts, _WARNING, text, command)
    for copy in facts.copies:
        if copy.is_current:
            continue
        lag = f"its copy lacks {copy.lag} revisions" if copy.lag else "its copy is old"
        text = f"{lag}: {copy.trouble}" if copy.trouble else lag
        restart = f"systemctl restart ganeti-masterd on {facts.master}"
        command = restart if copy.wants_restart else _CLUSTER_INFO
        yield _of_node(copy.name, _WARNING, text, command)


def _of_cluster(facts: Facts, severity: Severity, text: str, command: str) -> Finding:
    return Finding(
        severity=severity,
        kind="cluster",
        object=facts.cluster,
        text=text,
        command=command,
    )


def _of_node(name: str, severity: Severity, text: str, command: str) -> Finding:
    return Finding(
        severity=severity, kind="node", object=name, text=text, command=command
    )


def _nodes(facts: Facts) -> Findings:
    dying = {death.name for death in facts.deaths}
    for node in facts.nodes:
        should = _should_run(node)
        if node.offline and node.wanted:
            command = f"gnt-node failover {node.name}"
            yield _of_node(node.name, _CRITICAL, f"is offline{should}", command)
        elif node.is_refusing:
            text = "does not accept the certificate of the master"
            command = f"gnt-node add --readd {node.name}"
            yield _of_node(node.name, _CRITICAL, f"{text}{should}", command)
        elif node.problem and node.name not in dying:
            silent = "does not answer" if node.is_silent else "gives no good answer"
            text = f"{silent}{should}: {node.problem}"
            command = f"gnt-cluster journal --node {node.name}"
            yield _of_node(node.name, _CRITICAL, text, command)
        if not node.powered and not node.offline:
            text = "is recorded as powered off, and is not marked offline"
            command = f"gnt-node modify --node-powered=yes {node.name}"
            yield _of_node(node.name, _WARNING, text, command)


def _should_run(node: NodeFact) -> str:
    count = len(node.wanted)
    if not count:
        return ""
    named = ", ".join(node.wanted[:_NAMED])
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    return f", and should run {named}{more}"


def _deaths(facts: Facts) -> Findings:
    for death in facts.deaths:
        severity = _WARNING if death.is_handled else _CRITICAL
        command = f"gnt-cluster journal --node {death.name}"
        yield _of_node(death.name, severity, death.text, command)
    for incident in facts.incidents:
        yield _of_node(
            incident.node, _WARNING, incident.text, "gnt-cluster list-incidents"
        )


def _guests(facts: Facts) -> Findings:
    for guest in facts.guests:
        judged = _GUESTS.get(guest.status)
        if judged is None:
            # The finding about its node names it.
            continue
        severity, text, command = judged(guest)
        if guest.job:
            severity, text = _WARNING, f"{text}; job {guest.job} works on it"
            command = f"gnt-job watch {guest.job}"
        yield Finding(
            severity=severity,
            kind="instance",
            object=guest.name,
            text=text,
            command=command,
        )


def _down(guest: GuestFact) -> tuple[Severity, str, str]:
    if guest.wanted != ADMINST_UP:
        command = f"gnt-instance info {guest.name}"
        return _WARNING, "its installation did not finish", command
    text = f"should run on {guest.node}, and does not"
    return _CRITICAL, text, f"gnt-instance startup {guest.name}"


_GUESTS: Final[dict[str, Callable[[GuestFact], tuple[Severity, str, str]]]] = {
    INSTST_ERRORDOWN: _down,
    INSTST_ERRORUP: lambda guest: (
        _WARNING,
        f"should be down, and runs on {guest.node}",
        f"gnt-instance shutdown {guest.name}",
    ),
    INSTST_WRONGNODE: lambda guest: (
        _CRITICAL,
        f"runs on another node than {guest.node}, its primary node",
        "gnt-cluster verify",
    ),
}


def _jobs(facts: Facts) -> Findings:
    for job in reversed(facts.failed):
        minutes = max(0, int((facts.now - job.time) // 60))
        error = f": {job.error}" if job.error else ""
        yield Finding(
            severity=_WARNING,
            kind="job",
            object=str(job.id),
            text=f"{job.summary} failed {minutes} min ago{error}",
            command=f"gnt-job info {job.id}",
        )


def _switched_off(facts: Facts) -> Findings:
    if facts.is_drained:
        text = "the job queue is drained and takes no jobs"
        yield _of_cluster(facts, _WARNING, text, "gnt-cluster queue undrain")
    if facts.freeze is not None:
        reason = f": {facts.freeze[0]}" if facts.freeze[0] else ""
        text = f"automation is frozen{reason}"
        yield _of_cluster(facts, _WARNING, text, "gnt-cluster thaw")
    if facts.watcher_pause is not None:
        minutes = max(1, round((facts.watcher_pause - facts.now) / 60))
        text = f"the watcher is paused for {minutes} more min"
        yield _of_cluster(facts, _WARNING, text, "gnt-cluster watcher continue")


def _certificates(facts: Facts) -> Findings:
    own = {path.rpartition("/")[2]: left for path, left in facts.certificates.items()}
    for path, value in facts.certificates.items():
        yield from _certificate(path, value)
    for node in facts.nodes:
        if node.name == facts.master:
            # The files of the master are among those above.
            continue
        for name, left in node.certificates.items():
            if not _ends_with(own.get(name), left):
                yield from _certificate(f"{node.name}: {name}", left)


def _ends_with(own: float | str | None, left: float) -> bool:
    """Return whether a certificate ends with that of the master, which stands for it.

    One renewal replaces those of all nodes.
    """
    return isinstance(own, float) and abs(own - left) < _DAY_S


def _certificate(where: str, left: float | str) -> Findings:
    if isinstance(left, str):
        severity, text = _CRITICAL, left
    elif left < CERTIFICATE_WARN_DAYS * _DAY_S:
        is_near = left < CERTIFICATE_ERROR_DAYS * _DAY_S
        severity = _CRITICAL if is_near else _WARNING
        text = f"ends in {int(left // _DAY_S)} days" if left >= 0 else "has ended"
    else:
        return
    yield Finding(
        severity=severity,
        kind="certificate",
        object=where,
        text=text,
        command=renewal_command(where),
    )


def _versions(facts: Facts) -> Findings:
    for node in facts.nodes:
        if node.release and node.release != facts.release:
            text = f"has release {node.release}, the master {facts.release}"
            command = f"gnt-cluster upgrade --to {facts.release}"
            yield _of_node(node.name, _WARNING, text, command)


def _capacity(facts: Facts) -> Findings:
    for name, text in facts.shortages:
        yield Finding(
            severity=_WARNING,
            kind="capacity",
            object=name,
            text=text,
            command="gnt-cluster balance",
        )


_RULES: Final = (
    _store,
    _nodes,
    _deaths,
    _guests,
    _switched_off,
    _jobs,
    _versions,
    _certificates,
    _capacity,
)
