"""Tables: columns with a kind, rows of cells, as text; times and counts as text.

`render` makes both the tables of queries and the tables that commands build themselves.
Only the end of the header differs.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple


def timestamp(value: Any, *, micro: bool = False) -> str:
    """Return seconds or ``[seconds, microseconds]`` as local time, others as ``N/A``.

    A time beyond all dates of the platform is shown in seconds.

    Args:
        value: a time in wire form.
        micro: show microseconds.
    """
    if isinstance(value, (list, tuple)) and len(value) == 2:
        seconds, fraction = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds, fraction = int(value), round((value - int(value)) * 1_000_000)
    else:
        return "N/A"
    try:
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OSError, OverflowError, ValueError):
        return f"{seconds} s"
    return f"{text}.{fraction:06d}" if micro else text


def plural(count: int, noun: str) -> str:
    """Return ``1 job`` or ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


#: Returns the text of a cell's value.
Format = Callable[[Any], str]
_RIGHT: Final = frozenset(("number", "float", "unit"))


class Same(NamedTuple):
    """The texts of a column with the same text in every row."""

    text: str
    rows: int


#: The texts of one column, from top to bottom.
Texts = Sequence[str] | Same


class Column(NamedTuple):
    """One column.

    Attributes:
        title: header.
        kind: of query fields: text, bool, number, float, unit, timestamp, other.
        format: formatter of a value; by default that of the kind.
        style: returns the style of a text, see `colours`; None for no colours.
    """

    title: str
    kind: str = "text"
    format: Format | None = None
    style: Callable[[str], str] | None = None


#: Returns a text in a style, with control characters escaped; see `colours.Painter`.
Paint = Callable[[str, str], str]


def format_bool(value: Any) -> str:
    """Return ``Y`` or ``N``."""
    return "Y" if value else "N"


def unit_format(unit: str) -> Format:
    """Return the formatter of sizes in MiB: ``m``, ``g``, ``t`` bare, ``h`` scaled."""
    from ganeti.base.text import units

    def show(value: Any) -> str:
        if not isinstance(value, (int, float)):
            return str(value)
        return units.format_size(value, unit)

    return show


def format_of(column: Column, unit: str) -> Format:
    """Return the formatter of a column."""
    if column.format is not None:
        return column.format
    if column.kind == "bool":
        return format_bool
    if column.kind == "unit":
        return unit_format(unit)
    if column.kind == "timestamp":
        return timestamp
    return str


def default_unit(units: str | None, separator: str | None) -> str:
    """Return the unit of sizes without ``--units``."""
    return units or ("h" if separator is None else "m")


def render(
    columns: Sequence[Column],
    cells: Sequence[Texts],
    *,
    separator: str | None,
    headers: bool,
    pad_header: bool = False,
) -> str:
    """Return a table as one text, empty if it has no lines; see `lines`."""
    rendered = lines(
        columns, cells, separator=separator, headers=headers, pad_header=pad_header
    )
    return "\n".join(rendered)


def lines(
    columns: Sequence[Column],
    cells: Sequence[Texts],
    *,
    separator: str | None,
    headers: bool,
    pad_header: bool = False,
    paint: Paint | None = None,
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        columns: titles and kinds.
        cells: texts by column, not by row; all columns have the same length.
        separator: text between cells, which are not aligned then.
        headers: begin with the titles.
        pad_header: pad the last title to the width of its column.
        paint: colours the texts, which are without control characters then.
    """
    titles = tuple(column.title for column in columns)
    if separator is not None:
        if headers:
            yield separator.join(titles)
        texts_of = zip(columns, cells, strict=True)
        yield from _lines(
            [_shown(column, texts, None, paint) for column, texts in texts_of],
            separator,
        )
        return
    last = len(columns) - 1
    header: list[str] = []
    padded: list[Texts] = []
    for number, (column, texts) in enumerate(zip(columns, cells, strict=True)):
        distinct = {texts.text} if isinstance(texts, Same) else set(texts)
        width = max(map(len, distinct), default=0)
        if headers:
            width = max(width, len(column.title))
        is_right = column.kind in _RIGHT
        is_open = number == last and not is_right
        pad = functools.partial(_right if is_right else _left, width)
        open_title = is_open and not pad_header
        title = column.title if open_title else pad(column.title)
        header.append(paint("title", title) if paint else title)
        padded.append(_shown(column, texts, None if is_open else pad, paint))
    if headers:
        yield " ".join(header)
    yield from _lines(padded, " ")


def _left(width: int, text: str) -> str:
    return text.ljust(width)


def _right(width: int, text: str) -> str:
    return text.rjust(width)


def _shown(
    column: Column,
    texts: Texts,
    pad: Callable[[str], str] | None,
    paint: Paint | None,
) -> Texts:
    """Return the texts of a column as they are printed."""
    if pad is None and paint is None:
        return texts

    def show(text: str) -> str:
        padded = text if pad is None else pad(text)
        if paint is None:
            return padded
        return paint(column.style(text) if column.style else "", padded)

    if isinstance(texts, Same):
        return Same(show(texts.text), texts.rows)
    # Most columns repeat a few values, so each value is shown once.
    by_text = {text: show(text) for text in set(texts)}
    return list(map(by_text.__getitem__, texts))


def _lines(columns: Iterable[Texts], separator: str) -> Iterator[str]:
    """Yield the joined texts of each row; columns with one text are joined once."""
    merged: list[Texts] = []
    for texts in columns:
        if merged and isinstance(texts, Same) and isinstance(merged[-1], Same):
            text = f"{merged[-1].text}{separator}{texts.text}"
            merged[-1] = Same(text, texts.rows)
        else:
            merged.append(texts)
    columns_of_texts = (
        itertools.repeat(*texts) if isinstance(texts, Same) else texts
        for texts in merged
    )
    return map(separator.join, zip(*columns_of_texts, strict=True))
