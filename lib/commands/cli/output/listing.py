"""List commands: query the master for fields of objects and print them.

The JSON form is a list with one object per row, field to value. A missing value is
null, and the object's ``_status`` has the reason per field: unknown, nodata, unavail or
offline.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.constants import query as q
from ganeti.base.constants.misc import UUID_REGEX
from ganeti.base.errors import refusal
from ganeti.commands.cli import filters
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import colours, table

_STATUS_WORDS: Final = {
    q.RS_UNKNOWN: "unknown",
    q.RS_NODATA: "nodata",
    q.RS_UNAVAIL: "unavail",
    q.RS_OFFLINE: "offline",
}
_KIND_WORDS: Final = {
    q.QFT_UNKNOWN: "Unknown",
    q.QFT_TEXT: "Text",
    q.QFT_BOOL: "Boolean",
    q.QFT_NUMBER: "Number",
    q.QFT_NUMBER_FLOAT: "Floating-point number",
    q.QFT_UNIT: "Storage size",
    q.QFT_TIMESTAMP: "Timestamp",
    q.QFT_OTHER: "Custom",
}


#: Possible number of this form, also inside a text; and its end, a faster search.
_EXPONENT: Final = rb"(?:^|[:,\[])-?[0-9.]+e[+-]?[0-9]+(?:$|[,\]}])"
_EXPONENT_END: Final = rb"e[+-]?[0-9]+(?:$|[,\]}])"


#: Rows that one call of the master returns.
_PAGE: Final = 1000


class Listing(NamedTuple):
    """The query of a list command.

    Attributes:
        resource: of queries, such as ``instance``.
        formats: formatters by field that replace those of the field's kind.
        name_field: the field that arguments are compared with.
        numeric: arguments are numbers.
        explain: prints more about rows that have a field of a node which is offline, or
            recorded as off.
    """

    resource: str
    formats: Mapping[str, table.Format] = {}
    name_field: str = "name"
    numeric: bool = False
    explain: Callable[[CommandContext], None] | None = None


def joined(value: Any) -> str:
    """Return a list joined by commas."""
    return ",".join(map(str, value))


def selected_fields(output: str | None, default: tuple[str, ...]) -> list[str]:
    """Return the fields that ``-o`` selects; ``+`` adds to the default ones."""
    if output is None:
        return list(default)
    if output.startswith("+"):
        return [*default, *output[1:].split(",")]
    return output.split(",")


def list_objects(
    ctx: CommandContext, listing: Listing, *, also: list[Any] | None = None
) -> int:
    """Run a list command; return the exit code.

    Args:
        ctx: the command.
        listing: the query.
        also: a further filter that must match.
    """
    wanted = filters.from_names(
        _by_name(ctx, listing),
        force_filter=ctx.option("force_filter", False),
        field=listing.name_field,
        numeric=listing.numeric,
    )
    if also is not None:
        wanted = also if wanted is None else ["&", also, wanted]
    fields = selected_fields(ctx.opts.output, ctx.command.fields)
    return show(ctx, listing, fields, wanted)


def _by_name(ctx: CommandContext, listing: Listing) -> list[str]:
    """Return the arguments with names in place of uuids: filters compare names."""
    if listing.name_field != "name" or ctx.option("force_filter", False):
        return ctx.args
    known = _names_of_uuids(ctx, listing.resource, ctx.args)
    return [known.get(name, name) for name in ctx.args]


def show(
    ctx: CommandContext, listing: Listing, fields: list[str], wanted: list[Any] | None
) -> int:
    """Query and print these fields; return the exit code."""
    answer = _query(ctx, listing.resource, fields, wanted)
    definitions, data = answer["fields"], answer["data"]
    code = _warn_unknown(ctx, definitions)
    if ctx.option("json"):
        print_json(ctx, to_objects(definitions, data))
        return code
    columns = [
        table.Column(
            field["title"] or field["name"],
            field["kind"],
            listing.formats.get(field["name"]),
            colours.of_field(field["name"]),
        )
        for field in definitions
    ]
    paint = colours.Painter.of(ctx)
    lines = table.lines(
        columns,
        _cells(ctx, columns, data),
        separator=ctx.opts.separator,
        headers=not ctx.opts.no_headers,
        paint=paint if paint.is_coloured else None,
    )
    ctx.out_lines(lines, is_styled=paint.is_coloured)
    if listing.explain is not None and any(
        status == q.RS_OFFLINE for row in data for status, _value in row
    ):
        listing.explain(ctx)
    return code


def _query(
    ctx: CommandContext, resource: str, fields: list[str], wanted: list[Any] | None
) -> Mapping[str, Any]:
    """Return the answer of a query, sorted and as long as the options want it."""
    sort, limit = ctx.option("sort"), ctx.option("limit")
    if sort is None and limit is None:
        answer: Mapping[str, Any] = ctx.call("Query", resource, fields, wanted)
        return answer
    if limit is not None and limit < 1:
        raise refusal(f"--limit: wanted a number of at least 1, found {limit}")
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None and (limit is None or len(rows) < limit):
        size = _PAGE if limit is None else min(limit - len(rows), _PAGE)
        page = {"sort": sort or "", "limit": size, "cursor": cursor}
        answer = ctx.call("QueryPage", resource, fields, wanted, page)
        rows += answer["data"]
        cursor = answer["next"]
    return {"fields": answer["fields"], "data": rows}


def _warn_unknown(ctx: CommandContext, definitions: list[dict[str, Any]]) -> int:
    unknown = [f["name"] for f in definitions if f["kind"] == q.QFT_UNKNOWN]
    if not unknown:
        return exitcodes.EXIT_SUCCESS
    ctx.err(f"Warning: Queried for unknown fields {', '.join(unknown)}")
    return exitcodes.EXIT_UNKNOWN_FIELD


def _cells(
    ctx: CommandContext, columns: list[table.Column], data: Any
) -> Sequence[table.Texts]:
    unit = table.default_unit(ctx.option("units"), ctx.opts.separator)
    verbose = ctx.option("verbose", False)
    status_text = {
        status: texts[0] if verbose else texts[1]
        for status, texts in q.RSS_DESCRIPTION.items()
    }
    shows = [_text_of(status_text, table.format_of(column, unit)) for column in columns]
    # Large answers come as rows that know their distinct cells.
    by_column = None if isinstance(data, list) else data.columns(len(columns))
    if by_column is None:
        pairs = list(zip(*data, strict=True)) or [()] * len(columns)
        return [
            list(map(text_of, cells))
            for text_of, cells in zip(shows, pairs, strict=True)
        ]
    return [
        _texts(cells, keys, text_of, len(data))
        for text_of, (cells, keys) in zip(shows, by_column, strict=True)
    ]


def _text_of(
    status_text: Mapping[int, str], show_value: table.Format
) -> Callable[[Any], str]:
    return lambda pair: status_text[pair[0]] if pair[0] else show_value(pair[1])


def _texts(
    cells: Mapping[bytes, Any],
    keys: Sequence[bytes] | None,
    text_of: Callable[[Any], str],
    rows: int,
) -> table.Texts:
    """Return the texts of a column; each distinct value is formatted once."""
    texts = {key: text_of(cell) for key, cell in cells.items()}
    if keys is None:
        return table.Same(next(iter(texts.values())), rows)
    return list(map(texts.__getitem__, keys))


def to_objects(
    definitions: list[dict[str, Any]], data: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return the JSON form of an answer."""
    names = [field["name"] for field in definitions]
    objects = []
    for row in data:
        item: dict[str, Any] = {}
        missing = {}
        for name, (status, value) in zip(names, row, strict=True):
            item[name] = None if status else value
            if status:
                missing[name] = _STATUS_WORDS[status]
        if missing:
            item["_status"] = missing
        objects.append(item)
    return objects


