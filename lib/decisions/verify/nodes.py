"""Checks of one node's answer, in the forms of `verify.node_answer`."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants import versions
from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify.report import Report
from ganeti.model import objects

#: Seconds.
_NODE_MAX_CLOCK_SKEW: Final = 150


@dataclasses.dataclass(frozen=True)
class Expected:
    """Values that all nodes of a group are compared with.

    Attributes:
        started, ended: master time before and after the call, seconds since 1970.
        master_ip: address that all nodes should reach.
    """

    started: float
    ended: float
    master_ip: str


def judge(
    report: Report,
    node: objects.Node,
    answer: Mapping[str, Any],
    expected: Expected,
) -> bool:
    """Check an answer of ``node_verify``; return whether the node is usable."""
    if not _version(report, node, answer):
        return False
    _time(report, node, answer, expected)
    _network(report, node, answer, expected)
    _ssh(report, node, answer)
    _lists(report, node, answer)
    _certificate(report, node, answer)
    if node.vm_capable:
        _hypervisors(report, node, answer)
        _storage_paths(report, node, answer)
    if node.master_candidate:
        _out_of_band(report, node, answer)
    return True


def _version(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> bool:
    versions_sent = answer.get(nodeverify.NV_VERSION)
    report.error_if(
        versions_sent is None,
        "ENODERPC",
        node.name,
        "connection to node returned invalid data",
    )
    if versions_sent is None:
        return False
    protocol, release = versions_sent
    wanted = versions.PROTOCOL_VERSION
    if protocol != wanted:
        report.error(
            "ENODEVERSION",
            node.name,
            f"incompatible protocol versions: master {wanted}, node {protocol}",
        )
        return False
    report.error_if(
        release != versions.RELEASE_VERSION,
        "ENODEVERSION",
        node.name,
        f"software version mismatch: master {versions.RELEASE_VERSION}, node {release}",
        warn_only=True,
    )
    return True


def daemon_users(
    members: Iterable[objects.Node],
    answers: Mapping[str, Mapping[str, Any]],
    *,
    verbose: bool,
) -> list[str]:
    """Return a line for each user of daemons; without `verbose`, for root alone."""
    names: dict[tuple[str, str], list[str]] = {}
    for node in members:
        users = answers.get(node.uuid, {}).get(nodeverify.NV_DAEMON_USERS) or {}
        for row in users.items():
            names.setdefault(row, []).append(node.name)
    return [
        f"{daemon} runs as user {user} on {', '.join(sorted(where))}"
        for (daemon, user), where in sorted(names.items())
        if verbose or user == "root"
    ]


def _time(
    report: Report, node: objects.Node, answer: Mapping[str, Any], expected: Expected
) -> None:
    sent = answer.get(nodeverify.NV_TIME)
    if sent is None:
        report.error("ENODETIME", node.name, "node returned invalid time")
        return
    now = sent[0] + sent[1] / 1_000_000
    skew = _NODE_MAX_CLOCK_SKEW
    off = max(expected.started - skew - now, now - expected.ended - skew)
    distance = max(expected.started - now, now - expected.ended, 0.0)
    report.error_if(
        off > 0,
        "ENODETIME",
        node.name,
        f"node time diverges by at least {distance:.1f}s from master node time",
    )


def _connections(
    report: Report,
    node: objects.Node,
    code: str,
    kind: str,
    failures: Mapping[str, str] | None,
) -> None:
    """Check a node's reported connections to others, ``kind`` TCP or SSH."""
    nothing = f"node returned no {kind} connection data"
    if report.error_if(failures is None, code, node.name, nothing):
        return
    for name, text in sorted((failures or {}).items()):
        what = f"{kind.lower()} communication with node '{name}': {text}"
        report.error(code, node.name, what)


def _network(
    report: Report, node: objects.Node, answer: Mapping[str, Any], expected: Expected
) -> None:
    _connections(report, node, "ENODENET", "TCP", answer.get(nodeverify.NV_NODENETTEST))
    if nodeverify.NV_MASTERIP in answer:
        report.error_if(
            not answer[nodeverify.NV_MASTERIP],
            "ENODENET",
            node.name,
            f"the master address (IP: {expected.master_ip}) is not reachable",
        )
    missing = answer.get(nodeverify.NV_BRIDGES) or ()
    report.error_if(
        missing,
        "ENODENET",
        node.name,
        f"missing bridges: {', '.join(sorted(missing))}",
    )


def missing_address(report: Report, snapshot: objects.Snapshot) -> None:
    """Report that the master lacks the cluster's address."""
    cluster = snapshot.cluster
    report.error(
        "ENODENET",
        snapshot.nodes[cluster.master_node].name,
        f"does not have the address {cluster.master_ip} of the cluster, although it is"
        " the master. The master daemon adds it as soon as no other machine answers"
        " there, unless 'gnt-cluster deactivate-master-ip' has removed it; run"
        " 'gnt-cluster activate-master-ip', whose error says what prevents it",
    )


