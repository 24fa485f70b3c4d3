"""Large answers of queries: rows of pairs, decoded by column.

A listing of a large cluster has more than a million cells, most of which equal the cell
above. Decoding each cell takes longer than everything else, so rows stay text until
they are used, and a column is represented by its distinct cells. The client imports
this module only when a large answer arrives.
"""

import gc
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, overload

import msgspec

from ganeti.base import errors
from ganeti.protocols.luxi import framing

#: Status and value.
Cell = tuple[int, Any]
Row = list[Cell]

#: Separator of two cells in a row. A text may contain it too; see `Rows.columns`.
_BETWEEN: Final = b"],["
#: Number of rows used to guess which columns are equal in all rows.
_SAMPLES: Final = 16
#: Number of wrong guesses after which guessing ends.
_GUESSES: Final = 5


class _Table(msgspec.Struct):
    fields: list[dict[str, Any]]
    data: list[msgspec.Raw]


class _Answer(msgspec.Struct):
    success: bool
    result: _Table
    version: Any = None


_decoder = msgspec.json.Decoder(_Answer)
_cell_decoder = msgspec.json.Decoder(Cell)
_row_decoder = msgspec.json.Decoder(Row)


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        cells: the distinct cells by key.
        keys: the key per row; None if all rows have the same cell.
    """

    cells: dict[bytes, Cell]
    keys: Sequence[bytes] | None


class Rows(Sequence[Row]):
    """The rows of a table, decoded when they are used."""

    def __init__(self, encoded: Sequence[msgspec.Raw]) -> None:
        """Store encoded rows."""
        self._encoded = encoded

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._encoded)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> "Rows": ...

    def __getitem__(self, index: int | slice) -> "Row | Rows":
        """Return a row or a slice."""
        if isinstance(index, slice):
            return Rows(self._encoded[index])
        return _decode_row(self._encoded[index])

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows."""
        return map(_decode_row, self._encoded)

    def columns(self, width: int) -> list[Column] | None:
        """Return the table by column.

        Rows are cut at possible ends of cells. Each piece must then be the text of one
        cell, and the number of pieces must equal that of the columns. Only one way to
        cut satisfies this, so a wrong cut inside a text is always detected.

        Args:
            width: number of columns.

        Returns:
            None if the rows are not in compact form or cannot be cut; then decode them
            one by one.
        """
        if not self._encoded or not width:
            return None
        try:
            return [_column(keys) for keys in _cut_all(self._encoded, width)]
        except (msgspec.DecodeError, UnicodeDecodeError, _CannotCutError):
            return None


def _decode_row(row: msgspec.Raw) -> Row:
    try:
        return _row_decoder.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ProtocolError(f"a row of the answer is malformed: {err}") from err


class _CannotCutError(Exception):
    """The number of a row's pieces differs from that of the columns."""


def _column(keys: Sequence[bytes]) -> Column:
    distinct = set(keys)
    cells = {key: _cell_decoder.decode(b"[" + key + b"]") for key in distinct}
    return Column(cells, None if len(cells) == 1 else keys)


def _inside(row: msgspec.Raw) -> bytes:
    """Return a row without its outer brackets and those of its first and last cell."""
    return bytes(row)[2:-2] + _BETWEEN


def _split(row: bytes, width: int) -> list[bytes]:
    pieces = row.split(_BETWEEN)
    if len(pieces) != width + 1:
        raise _CannotCutError
    return pieces[:-1]


class _Pattern:
    """A cutter of rows in which some columns have the same cell in every row."""

    def __init__(self, first: list[bytes], same: list[bool]) -> None:
        """Prepare.

        Args:
            first: pieces of one row.
            same: per column, whether all rows have the same piece.
        """
        self._first = first
        self.same = same
        #: Number of unknown cells, and the text after them, which is empty at the end.
        self._steps: list[tuple[int, bytes]] = []
        count, place = 0, 0
        for is_same, group in itertools.groupby(same):
            length = len(list(group))
            if is_same:
                known = first[place : place + length]
                self._steps.append((count, _BETWEEN.join([*known, b""])))
            count = 0 if is_same else length
            place += length
        if count:
            self._steps.append((count, b""))

    def cut(self, row: bytes) -> list[bytes] | None:
        """Return the pieces of the variable columns; None if the row does not match."""
        varying: list[bytes] = []
        at = 0
        for count, known in self._steps:
            end = row.find(known, at) if known else len(row)
            pieces = row[at:end].split(_BETWEEN)
            if end < 0 or len(pieces) != count + 1 or pieces.pop():
                return None
            varying += pieces
            at = end + len(known)
        return varying if at == len(row) else None

    def cut_misfit(self, row: bytes) -> list[bytes] | None:
        """Do the same by a slow method; None if a constant column differs."""
        pieces = _split(row, len(self.same))
        varying = []
        for piece, known, is_same in zip(pieces, self._first, self.same, strict=True):
            if not is_same:
                varying.append(piece)
            elif piece != known:
                return None
        return varying

    def corrected(self, row: bytes) -> "_Pattern":
        """Return a pattern that also matches the given row."""
        pieces = _split(row, len(self.same))
        same = [
            is_same and piece == known
            for piece, known, is_same in zip(
                pieces, self._first, self.same, strict=True
            )
        ]
        return _Pattern(self._first, same)

    def columns(self, pieces: list[list[bytes]]) -> Iterator[Sequence[bytes]]:
        """Yield the pieces by column; a constant column has only one."""
        varying = iter(zip(*pieces, strict=True))
        for known, is_same in zip(self._first, self.same, strict=True):
            yield (known,) if is_same else next(varying)


def _cut_all(rows: Sequence[msgspec.Raw], width: int) -> Iterator[Sequence[bytes]]:
    """Return the pieces of all rows by column."""
    step = len(rows) // _SAMPLES + 1
    samples = [_split(_inside(row), width) for row in rows[::step]]
    same = [len(set(pieces)) == 1 for pieces in zip(*samples, strict=True)]
    pattern = _Pattern(samples[0], same)
    for _guess in range(_GUESSES):
        cut: list[list[bytes]] = []
        for row in map(_inside, rows):
            pieces = pattern.cut(row)
            if pieces is None:
                pieces = pattern.cut_misfit(row)
            if pieces is None:
                pattern = pattern.corrected(row)
                break
            cut.append(pieces)
        else:
            return pattern.columns(cut)
    pattern = _Pattern(samples[0], [False] * width)
    return pattern.columns([_split(_inside(row), width) for row in rows])


def decode(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return an answer in the generic form; None if it is not a table.

    The data of the answer are `Rows`.
    """
    try:
        answer = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # The data lives until the program ends, so garbage collection only costs time.
    gc.freeze()
    return {
        framing.KEY_SUCCESS: answer.success,
        framing.KEY_RESULT: {
            "fields": answer.result.fields,
            "data": Rows(answer.result.data),
        },
        framing.KEY_VERSION: answer.version,
    }
