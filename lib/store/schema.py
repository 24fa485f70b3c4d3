"""SQLite files of a store: the layout of the tables, its versions, and failures.

Version 1 is the layout of the first release. Each later version has one step here. A
file is brought to the newest version when a writer opens it, in one transaction. A new
file goes through the same steps, so both end with the same layout.

``state.schema`` is the version of a file. ``user_version`` is the oldest version whose
software can use the file; only a step that breaks older software raises it. So the
software of an earlier release, to which an administrator may go back, can use a file
after any other step.

`downgrade` goes the same steps back, for ``gnt-cluster upgrade`` to an earlier release.
A step that breaks older software can be gone back only if it has ``revert``.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.model.objects import TABLES
from ganeti.store.backend import NO_HISTORY
from ganeti.store.base import DOCUMENT_TABLES

#: Marks the file as ours ("gnti").
APPLICATION_ID: Final = 0x676E7469
#: Tables with rows that are part of the history.
ROW_TABLES: Final = (*TABLES, *DOCUMENT_TABLES)
COLUMNS: Final = "(key TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID"


class VersionError(errors.ConfigurationError):
    """A file is sound, but needs software of another release."""


class Step(NamedTuple):
    """The way from one version to the next.

    Attributes:
        version: the version afterwards.
        summary: for the log, such as ``columns for owners of terms``.
        apply: changes the tables, inside a transaction. Software of a release before
            the step may have used the file afterwards, and it may be applied to a file
            that has a part of it.
        breaks: older software would damage the file, or fail on it.
        revert: undoes ``apply``, inside a transaction; None if nothing needs to be
            undone, or nothing can.
    """

    version: int
    summary: str
    apply: Callable[[sqlite3.Connection], None]
    breaks: bool = False
    revert: Callable[[sqlite3.Connection], None] | None = None


def _add_terms(db: sqlite3.Connection) -> None:
    """Add who owns a term, which term wrote last, and where the archive ends."""
    known = {row[1] for row in db.execute("PRAGMA table_info(state)")}
    for name, kind in (
        ("owner", "TEXT NOT NULL DEFAULT ''"),
        ("written", "INTEGER NOT NULL DEFAULT -1"),
        ("master", "TEXT NOT NULL DEFAULT ''"),
        ("archive", "TEXT NOT NULL DEFAULT ''"),
        ("schema", "INTEGER NOT NULL DEFAULT 1"),
    ):
        if name not in known:
            db.execute(f"ALTER TABLE state ADD COLUMN {name} {kind}")
    db.execute(
        "UPDATE state SET written = coalesce((SELECT term FROM changelog"
        " ORDER BY revision DESC LIMIT 1), term) WHERE written < 0"
    )


def _add_replaced(db: sqlite3.Connection) -> None:
    """Add the highest numbers that a replaced history has had here."""
    known = {row[1] for row in db.execute("PRAGMA table_info(state)")}
    if "replaced" not in known:
        db.execute("ALTER TABLE state ADD COLUMN replaced TEXT NOT NULL DEFAULT '[]'")


def _add_journal(db: sqlite3.Connection) -> None:
    """Add the table of the decision journal.

    A candidate of an earlier release made it when the first entry was sent to it.
    """
    db.execute(f"CREATE TABLE IF NOT EXISTS journal {COLUMNS}")


#: In order, without gaps, beginning with version 2.
STEPS: Final = (
    Step(2, "owners of terms, end of the archive", _add_terms),
    Step(3, "numbers of replaced histories", _add_replaced),
    Step(4, "the decision journal", _add_journal),
)
#: The version that this release writes.
VERSION: Final = 1 + len(STEPS)


def create(db: sqlite3.Connection) -> None:
    """Create the tables of an empty file, inside a transaction."""
    for table in ROW_TABLES:
        db.execute(f"CREATE TABLE {table} {COLUMNS}")
    db.execute(
        "CREATE TABLE changelog (revision INTEGER PRIMARY KEY, base INTEGER NOT NULL,"
        " term INTEGER NOT NULL, parent BLOB NOT NULL, digest BLOB NOT NULL,"
        " payload BLOB NOT NULL)"
    )
    db.execute(
        "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER"
        " NOT NULL, term INTEGER NOT NULL, digest BLOB NOT NULL)"
    )
    db.execute(
        "INSERT INTO state (id, revision, term, digest) VALUES (0, 0, 0, ?)",
        (NO_HISTORY,),
    )
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    upgrade(db)


def check(db: sqlite3.Connection, path: str) -> None:
    """Check that this release can use a file.

    Raises:
        ConfigurationError: it is no store.
        VersionError: it needs a newer release.
    """
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise errors.ConfigurationError(f"{path}: not a store of Ganeti")
    wanted = _pragma(db, "user_version")
    if not 1 <= wanted <= VERSION:
        raise VersionError(
            f"{path}: needs software that knows version {wanted} of the store, this"
            f" release knows the versions 1 to {VERSION}: install the release that"
            " wrote it"
        )


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of a file.

    Raises:
        ConfigurationError: it has none, so the file is damaged.
    """
    columns = {row[1] for row in db.execute("PRAGMA table_info(state)")}
    if "schema" not in columns:
        return 1
    row = db.execute("SELECT schema FROM state").fetchone()
    if row is None or not isinstance(row[0], int):
        raise errors.ConfigurationError("state: no version")
    return row[0]


