"""Checks before an upgrade; nothing is changed."""

from typing import Final, NamedTuple

from ganeti import store
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.options import Feedback
from ganeti.bootstrap.upgrade import journal as record
from ganeti.bootstrap.upgrade.access import Node, run_on
from ganeti.bootstrap.upgrade.journal import Journal
from ganeti.bootstrap.upgrade.node import Report
from ganeti.bootstrap.upgrade.steps import TITLES
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import features, schema

_PARTS: Final = 2


class Plan(NamedTuple):
    """An upgrade that can begin.

    Attributes:
        journal: its record, without a step.
        steps: what will be done, as text, in order.
    """

    journal: Journal
    steps: list[str]


def resolve(layout: releases.Layout, wanted: str) -> str:
    """Return the installed release that is meant by ``X.Y.Z``, or by ``X.Y``.

    Of several releases ``X.Y`` means the newest.

    Raises:
        OpPrereqError: this node has no such release, or only one place for all.
    """
    present = releases.installed(layout)
    if not layout.versions_dir:
        raise errors.OpPrereqError(
            "this installation keeps one release at a time, and its package or 'make"
            " install' replaces it; to keep several, build with ./configure"
            " --enable-versions",
            ecodes.ECODE_ENVIRON,
        )
    if wanted.count(".") < _PARTS:
        releases.key(f"{wanted}.0")
        matching = [name for name in present if name.startswith(f"{wanted}.")]
    else:
        releases.key(wanted)
        matching = [name for name in present if name == wanted]
    if not matching:
        raise errors.OpPrereqError(
            f"version {wanted} is not installed on this node, the master; installed:"
            f" {', '.join(present) or 'none'}",
            ecodes.ECODE_NOENT,
        )
    return matching[-1]


def prepare(
    paths: Paths,
    layout: releases.Layout,
    new: str,
    nodes: list[Node],
    feedback: Feedback,
) -> Plan:
    """Check that an upgrade can begin.

    Args:
        paths: of the master.
        layout: the installed releases.
        new: the release, see `resolve`.
        nodes: the online nodes, the master first.
        feedback: called with warnings.

    Raises:
        OpPrereqError: an upgrade is under way, the release is in use already, a node
            lacks it, or the store cannot go back to it.
    """
    check_idle(paths)
    old = releases.in_use(layout)
    if new == old:
        raise errors.OpPrereqError(
            f"version {new} is in use already", ecodes.ECODE_STATE
        )
    feedback(f"Verifying {new} present on all nodes")
    journal = Journal(old=old, new=new, store=0)
    reports = look(nodes, journal.newer)
    # The newer release changes the stores, the earlier one has to start: both are
    # needed.
    if journal.newer != new:
        reports = look(nodes, new)
    report = reports[paths.hostname]
    journal = journal.replace(store=report.store)
    if journal.is_downgrade:
        _check_way_back(paths, report)
    offline = SimpleStore(paths).offline_nodes()
    for name in sorted(offline):
        feedback(
            f"Warning: node {name} is offline and keeps its release; install {new} on"
            " it, and add it with gnt-node add --readd"
        )
    names = ", ".join(node.name for node in nodes)
    titles = _titles(paths, journal, journal.steps)
    return Plan(journal, [f"nodes: {names}", *titles])


def resume(paths: Paths, nodes: list[Node]) -> Plan:
    """Return the upgrade that is under way.

    Raises:
        OpPrereqError: none is, or this node lacks the new release.
        ConfigurationError: the record is damaged.
    """
    intent = record.read_intent(paths)
    if intent is None:
        raise errors.OpPrereqError("no upgrade is under way", ecodes.ECODE_STATE)
    report = look(nodes[:1], intent.new)[paths.hostname]
    journal = record.load(paths, intent, report.store).resumed()
    return Plan(journal, _titles(paths, journal, journal.todo))


def check_idle(paths: Paths) -> None:
    """Refuse to begin while an upgrade is under way.

    Raises:
        OpPrereqError: one is.
    """
    intent = record.read_intent(paths)
    if intent is not None:
        raise errors.OpPrereqError(
            f"an upgrade from {intent.old} to {intent.new} was begun and has not"
            " ended; finish it first, with gnt-cluster upgrade --resume",
            ecodes.ECODE_STATE,
        )


def look(nodes: list[Node], version: str) -> dict[str, Report]:
    """Return what the programs of a release on all nodes say.

    Raises:
        OpPrereqError: a node lacks the release, or cannot be reached.
    """
    answers = run_on(nodes, version, "look")
    refused = [
        str(answer)
        for answer in answers.values()
        if isinstance(answer, errors.GenericError)
    ]
    if refused:
        raise errors.OpPrereqError(
            "nothing was changed: " + "; ".join(refused), ecodes.ECODE_ENVIRON
        )
    return {
        name: answer for name, answer in answers.items() if isinstance(answer, Report)
    }


def _titles(paths: Paths, journal: Journal, steps: tuple[str, ...]) -> list[str]:
    backup = f"{paths.backup_dir}/ganetiEPOCH.tar"
    return [
        TITLES[step].format(new=journal.new, backup=backup).rstrip(".")
        for step in steps
    ]


def _check_way_back(paths: Paths, report: Report) -> None:
    """Refuse an earlier release that could not read the store.

    Raises:
        OpPrereqError: it could not.
    """
    follower = store.Follower(paths.store_db)
    try:
        follower.snapshot()
        used = features.decode(follower.read("meta", features.KEY))
    finally:
        follower.close()
    reasons = [
        f"the store uses {name}, which {report.release} does not know"
        for name in sorted(used - set(report.features))
    ]
    reasons += [
        f"step {step.version} of the store ({step.summary}) cannot be gone back"
        for step in schema.irreversible(report.store)
    ]
    if reasons:
        raise errors.OpPrereqError(
            "nothing was changed: " + "; ".join(reasons), ecodes.ECODE_STATE
        )
