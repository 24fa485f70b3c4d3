"""``maintd-cancel`` and ``remove-repair``: answers to faults that nodes report."""

from ganeti.cli.context import CommandContext


def cancel(ctx: CommandContext) -> None:
    """Cancel an incident."""
    ctx.call("CancelIncident", ctx.args[0])


def remove(ctx: CommandContext) -> None:
    """Forget an incident."""
    ctx.call("RemoveIncident", ctx.args[0])