def upgrade(db: sqlite3.Connection, steps: tuple[Step, ...] = STEPS) -> list[Step]:
    """Bring a file to the newest version, inside a transaction.

    Returns:
        The steps that were taken; none for a file of this or of a newer release.
    """
    current = version_of(db)
    todo = [step for step in steps if step.version > current]
    for step in todo:
        step.apply(db)
        db.execute("UPDATE state SET schema = ?", (step.version,))
        if step.breaks:
            db.execute(f"PRAGMA user_version = {step.version}")
    return todo


def downgrade(
    db: sqlite3.Connection, version: int, steps: tuple[Step, ...] = STEPS
) -> list[Step]:
    """Bring a file back to an earlier version, inside a transaction.

    Returns:
        The steps that were gone back, the newest first.

    Raises:
        ConfigurationError: a step cannot be gone back; nothing was changed.
    """
    present = version_of(db)
    back = [step for step in reversed(steps) if version < step.version <= present]
    for step in irreversible(version, tuple(back)):
        raise errors.ConfigurationError(
            f"step {step.version} of the store ({step.summary}) cannot be gone back"
        )
    for step in back:
        if step.revert is not None:
            step.revert(db)
    if back:
        db.execute("UPDATE state SET schema = ?", (version,))
        kept = (s.version for s in steps if s.breaks and s.version <= version)
        db.execute(f"PRAGMA user_version = {max(kept, default=1)}")
    return back


def irreversible(version: int, steps: tuple[Step, ...] = STEPS) -> list[Step]:
    """Return the steps after a version that cannot be gone back."""
    return [s for s in steps if s.version > version and s.breaks and s.revert is None]


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


FILE_MODE: Final = 0o640
#: SQLite's primary error codes for a file whose contents are wrong.
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


@contextlib.contextmanager
def damage_of(path: str) -> Iterator[None]:
    """Turn SQLite's errors about damage into a ConfigurationError about a file."""
    try:
        yield
    except sqlite3.Error as err:
        if _is_damage(err):
            raise errors.ConfigurationError(f"{path}: damaged: {err}") from err
        raise


@contextlib.contextmanager
def decoding(path: str) -> Iterator[None]:
    """Name the file in errors about records that cannot be decoded.

    Raises:
        ConfigurationError: a record of the file cannot be read.
    """
    try:
        yield
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{path}: damaged: {err}") from err


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours.

    Raises:
        ConfigurationError: the file is damaged.
        StorageError: the disk failed.
    """
    try:
        with damage_of(path):
            yield
    except sqlite3.Error as err:
        raise errors.StorageError(f"{path}: {err}") from err
    except (OSError, UnicodeDecodeError) as err:
        raise errors.StorageError(f"{path}: {err}") from err


def make_file(path: str) -> None:
    """Make the file unless it is there.

    Its group may read it, whatever the umask: that of the directory, so that an
    administrator decides who follows the store. SQLite gives the companions of the file
    the same mode and group.

    One that is there stays closed: closing it would end all locks that this process
    has on it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        return
    try:
        with contextlib.suppress(PermissionError):
            os.fchown(fd, -1, os.stat(os.path.dirname(path) or ".").st_gid)
        os.fchmod(fd, FILE_MODE)
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Remove a file with its companions, if it is there.

    The companions go first: a log without its file would be read into the next file of
    that name.
    """
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def set_aside(path: str, aside: str) -> None:
    """Give a file and its companions another name, in place of what has that name.

    Raises:
        OSError: the directory cannot be written.
    """
    remove_file(aside)
    # The companions go last: without them, the newest commits of the file are lost.
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")


def state_of(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written or replaced, None if it is gone."""
    try:
        return files.version(path)
    except OSError:
        return None
