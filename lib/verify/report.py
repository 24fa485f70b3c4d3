"""Findings of verification: data first, lines for people second."""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

from ganeti.constants.verify import CODES

ERROR: Final = "ERROR"
WARNING: Final = "WARNING"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        severity: `ERROR` or `WARNING`.
        code: see ``constants.verify``.
        kind: cluster, group, node or instance.
        name: of the object, None for the cluster.
        text: what is wrong.
    """

    severity: str
    code: str
    kind: str
    name: str | None
    text: str

    def line(self, *, error_codes: bool = False) -> str:
        """Return the documented line, for people or for programs."""
        if error_codes:
            return (
                f"  - {self.severity}:{self.code}:{self.kind}:{self.name}:{self.text}"
            )
        return f"  - {self.severity}: {self.kind} {self.name or ''}: {self.text}"


class Report:
    """Collects findings in the order in which checks run.

    Args:
        ignore: codes that are only warnings.
        simulate: take every check for failed, to test what reads the findings.
    """

    def __init__(self, ignore: Collection[str] = (), *, simulate: bool = False) -> None:
        self._ignore = frozenset(ignore)
        self._simulate = simulate
        self._fresh: list[Finding] = []
        #: True while no error was found.
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
        """Add a finding if something is broken; return whether it is.

        Args:
            broken: anything that is true.
            code: of the finding; says what kind of object ``name`` is.
            name: of the object.
            text: what is wrong.
            warn_only: it is no error.
        """
        is_broken = bool(broken) or self._simulate
        if is_broken:
            is_error = not warn_only and code not in self._ignore
            if is_error:
                self.is_clean = False
            self._fresh.append(
                Finding(
                    ERROR if is_error else WARNING,
                    code,
                    KINDS[code],
                    name,
                    text,
                )
            )
        return is_broken

    def errors(self, code: str, name: str | None, texts: Iterable[str]) -> None:
        """Add one finding per text."""
        for text in texts:
            self.error_if(True, code, name, text)

    def take(self) -> list[Finding]:
        """Return what was found since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh


#: Kind of object by code; two codes came after the table of constants was fixed.
KINDS: Final[dict[str, str]] = {
    **CODES,
    "ECLUSTERCLIENTCERT": "cluster",
    "EEXTAGS": "node",
}
