"""Large answers of queries: rows of pairs, taken apart column by column.

A listing of a large cluster has more than a million cells, most of which are like
those above them. Making an object of each takes longer than all the rest, so rows stay
text until somebody wants them, and a column is represented by its distinct cells. The
client imports this module only when a large answer arrives.
"""

import gc
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, overload

import msgspec

from ganeti import errors
from ganeti.luxi import framing

#: Status and value.
Cell = tuple[int, Any]
Row = list[Cell]

#: Between two cells of a row. Inside a text it looks the same; see `Rows.columns`.
_BETWEEN: Final = b"],["
#: Rows looked at to guess which columns are the same in all rows.
_SAMPLES: Final = 16
#: Wrong guesses after which nothing is guessed any more.
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
        cells: the distinct ones, by the key that stands for them.
        keys: one for each row; None if all rows have the only cell.
    """

    cells: dict[bytes, Cell]
    keys: Sequence[bytes] | None


class Rows(Sequence[Row]):
    """The rows of a table; decoded when they are looked at."""

    def __init__(self, encoded: Sequence[msgspec.Raw]) -> None:
        """Keep rows as they arrived."""
        self._encoded = encoded

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._encoded)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> "Rows": ...

    def __getitem__(self, index: int | slice) -> "Row | Rows":
        """Return a row, or some."""
        if isinstance(index, slice):
            return Rows(self._encoded[index])
        return _decode_row(self._encoded[index])

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows."""
        return map(_decode_row, self._encoded)

    def columns(self, width: int) -> list[Column] | None:
        """Return the table by column.

        Rows are cut where cells seem to end. Each piece must then be the text of one
        cell, and there must be as many as columns: that is possible in one way only,
        so a cut inside a text does not go unnoticed.

        Args:
            width: number of columns.

        Returns:
            None if the rows are not written compactly or cannot be cut: look at them
            one by one.
        """
        if not self._encoded or not width:
            return None
        try:
            return [_column(keys) for keys in _cut_all(self._encoded, width)]
        except (msgspec.DecodeError, _CannotCutError):
            return None


def _decode_row(row: msgspec.Raw) -> Row:
    try:
        return _row_decoder.decode(row)
    except msgspec.DecodeError as err:
        raise errors.ProtocolError(f"a row of the answer is odd: {err}") from err


class _CannotCutError(Exception):
    """A row does not have as many pieces as there are columns."""


def _column(keys: Sequence[bytes]) -> Column:
    distinct = set(keys)
    cells = {key: _cell_decoder.decode(b"[" + key + b"]") for key in distinct}
    return Column(cells, None if len(cells) == 1 else keys)


def _inside(row: msgspec.Raw) -> bytes:
    """Return a row without the brackets around it, its first and its last cell."""
    return bytes(row)[2:-2] + _BETWEEN


def _split(row: bytes, width: int) -> list[bytes]:
    pieces = row.split(_BETWEEN)
    if len(pieces) != width + 1:
        raise _CannotCutError
    return pieces[:-1]


class _Pattern:
    """Cuts rows in which the cells of some columns are always the same."""

    def __init__(self, first: list[bytes], same: list[bool]) -> None:
        """Prepare.

        Args:
            first: pieces of one row.
            same: by column, whether all rows have the same piece.
        """
        self._first = first
        self.same = same
        #: Number of unknown cells, and the text after these, empty at the end.
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
        """Return the pieces in columns that are not the same; None if it misfits."""
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
        """Do the same slowly; None if the row differs where it should not."""
        pieces = _split(row, len(self.same))
        varying = []
        for piece, known, is_same in zip(pieces, self._first, self.same, strict=True):
            if not is_same:
                varying.append(piece)
            elif piece != known:
                return None
        return varying

    def corrected(self, row: bytes) -> "_Pattern":
        """Return the pattern that knows that a row differs."""
        pieces = _split(row, len(self.same))
        same = [
            is_same and piece == known
            for piece, known, is_same in zip(
                pieces, self._first, self.same, strict=True
            )
        ]
        return _Pattern(self._first, same)

    def columns(self, pieces: list[list[bytes]]) -> Iterator[Sequence[bytes]]:
        """Yield the pieces by column, only one where all are the same."""
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
    """Return an answer as its generic form has it, None if it is no table.

    Its data are `Rows`.
    """
    try:
        answer = _decoder.decode(data)
    except msgspec.DecodeError:
        return None
    # All of it lives until the program ends; looking for garbage in it costs time.
    gc.freeze()
    return {
        framing.KEY_SUCCESS: answer.success,
        framing.KEY_RESULT: {
            "fields": answer.result.fields,
            "data": Rows(answer.result.data),
        },
        framing.KEY_VERSION: answer.version,
    }
