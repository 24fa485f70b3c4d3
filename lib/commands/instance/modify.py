"""Commands that change an instance or its disks, and ``activate-disks``."""

from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli import param_options, private_params, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import executor, operation, submission
from ganeti.commands.instance import devices

_ACTIONS: Final = ("add", "attach", "remove", "detach")
#: Actions given in place of the index: they mean the end, index -1.
_LAST: Final = -1
_REMINDER: Final = (
    "Please don't forget that most parameters take effect only at the next (re)start"
    " of the instance initiated by ganeti; restarting from within the instance will"
    " not be enough."
)
_HV_REMINDER: Final = (
    "Note that changing hypervisor parameters without performing a restart might lead"
    " to a crash while performing a live migration. This will be addressed in future"
    " versions."
)


def modifications(given: devices.Given, what: str) -> list[list[Any]]:
    """Return ``[action, index or name, parameters]`` of device options.

    Raises:
        OpPrereqError: actions exclude each other, or an action takes no parameters.
    """
    changes: list[list[Any]] = []
    for ident, parameters in given:
        action, target, values = _modification(ident, parameters, what)
        if action == "add" and what == "disk" and "size" not in values:
            raise refusal(f"disk add: {devices.without_size(values)}")
        if action in ("add", "modify") and what == "disk" and "size" in values:
            values = {**values, "size": devices.parse_size(values["size"], "disk size")}
        if action in ("remove", "detach") and values:
            raise refusal(f"{what} {action}: takes no parameters")
        if any(other[1] == target and target != _LAST for other in changes):
            raise refusal(f"{what} {target}: only one action per index")
        changes.append([action, target, values])
    return changes


def _modification(
    ident: str, parameters: Any, what: str
) -> tuple[str, Any, dict[str, Any]]:
    if ident in _ACTIONS and isinstance(parameters, dict):
        return ident, _LAST, dict(parameters)
    target = _target(ident)
    if not isinstance(parameters, dict):  # -INDEX or no_INDEX
        return "remove", target, {}
    values = dict(parameters)
    actions = [word for word in _ACTIONS if values.get(word) is True]
    if len(actions) > 1:
        raise refusal(f"{what} {ident}: {' and '.join(actions)} exclude each other")
    for word in actions:
        del values[word]
    if values.get("modify") is True:
        del values["modify"]
    return (actions[0] if actions else "modify"), target, values


def _target(ident: str) -> int | str:
    try:
        return int(ident)
    except ValueError:
        return ident


def run(ctx: CommandContext) -> int:
    """Change an instance."""
    opts = ctx.opts
    changes = _changes(ctx)
    is_change = any(value or value is False for value in changes.values())
    terms = ("expires", "owner", "reservation_priority")
    is_change |= any(changes[name] is not None for name in terms)
    if not is_change and opts.instance_communication is None:
        raise refusal("nothing to change: please give at least one parameter")
    _check(opts)
    if not _may_remove_disks(ctx, changes["disks"]):
        return exitcodes.EXIT_FAILURE
    touches_nics = any(action == "modify" for action, _, _ in changes["nics"])
    if touches_nics and opts.hotplug and not opts.force:
        question = (
            "You are about to hot-modify a NIC. This is done by removing the existing"
            " NIC and adding a new one, so the instance loses its network for a moment."
            " Continue?"
        )
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    request = operation.fill(ctx, **changes, ext_params=opts.ext_params)
    job = submission.submit_or_run(ctx, request)
    if not job.is_done:
        return job.code
    param_options.report_changes(ctx, f"instance {ctx.args[0]}", job.result)
    _report_kept_state(ctx, job.result)
    if job.result:
        ctx.out(_REMINDER)
        if opts.hvparams:
            ctx.out(_HV_REMINDER)
    return job.code


def _report_kept_state(ctx: CommandContext, report: list[Any] | None) -> None:
    """Say on stderr, if nothing changed, that the requested state is kept."""
    is_offline = _offline(ctx.opts)
    if is_offline is None or report != [] or ctx.option("dry_run"):
        return
    state = "offline already" if is_offline else "not marked offline"
    ctx.err(f"Instance {ctx.args[0]} is {state}, its state is kept")


