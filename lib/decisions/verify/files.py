"""Comparison of the files that nodes share, by checksum."""

from collections.abc import Collection, Mapping

from ganeti.base.constants.misc import V_CLUSTER_VIRT_PATH_PREFIX
from ganeti.decisions.verify.report import Report
from ganeti.model import objects


def compare(
    report: Report,
    snapshot: objects.Snapshot,
    answers: Mapping[str, Mapping[str, str] | None],
    *,
    vm_only: Collection[str],
    candidates_only: Collection[str],
    optional: Collection[str],
) -> None:
    """Check that files are present where they should be, and equal to the master's.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        answers: node uuid -> file -> checksum; None if the node returned none. Without
            the master's answer no file is compared.
        vm_only: files expected only on nodes that may host instances.
        candidates_only: secrets that other nodes than master candidates must not have.
        optional: files that may be missing, but then on all nodes.
    """
    for uuid, sums in sorted(answers.items()):
        report.error_if(
            sums is None,
            "ENODEFILECHECK",
            snapshot.nodes[uuid].name,
            "node did not return file checksum data",
        )
    given = {uuid: sums for uuid, sums in answers.items() if sums is not None}
    files = sorted({path for sums in given.values() for path in sums})
    master = snapshot.cluster.master_node
    for path in files:
        expected = [
            uuid
            for uuid in given
            if (path not in vm_only or snapshot.nodes[uuid].vm_capable)
            and (path not in candidates_only or snapshot.nodes[uuid].master_candidate)
        ]
        for uuid in sorted(set(given).difference(expected)):
            report.error_if(
                path in candidates_only and given[uuid].get(path) is not None,
                "ECLUSTERFILECHECK",
                snapshot.nodes[uuid].name,
                f"file {_plain(path)} is a secret of master candidates, but this node,"
                " which is none, has it; remove it there",
            )
        _one_file(
            report,
            snapshot,
            path,
            {u: given[u].get(path) for u in expected},
            master,
            is_optional=path in optional,
        )
        if master in given and path in candidates_only and path not in optional:
            copies = {u: has for u in expected if (has := given[u].get(path))}
            _secret_of_master(report, snapshot, path, copies)


def _secret_of_master(
    report: Report, snapshot: objects.Snapshot, path: str, copies: Mapping[str, str]
) -> None:
    """Say how the master gets back a secret: nothing else sends it one.

    Other candidates get theirs from it. No command is named if the copies differ.
    """
    master = snapshot.nodes[snapshot.cluster.master_node]
    if not copies or master.uuid in copies:
        return
    path = _plain(path)
    holders = sorted(snapshot.nodes[uuid].name for uuid in copies)
    relative = path.removeprefix("/")
    what_to_do = (
        f"run there: ssh {holders[0]} tar -C / -cf - {relative} | tar -C / -xpf -"
        if len(set(copies.values())) == 1
        else f"the copies of {', '.join(holders)} differ: copy the right one there"
    )
    report.error(
        "ECLUSTERFILECHECK",
        master.name,
        f"file {path} is missing on the master, which sends it to others; {what_to_do}",
    )


def missing_everywhere(
    report: Report, expected: Collection[str], answers: Mapping[str, Mapping[str, str]]
) -> None:
    """Report required files that no node has; nothing if no node answered."""
    if not any(answers.values()):
        return
    present = {path for sums in answers.values() for path in sums}
    for path in sorted(set(expected) - present):
        report.error(
            "ECLUSTERFILECHECK",
            None,
            f"file {_plain(path)} is missing on all nodes",
        )


def _plain(path: str) -> str:
    """Return a path as administrators know it."""
    return path.removeprefix(V_CLUSTER_VIRT_PATH_PREFIX)


def _one_file(
    report: Report,
    snapshot: objects.Snapshot,
    path: str,
    sums: Mapping[str, str | None],
    master: str,
    *,
    is_optional: bool,
) -> None:
    def names(uuids: Collection[str]) -> str:
        return ", ".join(sorted(snapshot.nodes[uuid].name for uuid in uuids))

    path = _plain(path)
    without = [uuid for uuid, checksum in sums.items() if checksum is None]
    if is_optional:
        report.error_if(
            without,
            "ECLUSTERFILECHECK",
            None,
            f"file {path} is optional, but it must exist on all or no nodes (not found"
            f" on {names(without)})",
        )
    else:
        report.error_if(
            without,
            "ECLUSTERFILECHECK",
            None,
            f"file {path} is missing from node(s) {names(without)}",
        )
    variants: dict[str, list[str]] = {}
    for uuid, checksum in sums.items():
        if checksum is not None:
            variants.setdefault(checksum, []).append(uuid)
    right = sums.get(master)
    others = {
        checksum: uuids for checksum, uuids in variants.items() if checksum != right
    }
    if len(variants) < 2:
        return
    for number, uuids in enumerate(others.values(), start=1):
        report.error(
            "ECLUSTERFILECHECK",
            None,
            f"file {path} found with {len(variants)} different checksums (variant"
            f" {number} on {names(uuids)})",
        )


def replicas(
    report: Report,
    snapshot: objects.Snapshot,
    revisions: Mapping[str, int | None],
    current: int,
) -> None:
    """Check the copies of configuration and jobs on master candidates.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        revisions: node uuid -> revision of its copy, None if not reported.
        current: revision that all should have reached.
    """
    for uuid, revision in sorted(revisions.items()):
        name = snapshot.nodes[uuid].name
        if revision is None:
            report.error(
                "ENODEFILECHECK",
                name,
                "node did not report the state of its configuration copy",
            )
            continue
        report.error_if(
            revision < current,
            "ENODEFILECHECK",
            name,
            f"configuration copy is at revision {revision}, the master's at {current}",
        )


def majority(
    report: Report, snapshot: objects.Snapshot, current: int, total: int
) -> None:
    """Judge how many master candidates have the newest changes.

    Args:
        report: takes the findings.
        snapshot: the configuration.
        current: candidates that have them, with the master.
        total: all candidates.
    """
    report.error_if(
        current < total // 2 + 1,
        "ECLUSTERFILECHECK",
        None,
        f"only {current} of {total} master candidates have the newest changes (policy"
        f" {snapshot.cluster.commit_policy}); changes are lost if the nodes that hold"
        " them fail",
    )
