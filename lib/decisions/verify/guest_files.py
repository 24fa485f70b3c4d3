"""Checks of the files and processes that guests need while they run, and of progress.

Files are those of UEFI variables and TPMs and the control socket, processes those of
TPMs and of shared directories.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti.decisions.verify.report import Report
from ganeti.model import objects

STUCK: Final = "stuck"
#: A file, a process, or progress, and the consequence of its loss.
_LOSSES: Final = {
    "control": "has lost the control socket of its emulator, so the guest runs, but can"
    " neither migrate nor be asked to shut down: a shutdown waits for its whole time"
    " and then ends it",
    "firmware": "has lost the file of its UEFI variables, which the guest still uses; a"
    " migration writes them at the target, otherwise its next start has those of the"
    " last copy",
    "tpm": "has lost the file of its TPM data, which the guest still uses; it cannot"
    " migrate, and its next start has those of the last copy, unless it writes to its"
    " TPM before",
    "tpm-process": "does not run the process of its TPM any more, so the guest has no"
    " TPM",
    "shares": "does not run a process of its shared directories any more, so the guest"
    " has lost a directory",
    STUCK: "has seen no input or output of the guest since its live migration, only"
    " busy processors; if its console does not answer either, it is stuck, and"
    " 'gnt-instance reboot' helps",
}
#: Processes and sockets, which a reboot of the guest makes again.
_OF_A_START: Final = frozenset({"control", "tpm-process", "shares"})


class Loss(NamedTuple):
    """A file, a process or progress that a running guest lacks.

    Attributes:
        kind: key of the loss.
        text: the loss and its consequence.
        command: mends it; empty if no command does.
    """

    kind: str
    text: str
    command: str


def losses(instance: str, node: str, kinds: Iterable[str]) -> list[Loss]:
    """Return what a guest lacks according to its node.

    Args:
        instance: name of the instance.
        node: name of the node.
        kinds: keys of `_LOSSES`; others, which a node of a later release may report,
            are ignored.
    """
    return [
        Loss(
            kind,
            f"node {node} {_LOSSES[kind]}",
            f"gnt-instance reboot {instance}" if kind in _OF_A_START else "",
        )
        for kind in sorted(kinds)
        if kind in _LOSSES
    ]


def owners(instances: Iterable[objects.Instance]) -> list[str]:
    """Return the names of the instances that need such files or processes."""
    return [item.name for item in instances if item.hypervisor == "kvm"]


def judge(
    report: Report,
    snapshot: objects.Snapshot,
    instances: Iterable[objects.Instance],
    lost: Mapping[str, Mapping[str, Sequence[str]]],
) -> None:
    """Name the files and processes that a running guest uses and its node has lost.

    A guest that is stuck is a warning: one that computes looks the same.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        instances: those to check.
        lost: node uuid -> instance name -> keys of losses, see `losses`.
    """
    for instance in instances:
        uuid = instance.primary_node
        kinds = lost.get(uuid, {}).get(instance.name, ())
        for loss in losses(instance.name, snapshot.nodes[uuid].name, kinds):
            remedy = f"; '{loss.command}' mends that" if loss.command else ""
            is_stuck = loss.kind == STUCK
            code = "EINSTANCEDOWN" if is_stuck else "EINSTANCEFAULTYDISK"
            text = f"{loss.text}{remedy}"
            report.error(code, instance.name, text, warn_only=is_stuck)
