"""Findings of verification: their data, and their text lines."""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

#: code -> object kind
_CODES: Final[dict[str, str]] = {
    "ECLUSTERCERT": "cluster",
    "ECLUSTERCFG": "cluster",
    "ECLUSTERDANGLINGINST": "node",
    "ECLUSTERDANGLINGNODES": "node",
    "ECLUSTERFILECHECK": "cluster",
    "EGROUPDIFFERENTPVSIZE": "group",
    "EINSTANCEBADNODE": "instance",
    "EINSTANCEDOWN": "instance",
    "EINSTANCEFAULTYDISK": "instance",
    "EINSTANCELAYOUT": "instance",
    "EINSTANCEMISSINGCFGPARAMETER": "instance",
    "EINSTANCEMISSINGDISK": "instance",
    "EINSTANCEPOLICY": "instance",
    "EINSTANCESPLITGROUPS": "instance",
    "EINSTANCEUNSUITABLENODE": "instance",
    "EINSTANCEWRONGNODE": "instance",
    "ENODEDRBD": "node",
    "ENODEDRBDHELPER": "node",
    "ENODEDRBDVERSION": "node",
    "ENODEFILECHECK": "node",
    "ENODEFILESTORAGEPATHS": "node",
    "ENODEFILESTORAGEPATHUNUSABLE": "node",
    "ENODEGLUSTERSTORAGEPATHUNUSABLE": "node",
    "ENODEHOOKS": "node",
    "ENODEHV": "node",
    "ENODELVM": "node",
    "ENODEN1": "node",
    "ENODENET": "node",
    "ENODEOOBPATH": "node",
    "ENODEORPHANINSTANCE": "node",
    "ENODEORPHANLV": "node",
    "ENODEOS": "node",
    "ENODERPC": "node",
    "ENODESETUP": "node",
    "ENODESHAREDFILESTORAGEPATHUNUSABLE": "node",
    "ENODESSH": "node",
    "ENODETIME": "node",
    "ENODEUSERSCRIPTS": "node",
    "ENODEVERSION": "node",
}


ERROR: Final = "ERROR"
WARNING: Final = "WARNING"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One problem that verification found.

    Attributes:
        severity: `ERROR` or `WARNING`.
        code: see `_CODES`.
        kind: cluster, group, node or instance.
        name: of the object, None for the cluster.
        text: the problem.
    """

    severity: str
    code: str
    kind: str
    name: str | None
    text: str

    def line(self, *, error_codes: bool = False) -> str:
        """Return the documented line, for users or for programs."""
        if error_codes:
            return (
                f"  - {self.severity}:{self.code}:{self.kind}:{self.name}:{self.text}"
            )
        return f"  - {self.severity}: {self.kind} {self.name or ''}: {self.text}"


class Report:
    """Collection of findings in the order of the checks.

    Args:
        ignore: codes that are only warnings.
        simulate: treat every check as failed, to test the readers of findings.
    """

    def __init__(self, ignore: Collection[str] = (), *, simulate: bool = False) -> None:
        self._ignore = frozenset(ignore)
        self._simulate = simulate
        self._fresh: list[Finding] = []
        #: True as long as no error was added.
        self.is_clean = True

    def error_if(
        self,
        broken: object,
        code: str,
        name: str | None,
        text: str,
        *,
        warn_only: bool = False,
    ) -> bool:
        """Add a finding if ``broken``; return whether it was added.

        Args:
            broken: any value; true means broken.
            code: of the finding; determines the kind of the object.
            name: of the object.
            text: the problem.
            warn_only: add a warning, not an error.
        """
        is_broken = bool(broken) or self._simulate
        if is_broken:
            self.error(code, name, text, warn_only=warn_only)
        return is_broken

    def error(
        self, code: str, name: str | None, text: str, *, warn_only: bool = False
    ) -> None:
        """Add a finding; see `error_if`."""
        is_error = not warn_only and code not in self._ignore
        if is_error:
            self.is_clean = False
        severity = ERROR if is_error else WARNING
        self._fresh.append(Finding(severity, code, KINDS[code], name, text))

    def errors(self, code: str, name: str | None, texts: Iterable[str]) -> None:
        """Add one finding per text."""
        for text in texts:
            self.error(code, name, text)

    def take(self) -> list[Finding]:
        """Return the findings since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh


#: Kind of object by code; two codes came after the table of constants was fixed.
KINDS: Final[dict[str, str]] = {
    **_CODES,
    "ECLUSTERCLIENTCERT": "cluster",
    "EEXTAGS": "node",
}
