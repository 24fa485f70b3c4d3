"""``cancel`` and ``change-priority``: by id, or by status after a question."""

from collections.abc import Callable
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.model import PRIORITIES
from ganeti.commands.cli.output import listing
from ganeti.commands.job.ids import parse_id
from ganeti.commands.job.listing import LISTING, status_filter

Action = Callable[[int], tuple[bool, str]]


def _refusal(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(text, ecodes.ECODE_INVAL)


def _for_each(ctx: CommandContext, question: str, action: Action) -> int:
    """Apply an action to each selected job; print the master's answers."""
    states = ctx.opts.status_filter
    if bool(states) == bool(ctx.args):
        raise _refusal("give either job ids or one status option")
    if not states:
        ids = [parse_id(word) for word in ctx.args]
    else:
        wanted = status_filter(states)
        rows = listing.query_objects(ctx, "job", ["id"], wanted)
        ids = [item["id"] for item in rows]
        if not ids:
            ctx.out("No jobs have this status")
            return exitcodes.EXIT_FAILURE
        if not ctx.opts.force and not _agreed(ctx, question, wanted):
            return exitcodes.EXIT_CONFIRMATION
    code = exitcodes.EXIT_SUCCESS
    for job_id in ids:
        success, text = action(job_id)
        ctx.out(text)
        if not success:
            code = exitcodes.EXIT_FAILURE
    return code


def _agreed(ctx: CommandContext, question: str, wanted: list[Any] | None) -> bool:
    ctx.opts.separator, ctx.opts.no_headers = None, False
    listing.show(ctx, LISTING, ["id", "status", "summary"], wanted)
    return prompts.confirm(ctx, question)


def cancel(ctx: CommandContext) -> int:
    """Cancel jobs, or kill them."""
    if ctx.opts.kill and not ctx.opts.yes_do_it:
        raise _refusal(
            "--kill ends running jobs at any point and may leave resources behind; add"
            " --yes-do-it to confirm"
        )
    kill = ctx.opts.kill

    def action(job_id: int) -> tuple[bool, str]:
        success, text = ctx.call("CancelJob", job_id, kill)
        return success, text

    return _for_each(ctx, "Cancel the jobs listed above?", action)


def change_priority(ctx: CommandContext) -> int:
    """Change the priority of jobs."""
    word = ctx.opts.priority
    if word is None:
        raise _refusal("--priority is needed: low, normal or high")
    priority = PRIORITIES[word]

    def action(job_id: int) -> tuple[bool, str]:
        success, text = ctx.call("ChangeJobPriority", job_id, priority)
        return success, text

    question = f"Change the priority of the jobs listed above to {word}?"
    return _for_each(ctx, question, action)