def stray_address(
    report: Report, snapshot: objects.Snapshot, uuids: Iterable[str]
) -> None:
    """Report nodes that have the cluster's address though they are not the master."""
    cluster = snapshot.cluster
    master = snapshot.nodes[cluster.master_node].name
    for name in sorted(snapshot.nodes[uuid].name for uuid in uuids):
        report.error(
            "ENODENET",
            name,
            f"has the address {cluster.master_ip} of the cluster, which only the master"
            f" {master} should have; ganeti-watcher on {name} removes it",
        )


def _ssh(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> None:
    _connections(report, node, "ENODESSH", "SSH", answer.get(nodeverify.NV_NODELIST))
    report.errors("ENODESSH", node.name, answer.get(nodeverify.NV_SSH_SETUP) or ())
    for text in answer.get(nodeverify.NV_SSH_CLUTTER) or ():
        report.error("ENODESSH", node.name, text, warn_only=True)


#: Keys whose answer is a list of problems, with their code.
_PROBLEM_LISTS: Final = (
    (nodeverify.NV_NODESETUP, "ENODESETUP", "node setup error: {}"),
    (
        nodeverify.NV_USERSCRIPTS,
        "ENODEUSERSCRIPTS",
        "user script {} missing or not executable",
    ),
    (
        nodeverify.NV_ACCEPTED_STORAGE_PATHS,
        "ENODEFILESTORAGEPATHS",
        "found forbidden file storage path {}",
    ),
)


def _lists(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> None:
    for key, code, text in _PROBLEM_LISTS:
        report.errors(
            code, node.name, (text.format(item) for item in answer.get(key) or ())
        )


def _certificate(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> None:
    result = answer.get(nodeverify.NV_CLIENT_CERT)
    if result is None:
        return
    severity, text = result
    report.error_if(
        severity is not None,
        "ECLUSTERCLIENTCERT",
        None,
        f"client certificate of node {node.name} failed validation: {text}",
        warn_only=severity == "WARNING",
    )


def digests(
    report: Report,
    snapshot: objects.Snapshot,
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Compare the digests of client certificates with those recorded.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        answers: node uuid -> answer of ``node_verify``.
    """
    recorded = snapshot.cluster.candidate_certs
    owners: dict[str, str] = {}
    for uuid, answer in sorted(answers.items()):
        severity, digest = answer.get(nodeverify.NV_CLIENT_CERT) or (None, None)
        if severity is not None or not digest:
            continue
        node = snapshot.nodes[uuid]
        other = owners.setdefault(digest, node.name)
        report.error_if(
            other != node.name,
            "ECLUSTERCLIENTCERT",
            None,
            f"nodes {other} and {node.name} have the same client certificate",
        )
        if node.master_candidate:
            report.error_if(
                recorded.get(uuid) not in (None, digest),
                "ECLUSTERCLIENTCERT",
                None,
                f"client certificate of node {node.name}: digest {digest} does not"
                f" match the recorded {recorded.get(uuid)}",
            )
    for uuid, node in sorted(snapshot.nodes.items()):
        if uuid in answers:
            report.error_if(
                node.master_candidate and uuid not in recorded,
                "ECLUSTERCLIENTCERT",
                None,
                f"node {node.name} is a master candidate, but the digest of its client"
                " certificate is not recorded; the master daemon tries again, and"
                " gnt-cluster renew-crypto --new-node-certificates does so at once",
            )


def _hypervisors(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> None:
    for name, problem in sorted((answer.get(nodeverify.NV_HYPERVISOR) or {}).items()):
        report.error_if(
            problem is not None,
            "ENODEHV",
            node.name,
            f"hypervisor {name} verify failure: '{problem}'",
        )
    for source, name, problem in answer.get(nodeverify.NV_HVPARAMS) or ():
        report.error(
            "ENODEHV",
            node.name,
            f"hypervisor {name} parameter verify failure (source {source}): {problem}",
        )


_STORAGE_PATHS: Final = (
    (nodeverify.NV_FILE_STORAGE_PATH, "ENODEFILESTORAGEPATHUNUSABLE", "file storage"),
    (
        nodeverify.NV_SHARED_FILE_STORAGE_PATH,
        "ENODESHAREDFILESTORAGEPATHUNUSABLE",
        "shared file storage",
    ),
    (
        nodeverify.NV_GLUSTER_STORAGE_PATH,
        "ENODEGLUSTERSTORAGEPATHUNUSABLE",
        "gluster storage",
    ),
)


def _storage_paths(
    report: Report, node: objects.Node, answer: Mapping[str, Any]
) -> None:
    for key, code, what in _STORAGE_PATHS:
        problem = answer.get(key)
        report.error_if(
            problem,
            code,
            node.name,
            f"the configured {what} path is unusable: {problem}",
        )


def _out_of_band(report: Report, node: objects.Node, answer: Mapping[str, Any]) -> None:
    for problem in answer.get(nodeverify.NV_OOB_PATHS) or ():
        report.error_if(problem, "ENODEOOBPATH", node.name, str(problem))


def power(
    report: Report,
    node: objects.Node,
    *,
    powered: bool | None,
    problem: str,
) -> None:
    """Check the recorded power state of a node against the real one.

    Args:
        report: collects the findings.
        node: has an out-of-band helper.
        powered: the answer of the helper, None if it does not know.
        problem: of the helper, empty if it answered; a warning, since the state may
            be as recorded.
    """
    report.error_if(
        problem,
        "ENODEOOBPATH",
        node.name,
        f"power state cannot be determined: {problem}",
        warn_only=True,
    )
    report.error_if(
        powered is not None and powered != node.powered,
        "ENODEOOBPATH",
        node.name,
        f"recorded power state ({_ON[node.powered]}) does not match actual power state"
        f" ({_ON[not node.powered]})",
    )


#: Words for a recorded power state.
_ON: Final = {True: "on", False: "off"}


def volume_groups(
    report: Report, node: objects.Node, answer: Mapping[str, Any], vg_name: str | None
) -> None:
    """Check that a node has the cluster's volume group."""
    if vg_name is None:
        return
    groups = answer.get(nodeverify.NV_VGLIST)
    report.error_if(
        groups is None, "ENODELVM", node.name, "unable to check volume groups"
    )
    if groups is None:
        return
    report.error_if(
        vg_name not in groups,
        "ENODELVM",
        node.name,
        f"volume group '{vg_name}' missing",
    )


def compression(
    report: Report, node: objects.Node, answer: Mapping[str, Any], tools: Sequence[str]
) -> None:
    """Warn of compression tools whose programs a node lacks.

    Args:
        report: collects the findings.
        node: that of the answer.
        answer: of the node; one of an earlier release says nothing about this.
        tools: those that the cluster allows; other names are ignored.
    """
    lacking = set(answer.get(nodeverify.NV_COMPRESSION) or ()).intersection(tools)
    report.error_if(
        lacking,
        "ENODESETUP",
        node.name,
        f"no program for compression tools {', '.join(sorted(lacking))}, so exports and"
        " moves of instances to or from this node cannot use these: install it, or set"
        " other tools with gnt-cluster modify --compression-tools",
        warn_only=True,
    )


def operating_systems(
    report: Report,
    names: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Compare the OS definitions of nodes with those of the first one.

    Args:
        report: collects the findings.
        names: node uuid -> name of the nodes to compare, in order.
        answers: node uuid -> answer of ``node_verify``.
    """
    by_node = {
        uuid: _by_os(answers[uuid][nodeverify.NV_OSLIST])
        for uuid in names
        if nodeverify.NV_OSLIST in answers.get(uuid, {})
    }
    for uuid in names:
        report.error_if(
            uuid in answers and uuid not in by_node,
            "ENODEOS",
            names[uuid],
            "node hasn't returned valid OS data",
        )
    if not by_node:
        return
    base_uuid = next(iter(by_node))
    base = by_node[base_uuid]
    for uuid, mine in by_node.items():
        for os in sorted(mine):
            _one_os(report, names[uuid], os, mine[os])
        if uuid == base_uuid:
            continue
        _compare_os(report, names[uuid], mine, names[base_uuid], base)


def _by_os(rows: Any) -> dict[str, list[Any]]:
    by_name: dict[str, list[Any]] = {}
    for name, *rest in rows:
        by_name.setdefault(str(name), []).append(rest)
    return by_name


def _one_os(report: Report, node: str, os: str, entries: list[Any]) -> None:
    path, is_valid, problem = entries[0][:3]
    report.error_if(
        not is_valid, "ENODEOS", node, f"invalid OS {os} (located at {path}): {problem}"
    )
    others = ", ".join(str(entry[0]) for entry in entries[1:])
    report.error_if(
        len(entries) > 1,
        "ENODEOS",
        node,
        f"OS '{os}' has multiple entries (first one shadows the rest): {others}",
        warn_only=True,
    )


_OS_PARTS: Final = (("API version", 5), ("variants list", 3), ("parameters", 4))


def _compare_os(
    report: Report,
    node: str,
    mine: Mapping[str, list[Any]],
    base_node: str,
    base: Mapping[str, list[Any]],
) -> None:
    for os in sorted(set(base) | set(mine)):
        if os not in base or os not in mine:
            here, there = (node, base_node) if os in mine else (base_node, node)
            report.error(
                "ENODEOS",
                node,
                f"OS {os} is on node {here} but missing on node {there}",
            )
            continue
        if not (mine[os][0][1] and base[os][0][1]):
            continue
        for what, index in _OS_PARTS:
            left, right = _canonical(mine[os][0][index]), _canonical(base[os][0][index])
            report.error_if(
                left != right,
                "ENODEOS",
                node,
                f"OS {os}: {what} differs from reference node {base_node}:"
                f" {left} vs. {right}",
            )


def _canonical(items: Any) -> list[str]:
    return sorted(str(item) for item in items or ())