def print_json(ctx: CommandContext, value: Any) -> None:
    """Print a JSON document for programs and people."""
    ctx.out(_pretty(value))


def _pretty(value: Any) -> str:
    """Return indented JSON; use the faster codec if it is loaded, as for large answers.

    Both codecs write the same text, except for numbers with an exponent.
    """
    if "msgspec" in sys.modules:
        import msgspec

        data = msgspec.json.encode(value)
        if not (re.search(_EXPONENT_END, data) and re.search(_EXPONENT, data)):
            return msgspec.json.format(data, indent=2).decode()
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def list_fields(ctx: CommandContext) -> int:
    """Run ``list-fields``; return the exit code."""
    answer = ctx.call("QueryFields", ctx.command.resource, ctx.args or None)
    fields = answer["fields"]
    code = _warn_unknown(ctx, fields)
    if ctx.option("json"):
        keys = ("name", "kind", "title", "doc")
        print_json(ctx, [{key: field[key] for key in keys} for field in fields])
        return code
    columns = [table.Column(name) for name in ("Name", "Type", "Title", "Description")]
    getters: tuple[Callable[[dict[str, Any]], str], ...] = (
        lambda f: str(f["name"]),
        lambda f: _KIND_WORDS.get(f["kind"], f["kind"]),
        lambda f: str(f["title"]),
        lambda f: str(f["doc"]),
    )
    rows = [[get(field) for get in getters] for field in fields]
    print_table(ctx, columns, rows, pad_header=False)
    return code


