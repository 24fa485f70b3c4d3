"""Checks of the files that guests change while they run: UEFI variables and TPMs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ganeti import objects
from ganeti.objects import params
from ganeti.verify.report import Report

#: Content of the files.
_CONTENTS: Final = {"firmware": "UEFI variables", "tpm": "TPM data"}
#: Consequence of their loss.
_CONSEQUENCES: Final = {
    "firmware": "a migration writes them at the target, otherwise its next start has"
    " those of the last copy",
    "tpm": "it cannot migrate, and its next start has those of the last copy, unless it"
    " writes to its TPM before",
}


def owners(
    snapshot: objects.Snapshot, instances: Iterable[objects.Instance]
) -> list[str]:
    """Return the names of the instances that have such files."""
    return [item.name for item in instances if _has_files(snapshot, item)]


def _has_files(snapshot: objects.Snapshot, instance: objects.Instance) -> bool:
    if instance.hypervisor != "kvm":
        return False
    filled = params.fill_hvparams(snapshot, instance)
    return filled.get("firmware") == "uefi" or bool(filled.get("tpm"))


def judge(
    report: Report,
    snapshot: objects.Snapshot,
    instances: Iterable[objects.Instance],
    lost: Mapping[str, Mapping[str, Sequence[str]]],
) -> None:
    """Name the files that a running guest uses and that its node has lost.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        instances: those to check.
        lost: node uuid -> instance name -> ``firmware`` and ``tpm``.
    """
    for instance in instances:
        uuid = instance.primary_node
        for kind in lost.get(uuid, {}).get(instance.name, ()):
            report.error_if(
                True,
                "EINSTANCEFAULTYDISK",
                instance.name,
                f"node {snapshot.nodes[uuid].name} has lost the file of its"
                f" {_CONTENTS[kind]}, which the guest still uses;"
                f" {_CONSEQUENCES[kind]}",
            )
