"""``modify``: change an instance."""

from typing import Any, Final

from ganeti.base.constants import exitcodes
from ganeti.commands.cli import cloud_init, param_options, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.commands.cli.waiting import jobs, submission
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
#: Options whose value is used for the parameter of the same name.
_SAME: Final = (
    "beparams",
    "hvparams",
    "osparams",
    "disk_template",
    "file_driver",
    "file_storage_dir",
    "iallocator",
    "force",
    "force_variant",
    "wait_for_sync",
    "ignore_ipolicy",
    "runtime_mem",
    "conflicts_check",
    "hotplug",
    "ext_params",
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
            raise devices.refusal(f"disk add: {devices.without_size(values)}")
        if action in ("add", "modify") and what == "disk" and "size" in values:
            values = {**values, "size": devices.parse_size(values["size"], "disk size")}
        if action in ("remove", "detach") and values:
            raise devices.refusal(f"{what} {action}: takes no parameters")
        if any(other[1] == target and target != _LAST for other in changes):
            raise devices.refusal(f"{what} {target}: only one action per index")
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
        raise devices.refusal(
            f"{what} {ident}: {' and '.join(actions)} exclude each other"
        )
    for word in actions:
        del values[word]
    values.pop("modify", None) if values.get("modify") is True else None
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
        raise devices.refusal("nothing to change: please give at least one parameter")
    _check(opts)
    if not _may_remove_disks(ctx, changes["disks"]):
        return exitcodes.EXIT_FAILURE
    if _touches_nics(changes["nics"]) and opts.hotplug and not opts.force:
        question = (
            "You are about to hot-modify a NIC. This is done by removing the existing"
            " NIC and adding a new one, so the instance loses its network for a moment."
            " Continue?"
        )
        if not prompts.confirm(ctx, question):
            return exitcodes.EXIT_FAILURE
    parameters = {name: getattr(opts, name) for name in _SAME}
    operation = jobs.op(
        "OP_INSTANCE_SET_PARAMS",
        instance_name=ctx.args[0],
        **{**parameters, **changes},
        instance_communication=opts.instance_communication,
    )
    job = submission.submit_or_run(ctx, operation)
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
        "osparams_private": cloud_init.private_parameters(opts, may_remove=True),
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
        raise devices.refusal("--offline and --online exclude each other")
    if opts.offline_inst:
        return True
    return False if opts.online_inst else None


def _check(opts: Any) -> None:
    if opts.node and opts.iallocator:
        raise devices.refusal("--node and --iallocator exclude each other")
    is_external = opts.disk_template == "ext"
    # New disks may name their provider themselves.
    needs_provider = is_external and not opts.disks
    is_given = bool(opts.ext_params)
    if (needs_provider and not is_given) or (is_given and not is_external):
        raise devices.refusal("--ext-params and --disk-template=ext need each other")
    if opts.disk_template and opts.disk_template != "drbd" and opts.node:
        raise devices.refusal("--node needs --disk-template=drbd")


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


def _touches_nics(nics: list[list[Any]]) -> bool:
    return any(action == "modify" for action, _, _ in nics)
