"""The built-in allocator ``hail``, called without a process of its own.

Its rules are in `ganeti.htools`; here are only the parameters that a cluster may set
for it, and the words of a refusal.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ganeti import errors
from ganeti.constants import ecodes

if TYPE_CHECKING:
    from ganeti.htools import answer, model

NAME: Final = "hail"
_FLAGS: Final = frozenset(
    {"ignore-soft-errors", "no-capacity-checks", "ignore-dynu", "verbose"}
)
_VALUES: Final = frozenset({"restrict-allocation-to", "static-kvm-node-memory"})
#: Reasons shown when nothing was found.
_MOST_REASONS: Final = 8


def knows(params: Mapping[str, Any]) -> bool:
    """Return whether all of a cluster's parameters are understood in-process."""
    return all(
        (key in _FLAGS and value in (None, "")) or (key in _VALUES and bool(value))
        for key, value in params.items()
    )


def static_memory(params: Mapping[str, Any]) -> int:
    """Return the MiB that a KVM node itself takes; 0 for what it reports.

    Raises:
        OpPrereqError: it is no number.
    """
    from ganeti.htools import request

    value = str(params.get("static-kvm-node-memory", request.STATIC_KVM_MIB))
    if not value.isdecimal():
        raise errors.OpPrereqError(
            f"allocator {NAME}: static-kvm-node-memory: wanted MiB, found {value!r}",
            ecodes.ECODE_INVAL,
        )
    return int(value)


def solve(
    cluster: "model.Cluster",
    asked: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    explain: bool = False,
) -> dict[str, Any]:
    """Return the answer to a request; a refusal tells the reasons of some nodes.

    Args:
        cluster: as it is.
        asked: the request alone, as allocators get it.
        params: the cluster's parameters for allocators.
        explain: add all reasons of all nodes as data, under ``explanation``.

    Raises:
        OpPrereqError: a parameter or the request is wrong.
    """
    # Loaded at the first allocation: the numeric library is large.
    from ganeti.htools import answer, model

    try:
        found = answer.solve({"request": asked}, _options(params), cluster=cluster)
    except model.DataError as err:
        raise errors.OpPrereqError(
            f"allocator {NAME}: {err}", ecodes.ECODE_INVAL
        ) from err
    out = dict(found.answer)
    if explain:
        out["explanation"] = [item.data() for item in found.explanation()]
    if not out["success"]:
        out["info"] += _reasons(found)
    return out


def _options(params: Mapping[str, Any]) -> "answer.Options":
    from ganeti.htools import answer

    names = params.get("restrict-allocation-to")
    return answer.Options(
        capacity_checks="no-capacity-checks" not in params,
        ignore_soft="ignore-soft-errors" in params,
        restrict_to=str(names).split(",") if names else None,
        busy="ignore-dynu" not in params,
        static_memory=static_memory(params),
    )


def _reasons(found: "answer.Solution") -> str:
    from ganeti.htools import reasons

    rows = [row for rows in found.refusals().values() for row in rows]
    words = reasons.lines(rows)
    if len(words) > _MOST_REASONS:
        words[_MOST_REASONS:] = [f"and {len(words) - _MOST_REASONS} more"]
    return f" [{'; '.join(words)}]" if words else ""
