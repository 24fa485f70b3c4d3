"""The built-in allocator ``hail``, called without a process of its own.

Its rules are in `ganeti.htools`; here are only the parameters that a cluster may set
for it, and the words of a refusal.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ganeti import errors
from ganeti.constants import ecodes

if TYPE_CHECKING:
    from ganeti.htools.hail import answer
    from ganeti.htools.model.cluster import Cluster
    from ganeti.htools.rules import reasons

NAME: Final = "hail"
_FLAGS: Final = frozenset(
    {"ignore-soft-errors", "no-capacity-checks", "ignore-dynu", "verbose"}
)
_VALUES: Final = frozenset({"restrict-allocation-to", "static-kvm-node-memory"})
#: Lines of reasons shown for an instance that has no place.
_MOST_REASONS: Final = 8
#: Modes whose answers name the instances that have no place.
_WITH_FAILURES: Final = ("multi-allocate", "node-evacuate", "change-group")
#: What comes before the refusal of each node in the words of the solver.
_TRIALS: Final = ":  Node "


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
    from ganeti.htools.model.cluster import STATIC_KVM_MIB

    value = str(params.get("static-kvm-node-memory", STATIC_KVM_MIB))
    if not value.isdecimal():
        raise errors.OpPrereqError(
            f"allocator {NAME}: static-kvm-node-memory: wanted MiB, found {value!r}",
            ecodes.ECODE_INVAL,
        )
    return int(value)


def solve(
    cluster: "Cluster",
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
    import numpy as np

    from ganeti.htools.hail import answer
    from ganeti.htools.model.cluster import DataError

    # Shares of what a node has none of are not numbers.
    with np.errstate(divide="ignore", invalid="ignore"):
        try:
            solution = answer.solve(
                {"request": asked}, _options(params), cluster=cluster
            )
        except DataError as err:
            raise errors.OpPrereqError(
                f"allocator {NAME}: {err}", ecodes.ECODE_INVAL
            ) from err
        out = dict(solution.answer)
        explanations = (
            solution.explanation() if explain or _is_refusal(asked, out) else []
        )
    if explain:
        out["explanation"] = [item.data() for item in explanations]
    if _is_refusal(asked, out):
        _add_explanations(out, explanations, explain=explain)
    return out


def _is_refusal(asked: Mapping[str, Any], out: Mapping[str, Any]) -> bool:
    """Tell whether some instance has no place."""
    several = asked["type"] in _WITH_FAILURES
    return not out["success"] or (several and bool(out["result"][1]))


def _add_explanations(
    out: dict[str, Any], explanations: Sequence["reasons.Explanation"], *, explain: bool
) -> None:
    """Add to the answer's words why instances have no place.

    With ``explain`` only to those that end up in errors.
    """
    against = {one.instance: _words(one) for one in explanations if not one.nodes}
    if not out["success"]:
        out["info"] += "".join(f" [{words}]" for words in against.values() if words)
        return
    failed = out["result"][1]
    if isinstance(failed[0], str):
        if explain:
            return
        out["info"] += "".join(f"; {name}: {against[name]}" for name in failed)
        return
    out["result"][1] = [
        [name, f"{text.split(_TRIALS)[0]} [{against[name]}]" if against[name] else text]
        for name, text in failed
    ]


def _words(one: "reasons.Explanation") -> str:
    from ganeti.htools.rules import reasons

    return "; ".join(reasons.shortened(one.reasons, _MOST_REASONS))


def _options(params: Mapping[str, Any]) -> "answer.SolverOptions":
    from ganeti.htools.hail import answer

    names = params.get("restrict-allocation-to")
    return answer.SolverOptions(
        capacity_checks="no-capacity-checks" not in params,
        ignore_soft="ignore-soft-errors" in params,
        restrict_to=str(names).split(",") if names else None,
        busy="ignore-dynu" not in params,
        static_memory=static_memory(params),
    )
