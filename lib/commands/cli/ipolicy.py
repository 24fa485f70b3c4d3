"""Instance policies: from options, as an info tree, and back to a command line."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.constants.parameters import params
from ganeti.base.errors import refusal
from ganeti.base.text import messages
from ganeti.commands.cli import values
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import info_tree, listing

_SIZES: Final = frozenset(("memory-size", "disk-size"))
_DEFAULT: Final = "default"
_SPLIT_OPTIONS: Final = {
    "cpu-count": "ispecs_cpu_count",
    "disk-count": "ispecs_disk_count",
    "disk-size": "ispecs_disk_size",
    "memory-size": "ispecs_mem_size",
    "nic-count": "ispecs_nic_count",
}


def _number(name: str, value: Any) -> int:
    try:
        return values.parse_size(str(value)) if name in _SIZES else int(value)
    except (ValueError, values.BadValueError) as err:
        raise refusal(
            f"instance spec {name}: wanted a number, found {value!r}"
        ) from err


def _specs(given: Mapping[str, Any], what: str) -> dict[str, int]:
    unknown = sorted(set(given) - set(params.ISPECS_PARAMETERS))
    if unknown:
        known = messages.known_names(unknown[0], params.ISPECS_PARAMETERS)
        raise refusal(f"{what} specs: unknown {', '.join(unknown)}; {known}")
    return {name: _number(name, value) for name, value in given.items()}


def _bounds(alternatives: list[dict[str, dict[str, str]]]) -> list[dict[str, Any]]:
    pairs = []
    for alternative in alternatives:
        if set(alternative) != set(params.ISPECS_MINMAX_KEYS):
            raise refusal("bounds specs: wanted one min and one max part each")
        pair = {}
        for key, given in alternative.items():
            pair[key] = _specs(given, key)
            missing = sorted(set(params.ISPECS_PARAMETERS) - set(given))
            if missing:
                raise refusal(f"{key} specs: missing {', '.join(missing)}")
        pairs.append(pair)
    return pairs


def from_options(ctx: CommandContext, *, group: bool = False) -> dict[str, Any]:
    """Return the policy that the options define, empty without any.

    Args:
        ctx: the command.
        group: ``default`` removes the group's own value.

    Raises:
        OpPrereqError: options exclude each other, or a value is wrong.
    """
    bounds, std = ctx.opts.ipolicy_bounds_specs, ctx.option("ipolicy_std_specs")
    split = {
        name: ctx.option(dest)
        for name, dest in _SPLIT_OPTIONS.items()
        if ctx.option(dest)
    }
    policy: dict[str, Any] = {}
    if split:
        if bounds or std:
            raise refusal("--specs-* and --ipolicy-*-specs exclude each other")
        policy.update(_from_split(split))
    if bounds is not None:
        policy[params.ISPECS_MINMAX] = _bounds(bounds)
    if std is not None:
        policy[params.ISPECS_STD] = _specs(std, "standard")
    templates = ctx.opts.ipolicy_disk_templates
    if templates is not None:
        dropped = group and templates == [_DEFAULT]
        policy[params.IPOLICY_DTS] = _DEFAULT if dropped else templates
    for key, value in (
        (params.IPOLICY_VCPU_RATIO, ctx.opts.ipolicy_vcpu_ratio),
        (params.IPOLICY_SPINDLE_RATIO, ctx.opts.ipolicy_spindle_ratio),
    ):
        if value == _DEFAULT and not group:
            raise refusal(f"{key}: 'default' has no meaning for the cluster")
        if value is not None:
            policy[key] = value
    return policy


def _from_split(split: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a policy from ``--specs-X min=..,max=..,std=..``, filled with defaults."""
    pair = {key: dict(specs) for key, specs in params.ISPECS_MINMAX_DEFAULTS.items()}
    std = dict(params.IPOLICY_DEFAULTS[params.ISPECS_STD])  # type: ignore[call-overload]
    parts = {**pair, params.ISPECS_STD: std}
    for name, given in split.items():
        for key, value in given.items():
            if key not in parts:
                raise refusal(f"{name} specs: wanted min, max or std, found {key!r}")
            parts[key][name] = _number(name, value)
    return {params.ISPECS_MINMAX: [pair], params.ISPECS_STD: std}


def to_tree(
    policy: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> info_tree.Pairs:
    """Return the policy block of info commands.

    Args:
        policy: the policy in force.
        own: the group's own values; all others are marked as default.
    """
    pairs = info_tree.Pairs()
    inherits = own is not None and params.ISPECS_MINMAX not in own
    bounds = [
        info_tree.Pairs(
            (f"{part}/{number}", _marked(bound[part], inherits=inherits))
            for part in ("min", "max")
        )
        for number, bound in enumerate(policy.get(params.ISPECS_MINMAX, []))
    ]
    pairs.append(("bounds specs", bounds))
    if own is None:
        pairs.append(("std", policy.get(params.ISPECS_STD, {})))
    templates = ", ".join(policy.get(params.IPOLICY_DTS, []))
    pairs.append(("allowed disk templates", _value(templates, own, params.IPOLICY_DTS)))
    for key in (params.IPOLICY_SPINDLE_RATIO, params.IPOLICY_VCPU_RATIO):
        if key in policy:
            pairs.append((key, _value(policy[key], own, key)))
    return pairs


def _value(value: Any, own: Mapping[str, Any] | None, key: str) -> Any:
    return value if own is None or key in own else f"default ({value})"


def _marked(specs: Mapping[str, Any], *, inherits: bool) -> dict[str, Any]:
    return {
        name: f"default ({value})" if inherits else value
        for name, value in specs.items()
    }


def to_options(policy: Mapping[str, Any]) -> list[str]:
    """Return the options that define the specs of this policy."""
    words = []
    std = policy.get(params.ISPECS_STD)
    if std:
        words += ["--ipolicy-std-specs", _join(std)]
    bounds = policy.get(params.ISPECS_MINMAX)
    if bounds:
        alternatives = (
            "/".join(f"{part}:{_join(bound[part])}" for part in ("min", "max"))
            for bound in bounds
        )
        words += ["--ipolicy-bounds-specs", "//".join(alternatives)]
    return words


def _join(specs: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(specs.items()))


def show_cluster(ctx: CommandContext) -> None:
    """Print an ``init`` command line with the cluster's specs."""
    info = ctx.call("QueryClusterInfo")
    words = ["gnt-cluster", "init", *to_options(info["ipolicy"]), info["name"]]
    ctx.out(shlex.join(words))


def show_groups(ctx: CommandContext) -> None:
    """Print an ``add`` command line with the specs of each group."""
    field = "ipolicy" if ctx.opts.include_defaults else "custom_ipolicy"
    for group in listing.named(ctx, "group", ["name", field], ctx.args):
        # A group has no standard specs of its own.
        own = {k: v for k, v in group[field].items() if k != params.ISPECS_STD}
        ctx.out(shlex.join(["gnt-group", "add", *to_options(own), group["name"]]))