def print_table(
    ctx: CommandContext,
    columns: Sequence[table.Column],
    rows: Sequence[Sequence[str]],
    *,
    pad_header: bool = True,
) -> None:
    """Print rows of texts as a table in the form that the options request."""
    paint = colours.Painter.of(ctx)
    lines = table.lines(
        columns,
        list(zip(*rows, strict=True)) or [()] * len(columns),
        separator=ctx.option("separator"),
        headers=not ctx.opts.no_headers,
        pad_header=pad_header,
        paint=paint if paint.is_coloured else None,
    )
    ctx.out_lines(lines, is_styled=paint.is_coloured)


def query_objects(
    ctx: CommandContext,
    resource: str,
    fields: list[str],
    wanted: list[Any] | None = None,
) -> list[dict[str, Any]]:
    """Return objects as mappings of field to value; a missing value is None."""
    answer = ctx.call("Query", resource, fields, wanted)
    return [
        {
            name: None if status else value
            for name, (status, value) in zip(fields, row, strict=True)
        }
        for row in answer["data"]
    ]


def show_named(
    ctx: CommandContext,
    resource: str,
    fields: list[str],
    tree: Callable[[dict[str, Any]], Any],
) -> None:
    """Run an info command: print named objects, or all, as trees or as JSON."""
    from ganeti.commands.cli.output import info_tree

    objects = named(ctx, resource, fields, ctx.args)
    if ctx.opts.json:
        print_json(ctx, objects)
    elif objects:
        ctx.out(info_tree.render([tree(each) for each in objects]))


def full_names(ctx: CommandContext, resource: str, names: list[str]) -> list[str]:
    """Return the full names of objects, each once.

    Raises:
        OpPrereqError: one does not exist.
    """
    rows = named(ctx, resource, ["name"], names)
    return list(dict.fromkeys(str(row["name"]) for row in rows))


def named(
    ctx: CommandContext, resource: str, fields: list[str], names: list[str]
) -> list[dict[str, Any]]:
    """Return the named objects in the order of the names, or all objects without names.

    A name may be a uuid, or an unambiguous first part of a name.

    Raises:
        OpPrereqError: a name is unknown.
    """
    if not names:
        return query_objects(ctx, resource, fields)
    known = _names_of_uuids(ctx, resource, names)
    wanted = ["|", *(["==", "name", known.get(name, name)] for name in names)]
    return query_objects(ctx, resource, fields, wanted)


def _names_of_uuids(
    ctx: CommandContext, resource: str, names: list[str]
) -> dict[str, str]:
    uuids = [name for name in names if re.fullmatch(UUID_REGEX, name)]
    if not uuids:
        return {}
    wanted = ["|", *(["==", "uuid", uuid] for uuid in uuids)]
    rows = query_objects(ctx, resource, ["uuid", "name"], wanted)
    return {item["uuid"]: item["name"] for item in rows}


def online_nodes(
    ctx: CommandContext,
    names: list[str],
    *,
    group: str | None = None,
    fields: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Return the online ones of these nodes; print a note about the others.

    Args:
        ctx: the command.
        names: nodes; empty for all.
        group: restrict to this group, by name or uuid.
        fields: fields to query beside ``name``.

    Raises:
        OpPrereqError: a name is unknown.
    """
    everything = ["name", "offline", "group", "group.uuid", *fields]
    nodes = named(ctx, "node", everything, names)
    if group:
        nodes = [n for n in nodes if group in (n["group"], n["group.uuid"])]
        if not nodes:
            raise errors.OpPrereqError(
                f"none of these nodes is in group {group!r}", ecodes.ECODE_NOENT
            )
    offline = [node["name"] for node in nodes if node["offline"]]
    if offline:
        ctx.err(f"Note: skipping offline node(s): {', '.join(offline)}")
    return [node for node in nodes if not node["offline"]]
