"""The rows of a store's file: records and documents by table and key.

Rows are written inside a transaction of `ganeti.store.database`, which also has the
change log, and decides what may be written.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.base import errors
from ganeti.decisions.quorum import Voters
from ganeti.model.objects import CLUSTER_KEY, TABLES, Update
from ganeti.store import features, schema, wire
from ganeti.store.backend import Row
from ganeti.store.copies import voters
from ganeti.store.schema import decoding, translated
from ganeti.store.storefile import StoreFile

#: Rows fetched at once by `Tables.scan_some`; a long read would keep the WAL growing.
SCAN_ROWS: Final = 256

#: Tables that a copy replaces; of job logs it has those of live jobs. The rest, which
#: is much, is sent afterwards.
COPIED: Final = (*TABLES, "jobs", "joblogs", "meta", "journal")
_LIVE_LOGS: Final = (
    " WHERE substr(key, 1, instr(key, '/') - 1) IN (SELECT key FROM jobs)"
)
_ALL: Final = schema.ROW_TABLES


class Tables:
    """All tables with rows.

    It has no lock: it belongs to one `ganeti.store.database.Database`, and uses its
    connection.
    """

    def __init__(self, file: StoreFile) -> None:
        """Use a file that was checked."""
        self._file = file
        self._sql = file.sql

    def read(self, table: str, key: str) -> bytes | None:
        """Return one row."""
        with translated(self._file.path):
            row = self._sql.execute(
                f"SELECT data FROM {_known(table)} WHERE key = ?",
                (key,),
            ).fetchone()
        return None if row is None else row[0]

    def scan_some(
        self, table: str, after: str | None, prefix: str
    ) -> list[tuple[str, bytes]]:
        """Return some rows with a prefix in order: all greater than ``after``."""
        conditions, values = ["key >= ?"], [prefix]
        if after is not None:
            conditions.append("key > ?")
            values.append(after)
        if prefix:
            conditions.append("key < ?")
            values.append(f"{prefix}\U0010ffff")
        with translated(self._file.path):
            return self._sql.execute(
                f"SELECT key, data FROM {_known(table)}"
                f" WHERE {' AND '.join(conditions)} ORDER BY key LIMIT {SCAN_ROWS}",
                values,
            ).fetchall()

    def first_rows(self, table: str, after: str, size: int) -> list[Row]:
        """Return rows in order from after a key on, until they have so many bytes."""
        rows: list[Row] = []
        stored = self._sql.execute(
            f"SELECT key, data FROM {_known(table)} WHERE key > ? ORDER BY key"
            f" LIMIT {SCAN_ROWS}",
            (after,),
        )
        for key, data in stored:
            rows.append((table, key, data))
            size -= len(data)
            if size <= 0:
                break
        return rows

    def updates(self, tables: Iterable[str]) -> list[Update]:
        """Return the records of some tables.

        Raises:
            ConfigurationError: a record cannot be read.
        """
        with decoding(self._file.path):
            return [
                update
                for table in tables
                for update in wire.to_updates(table, self._rows_of(table))
            ]

    def _rows_of(self, table: str) -> Iterator[tuple[str, bytes]]:
        for key, data in self._sql.execute(f"SELECT key, data FROM {table}"):
            if not isinstance(key, str) or not isinstance(data, bytes | str):
                raise errors.ConfigurationError("a row without key or data")
            yield key, data.encode() if isinstance(data, str) else data

    def copied(self) -> list[Row]:
        """Return all rows that a candidate gets with a whole copy."""
        rows: list[Row] = []
        for table in (*COPIED, *self._newer_tables()):
            which = _LIVE_LOGS if table == "joblogs" else ""
            records = self._sql.execute(f"SELECT key, data FROM {table}{which}")
            rows += [(table, *row) for row in records]
        return rows

    def remove_copied(self) -> None:
        """Remove all rows that a whole copy replaces."""
        for table in (*COPIED, *self._newer_tables()):
            self._sql.execute(f"DELETE FROM {table}")

    def remove_between(self, table: str, after: str, last: str) -> None:
        """Remove the rows after a key, up to another one."""
        self._sql.execute(
            f"DELETE FROM {_known(table)} WHERE key > ? AND key <= ?", (after, last)
        )

    def cluster(self) -> str:
        """Return the uuid of the cluster whose file this is, empty if none yet."""
        stored = self.read("cluster", CLUSTER_KEY)
        with decoding(self._file.path):
            return wire.cluster_of(stored)

    def voters(self) -> Voters:
        """Return the candidate set in force."""
        stored = self.read("meta", voters.KEY)
        with translated(self._file.path), decoding(self._file.path):
            if stored is not None:
                return voters.decode(stored)
            rows = self._sql.execute("SELECT data FROM nodes").fetchall()
            return Voters(voters.candidates_in(data for (data,) in rows))

    def features(self) -> features.Features:
        """Return the features of the stored form that are in use."""
        stored = self.read("meta", features.KEY)
        with decoding(self._file.path):
            return features.decode(stored)

    def put(self, rows: Iterable[Row]) -> None:
        """Write or remove rows."""
        for table, key, data in rows:
            name = self._table(table)
            if data is None:
                self._sql.execute(f"DELETE FROM {name} WHERE key = ?", (key,))
            else:
                self._sql.execute(
                    f"INSERT OR REPLACE INTO {name} VALUES (?, ?)",
                    (key, data),
                )

    def _newer_tables(self) -> list[str]:
        """Return the tables of a newer release, whose rows a candidate keeps."""
        rows = self._sql.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
        return [name for (name,) in rows if wire.is_table(name) and name not in _ALL]

    def _table(self, name: str) -> str:
        """Return a table to write to; one of a newer release is made."""
        if name not in _ALL:
            if not wire.is_table(name):
                raise errors.StorageError(f"{self._file.path}: unknown table {name!r}")
            self._sql.execute(f"CREATE TABLE IF NOT EXISTS {name} {schema.COLUMNS}")
        return name


def _known(table: str) -> str:
    if table not in _ALL:
        raise errors.ProgrammerError(f"store: unknown table {table}")
    return table
