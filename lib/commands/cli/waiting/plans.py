"""``--plan``: print the master's plans of a command's jobs.

The master plans (LUXI ``PlanJob``) and nothing is submitted. This module only prints
plans: as text, with colours on a terminal, or as one JSON document with ``--json``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import error_text
from ganeti.commands.cli.output.colours import Painter
from ganeti.commands.cli.waiting import jobs

_SIGNS: Final = {"add": "+", "change": "~", "remove": "-"}
#: Display names of tables.
_KINDS: Final = {
    "cluster": "cluster",
    "disks": "disk",
    "filters": "filter",
    "instances": "instance",
    "networks": "network",
    "nodegroups": "group",
    "nodes": "node",
}
#: Parameters of every opcode, left out because they do not describe the operation.
_GENERIC: Final = frozenset(
    ("OP_ID", "comment", "debug_level", "depends", "dry_run", "priority", "reason")
)

#: Values left out of new records.
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})

Plan = Mapping[str, Any]
#: Role, ``""`` without a colour, and text of a line.
_Line = tuple[str, str]


def wanted(ctx: CommandContext) -> bool:
    """Return whether to only plan, for a command that also acts outside of jobs.

    Raises:
        CommandError: ``--json`` without ``--plan``.
    """
    if ctx.option("plan"):
        return True
    if ctx.option("json"):
        raise CliError("--json needs --plan")
    return False


def show(
    ctx: CommandContext,
    job_list: list[list[jobs.Op]],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> int:
    """Have jobs planned one by one, and print the plans; return the exit code.

    Args:
        ctx: the command.
        job_list: opcodes of each job.
        before: actions of the command itself before the jobs.
        after: actions of the command itself after the jobs.

    Raises:
        OpPrereqError: an opcode is malformed.
        GenericError: the master cannot plan.
    """
    plans = [jobs.explained_call(ctx, "PlanJob", ops, [ops]) for ops in job_list]
    failed = any(
        op["error"] is not None
        for plan in plans
        for ops in (plan["opcodes"], *plan["followers"])
        for op in ops
    )
    if ctx.option("json"):
        outside = {"before": [*before], "after": [*after]}
        given = {key: texts for key, texts in outside.items() if texts}
        ctx.out(json.dumps({"jobs": plans, **given}, indent=2, sort_keys=True))
    else:
        paint = Painter.of(ctx)
        parts = [
            _outside("Steps of this command", before, paint),
            *(lines(plan, paint) for plan in plans),
            _outside("Steps of this command after its jobs", after, paint),
        ]
        shown = [body for part in parts if (body := list(part))]
        for number, body in enumerate(shown):
            if number:
                ctx.out()
            for line in body:
                ctx.out(line, is_styled=True)
    return exitcodes.EXIT_FAILURE if failed else exitcodes.EXIT_SUCCESS


def _outside(title: str, texts: Sequence[str], paint: Painter) -> Iterator[str]:
    if texts:
        yield paint("title", title)
    width = len(str(len(texts)))
    for number, text in enumerate(texts, 1):
        yield paint("", f"  {number:>{width}}. {escape(text)}")


def job(operation: jobs.Op) -> str:
    """Describe the submission of a job that cannot be planned in advance."""
    return f"submit {_call(operation)}"


def lines(plan: Plan, paint: Painter) -> Iterator[str]:
    """Yield the lines of a job's plan and of the jobs that it would submit.

    They are ready for a terminal: everything but the colours is escaped.
    """
    return (paint(role, text) for role, text in _lines(plan))


def _lines(plan: Plan) -> Iterator[_Line]:
    for number, op in enumerate(plan["opcodes"]):
        if number:
            yield "", ""
        summary = escape(op["summary"])
        yield "title", f"Plan of {summary} at revision {plan['revision']}"
        yield from _op_lines(op)
    for number, ops in enumerate(plan["followers"], 1):
        for op in ops:
            yield "", ""
            yield "title", f"Then job {number}: {escape(op['summary'])}"
            yield from _op_lines(op)
    if plan["left_out"]:
        yield "", f"{plan['left_out']} more jobs would be submitted."


def _op_lines(op: Plan) -> Iterator[_Line]:
    for name, section in (
        ("Locks", _uncoloured(_locks(op))),
        ("Steps", _uncoloured(_steps(op))),
        ("Configuration", _changes(op)),
        ("Jobs", _uncoloured(_jobs(op))),
    ):
        body = list(section)
        if body or name != "Jobs":
            yield "title", name
            yield from ((role, f"  {line}") for role, line in body or [("", "none")])
    if op["generated"]:
        yield "", "Generated values; a real run generates different ones:"
        yield from (("", f"  {value}") for value in op["generated"])
    if op["error"] is not None:
        yield "error", f"The operation would fail: {_error(op['error'])}"


def _uncoloured(texts: Iterator[str]) -> Iterator[_Line]:
    return (("", text) for text in texts)


def _error(value: Any) -> str:
    known = errors.decode(value)
    return escape(str(value)) if known is None else error_text.describe(known)[0]


def _locks(op: Plan) -> Iterator[str]:
    for lock in op["locks"]:
        names = "all" if lock["names"] is None else ", ".join(lock["names"])
        notes = ["shared"] if lock["shared"] else []
        if lock["created"]:
            notes.append(f"new: {', '.join(lock['created'])}")
        note = f" ({'; '.join(notes)})" if notes else ""
        yield f"{lock['level']:<10} {escape(names)}{note}"


def _steps(op: Plan) -> Iterator[str]:
    width = len(str(len(op["steps"])))
    for number, step in enumerate(op["steps"], 1):
        yield f"{number:>{width}}. {escape(_step(step))}"


def _step(step: Plan) -> str:
    if step["kind"] == "log":
        return f"log: {step['text']}"
    if step["kind"] == "file":
        return f"write file {step['text']}"
    if step["kind"] == "pause":
        return f"wait {step['seconds']:g} s"
    given = ", ".join(f"{k}={v}" for k, v in step.get("arguments", {}).items())
    return f"call {step['procedure']}({given}) on {', '.join(step['nodes'])}"


def _changes(op: Plan) -> Iterator[_Line]:
    for change in op["changes"]:
        action, kind = change["action"], _KINDS.get(change["table"], change["table"])
        label = change["name"] or change["uuid"]
        yield action, f"{_SIGNS[action]} {kind} {escape(label)}"
        if action == "remove":
            continue
        for field in change["fields"]:
            before = _value(field["before"], op["names"])
            after = _value(field["after"], op["names"])
            if action == "change":
                yield "", f"    {field['name']}: {before} -> {after}"
            elif field["name"] != "uuid" and field["after"] not in _EMPTY:
                yield "", f"    {field['name']}: {after}"


def _value(value: Any, names: Mapping[str, str]) -> str:
    """Return a value on one line; a uuid is replaced by the object's name."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return escape(names.get(value, value)) or "''"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"[{', '.join(_value(item, names) for item in value)}]"
    return escape(json.dumps(value, sort_keys=True))


def _jobs(op: Plan) -> Iterator[str]:
    for number, job in enumerate(op["jobs"], 1):
        for child in job:
            yield f"{number}. {_call(child)}"


def _call(operation: Plan) -> str:
    given = ", ".join(
        f"{key}={_value(value, {})}"
        for key, value in sorted(operation.items())
        if key not in _GENERIC and value not in (None, "", [], {}, False)
    )
    return f"{operation['OP_ID']}({given})"