def _changes(ctx: CommandContext) -> dict[str, Any]:
    """Return the opcode parameters to change; all are None or empty for no change."""
    opts = ctx.opts
    disks = modifications(opts.disks, "disk")
    if opts.keep_disks:
        kept = {"remove": "detach"}
        disks = [[kept.get(action, action), *rest] for action, *rest in disks]
    return {
        "nics": modifications(opts.nics, "NIC"),
        "disks": disks,
        "disk_template": opts.disk_template,
        "beparams": opts.beparams,
        "hvparams": opts.hvparams,
        "osparams": opts.osparams,
        "osparams_private": private_params.private_parameters(opts, may_remove=True),
        "os_name": opts.os,
        "offline": _offline(opts),
        "runtime_mem": opts.runtime_mem,
        "pnode": opts.new_primary_node,
        "remote_node": opts.node,
        "expires": devices.expiry(opts.expires),
        "owner": opts.owner,
        "reservation_priority": opts.reservation_priority,
    }


def _offline(opts: Any) -> bool | None:
    if opts.offline_inst and opts.online_inst:
        raise refusal("--offline and --online exclude each other")
    if opts.offline_inst:
        return True
    return False if opts.online_inst else None


def _check(opts: Any) -> None:
    if opts.node and opts.iallocator:
        raise refusal("--node and --iallocator exclude each other")
    is_external = opts.disk_template == "ext"
    # New disks may name their provider themselves.
    needs_provider = is_external and not opts.disks
    is_given = bool(opts.ext_params)
    if (needs_provider and not is_given) or (is_given and not is_external):
        raise refusal("--ext-params and --disk-template=ext need each other")
    if opts.disk_template and opts.disk_template != "drbd" and opts.node:
        raise refusal("--node needs --disk-template=drbd")


def _may_remove_disks(ctx: CommandContext, disks: list[list[Any]]) -> bool:
    """Ask before a running guest loses a disk with its data.

    Without a terminal nobody can be asked: scripts remove disks as they always did.
    """
    is_removal = any(action == "remove" for action, *_ in disks)
    if not is_removal or ctx.opts.force or not prompts.has_terminal(ctx):
        return True
    name = ctx.args[0]
    if not any(
        row["oper_state"]
        for row in listing.named(ctx, "instance", ["oper_state"], [name])
    ):
        return True
    question = (
        f"Instance {name} is running. The disk is removed with its data; --keep only"
        " detaches it. Continue?"
    )
    return prompts.confirm(ctx, question)


def activate(ctx: CommandContext) -> int:
    """Assemble the disks of instances; print their paths."""

    def show(devices: Any) -> None:
        for node, name, device in devices or ():
            ctx.out(f"{node}:{name}:{device}")

    return executor.for_named(ctx, "instance", operation.fill(ctx), show=show)


def grow(ctx: CommandContext) -> int:
    """Enlarge a disk by an amount, or to a size."""
    _, disk, amount = ctx.args
    return operation.run(
        ctx,
        disk=devices.parse_index(disk, "disk"),
        amount=devices.parse_size(amount, "amount"),
    )


def _recreated_disks(given: devices.Given) -> list[list[Any]]:
    disks = []
    for ident, parameters in given:
        index = devices.parse_index(ident, "disk")
        if not isinstance(parameters, dict):
            raise refusal(f"disk {index}: wanted key=value parameters")
        disk = dict(parameters)
        if "size" in disk:
            disk["size"] = devices.parse_size(disk["size"], f"disk {index}: size")
        disks.append([index, disk])
    return disks


def recreate(ctx: CommandContext) -> int:
    """Recreate disks."""
    node_pair = ctx.opts.node or ""
    return operation.run(
        ctx,
        disks=_recreated_disks(ctx.opts.disks),
        nodes=[node for node in node_pair.split(":") if node],
    )


def replace(ctx: CommandContext) -> int:
    """Replace the disks of an instance."""
    opts = ctx.opts
    disks = [
        devices.parse_index(word, "disk")
        for word in (opts.disks or "").split(",")
        if word
    ]
    modes = {
        "replace_on_primary": opts.on_primary,
        "replace_on_secondary": opts.on_secondary,
        "replace_auto": opts.auto,
        "replace_new_secondary": opts.dst_node is not None
        or opts.iallocator is not None,
    }
    chosen = [mode for mode, given in modes.items() if given]
    if len(chosen) != 1 or (opts.dst_node and opts.iallocator):
        raise refusal(
            "exactly one of --on-primary, --on-secondary, --auto, --new-secondary and"
            " --iallocator must be given"
        )
    if opts.auto and disks:
        raise refusal("--disks and --auto exclude each other")
    return operation.run(ctx, disks=disks, mode=chosen[0])
