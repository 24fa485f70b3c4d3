"""The built-in allocator ``hail``, which runs in the master daemon.

Its rules are in `ganeti.decisions.htools`; this module has the parameters that a
cluster may set and the text of refusals.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import units

if TYPE_CHECKING:
    from ganeti.decisions.htools.hail import answer
    from ganeti.decisions.htools.model.cluster import Cluster
    from ganeti.decisions.htools.rules import reasons

NAME: Final = "hail"
_FLAGS: Final = frozenset(
    {"ignore-soft-errors", "no-capacity-checks", "ignore-dynu", "verbose"}
)
_VALUES: Final = frozenset({"restrict-allocation-to", "static-kvm-node-memory"})
#: Most lines of reasons for an instance without a place.
_MOST_REASONS: Final = 8
#: Modes whose answers name the instances without a place.
_WITH_FAILURES: Final = ("multi-allocate", "node-evacuate", "change-group")
#: Text before the refusal of each node in the solver's text.
_TRIALS: Final = ":  Node "


def supports(params: Mapping[str, Any]) -> bool:
    """Return whether the built-in allocator supports all of a cluster's parameters."""
    return all(
        (key in _FLAGS and value in (None, "")) or (key in _VALUES and bool(value))
        for key, value in params.items()
    )


def static_memory(params: Mapping[str, Any]) -> int:
    """Return the MiB assumed for a KVM node itself; 0 takes the reported value.

    Raises:
        OpPrereqError: the parameter is not a number.
    """
    from ganeti.decisions.htools.model.cluster import STATIC_KVM_MIB

    value = str(params.get("static-kvm-node-memory", STATIC_KVM_MIB))
    memory = units.whole_number(value)
    if memory is None:
        raise errors.OpPrereqError(
            f"allocator {NAME}: static-kvm-node-memory: wanted MiB, found {value!r}",
            ecodes.ECODE_INVAL,
        )
    return memory


def solve(
    cluster: "Cluster",
    request: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    explain: bool = False,
) -> dict[str, Any]:
    """Return the answer to a request; a refusal has the reasons of some nodes.

    Args:
        cluster: the cluster.
        request: the request alone, in the format of allocators.
        params: the cluster's parameters for allocators.
        explain: add the reasons of all nodes as data under ``explanation``.

    Raises:
        OpPrereqError: a parameter or the request is wrong.
    """
    # Imported at the first allocation: NumPy is large.
    import numpy as np

    from ganeti.decisions.htools.hail import answer
    from ganeti.decisions.htools.model.cluster import DataError

    # Fractions of a resource that a node lacks are not numbers.
    with np.errstate(divide="ignore", invalid="ignore"):
        try:
            solution = answer.solve(
                {"request": request}, _options(params), cluster=cluster
            )
        except DataError as err:
            raise errors.OpPrereqError(
                f"allocator {NAME}: {err}", ecodes.ECODE_INVAL
            ) from err
        out = dict(solution.answer)
        explanations = (
            solution.explanation() if explain or _is_refusal(request, out) else []
        )
    if explain:
        out["explanation"] = [item.data() for item in explanations]
    if _is_refusal(request, out):
        _add_explanations(out, explanations, explain=explain)
    return out


def not_evacuable(cluster: "Cluster", group: str) -> list[str]:
    """Return the names of nodes whose loss the group does not survive.

    Args:
        cluster: the cluster.
        group: uuid of the node group.
    """
    import numpy as np

    from ganeti.decisions.htools.n1.check import GlobalN1
    from ganeti.decisions.htools.state import node_state

    place = [item.uuid for item in cluster.groups].index(group)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = cluster.only_group(place)
        test = GlobalN1(node_state.derive(part), only_online=True)
        return sorted(part.nodes[node].name for node in test.failing())


def _is_refusal(request: Mapping[str, Any], out: Mapping[str, Any]) -> bool:
    """Return whether an instance has no place."""
    several = request["type"] in _WITH_FAILURES
    return not out["success"] or (several and bool(out["result"][1]))


def _add_explanations(
    out: dict[str, Any], explanations: Sequence["reasons.Explanation"], *, explain: bool
) -> None:
    """Add to the answer's text why instances have no place.

    With ``explain`` only where the text ends up in an error.
    """
    against = {one.instance: _text(one) for one in explanations if not one.nodes}
    if not out["success"]:
        out["info"] += "".join(f" [{text}]" for text in against.values() if text)
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


def _text(one: "reasons.Explanation") -> str:
    from ganeti.decisions.htools.rules import reasons

    return "; ".join(reasons.shortened(one.reasons, _MOST_REASONS))


def _options(params: Mapping[str, Any]) -> "answer.SolverOptions":
    from ganeti.decisions.htools.hail import answer

    names = params.get("restrict-allocation-to")
    return answer.SolverOptions(
        capacity_checks="no-capacity-checks" not in params,
        ignore_soft="ignore-soft-errors" in params,
        restrict_to=str(names).split(",") if names else None,
        busy="ignore-dynu" not in params,
        static_memory=static_memory(params),
    )
