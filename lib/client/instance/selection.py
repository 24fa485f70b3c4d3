"""Which instances a command is for: by name, node, tags, or all of them."""

from collections.abc import Callable
from typing import Any, Final

from ganeti import errors
from ganeti.cli import questions
from ganeti.cli.context import Context
from ganeti.cli.executor import Executor
from ganeti.constants import ecodes, exitcodes

_BY_NAME: Final = "instances"
_EVERYTHING: Final = "cluster"
_BY_INSTANCE_TAGS: Final = "instances-by-tags"
#: Mode of node selection: lists of instances to take.
_NODE_LISTS: Final = {
    "nodes": ("pinst_list", "sinst_list"),
    "nodes-pri": ("pinst_list",),
    "nodes-sec": ("sinst_list",),
}
_BY_TAGS_SUFFIX: Final = "-by-tags"


def _require(names: list[str], kind: str) -> None:
    if not names:
        raise errors.OpPrereqError(f"no {kind} passed", ecodes.ECODE_INVAL)


def expand(ctx: Context, mode: str | None) -> list[str]:
    """Return the names of the chosen instances, each once.

    Raises:
        OpPrereqError: arguments do not fit the mode, or a name is unknown.
    """
    names = ctx.args
    if mode in (None, _BY_NAME):
        _require(names, "instance names")
        return _by_name(ctx, names)
    if mode == _EVERYTHING:
        if names:
            raise errors.OpPrereqError(
                "--all takes no instance names", ecodes.ECODE_INVAL
            )
        return [row[0] for row in ctx.call("QueryInstances", [], ["name"], False)]
    if mode == _BY_INSTANCE_TAGS:
        _require(names, "instance tags")
        rows = ctx.call("QueryInstances", [], ["name", "tags"], False)
        return [name for name, tags in rows if set(tags).intersection(names)]
    return _by_node(ctx, str(mode), names)


def check_known(ctx: Context, name: str) -> None:
    """Refuse an instance that does not exist.

    Raises:
        OpPrereqError: names it.
    """
    _by_name(ctx, [name])


def _by_name(ctx: Context, names: list[str]) -> list[str]:
    rows = ctx.call("QueryInstances", names, ["name", "uuid"], False)
    for wanted in names:
        if not any(
            wanted in (name, uuid) or name.startswith(f"{wanted}.")
            for name, uuid in rows
        ):
            raise errors.OpPrereqError(
                f"instance {wanted!r} not known", ecodes.ECODE_NOENT
            )
    return [name for name, _ in rows]


def _by_node(ctx: Context, mode: str, names: list[str]) -> list[str]:
    by_tags = mode.endswith(_BY_TAGS_SUFFIX)
    _require(names, "node tags" if by_tags else "node names")
    lists = _NODE_LISTS[mode.removesuffix(_BY_TAGS_SUFFIX)]
    fields = [*lists, "tags"]
    rows = ctx.call("QueryNodes", [] if by_tags else names, fields, False)
    found: dict[str, None] = {}
    for *instances, tags in rows:
        if by_tags and not set(tags).intersection(names):
            continue
        for group in instances:
            found.update(dict.fromkeys(group))
    return list(found)


def for_each(
    ctx: Context, operation: str, build: Callable[[str], dict[str, Any]]
) -> int:
    """Submit one job for each chosen instance after a question; return the exit code.

    Args:
        ctx: the command.
        operation: verb for texts, such as ``shutdown``.
        build: returns the parameters beside the instance's name, with ``OP_ID``.
    """
    mode = ctx.opts.multi_mode
    names = expand(ctx, mode)
    if not names:
        if mode == _EVERYTHING:
            ctx.out(f"Cluster is empty, no instances to {operation}")
            return exitcodes.EXIT_SUCCESS
        raise errors.OpPrereqError(
            "the selection matches no instances", ecodes.ECODE_INVAL
        )
    several = mode not in (None, _BY_NAME) or len(names) > 1
    if several and not ctx.opts.force_multi:
        agreed = questions.confirm_operation(
            ctx, names, kind="instances", operation=operation
        )
        if not agreed:
            return exitcodes.EXIT_FAILURE
    executor = Executor(ctx)
    for name in names:
        executor.add(name, {**build(name), "instance_name": name})
    success = executor.finish_or_show(quiet=not several)
    return exitcodes.EXIT_SUCCESS if success else exitcodes.EXIT_FAILURE
