"""Files of earlier and of newer releases, and the steps between versions.

``test/data/store`` has files of earlier releases as SQL: version 1, and a version 1 with
the columns of version 2, which one release added without a number.
"""

import pathlib
import sqlite3

import pytest

from fakes import clusters
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.store import schema
from ganeti.store.database import Database

STORED = pathlib.Path(__file__).parents[3] / "data" / "store"
OLD = sorted(path.stem for path in STORED.glob("*.sql"))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


def unpack(name, path):
    db = sqlite3.connect(path)
    db.executescript((STORED / f"{name}.sql").read_text())
    db.close()


def columns(path):
    db = sqlite3.connect(path)
    names = {row[1] for row in db.execute("PRAGMA table_info(state)")}
    db.close()
    return names


def test_steps_have_consecutive_numbers():
    numbers = [step.version for step in schema.STEPS]
    assert numbers == list(range(2, schema.VERSION + 1))


@pytest.mark.parametrize("name", OLD)
def test_an_old_file_keeps_its_contents(name, path):
    unpack(name, path)
    opened = store.open_master(path, replicate=None, clock=SystemClock())
    try:
        expected = clusters.snapshot(nodes=2, instances=1)
        actual = opened.snapshot()
        assert dict(actual.instances) == dict(expected.instances)
        assert dict(actual.nodes) == dict(expected.nodes)
        assert opened.read("archive", "3") == b'{"id":3}'
        assert opened.term.number == 5
    finally:
        opened.close()
    again = Database(path, create=False)
    # Version 1 has no column for it; its change log has groups of term 1.
    assert again.position().written == (1 if name == "version-1" else 4)
    again.close()


@pytest.mark.parametrize("name", OLD)
def test_an_old_file_has_the_layout_of_a_new_one(name, path, tmp_path):
    unpack(name, path)
    Database(path, create=False).close()
    new = str(tmp_path / "new.db")
    Database(new, create=True).close()
    assert columns(path) == columns(new)
    db = sqlite3.connect(path)
    assert schema.version_of(db) == schema.VERSION
    db.close()


def fail(_db):
    raise sqlite3.OperationalError("disk I/O error")


def test_a_failing_step_leaves_the_old_file(path, monkeypatch):
    unpack("version-1", path)
    before = columns(path)
    broken = (*schema.STEPS, schema.Step(schema.VERSION + 1, "fails", fail))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema.upgrade, "__defaults__", (broken,))
    with pytest.raises(errors.StorageError, match="disk I/O error"):
        Database(path, create=False)
    assert columns(path) == before
    monkeypatch.undo()
    Database(path, create=False).close()


def raise_version(path, breaks):
    """Let a newer release use a file."""
    db = sqlite3.connect(path, isolation_level=None)
    step = schema.Step(
        schema.VERSION + 1,
        "more",
        lambda db: db.execute("ALTER TABLE state ADD COLUMN more TEXT DEFAULT ''"),
        breaks,
    )
    db.execute("BEGIN")
    assert schema.upgrade(db, (*schema.STEPS, step)) == [step]
    db.execute("COMMIT")
    db.close()


def test_a_file_after_a_step_that_breaks_nothing_can_still_be_used(path):
    Database(path, create=True).close()
    raise_version(path, breaks=False)
    used = Database(path, create=False)
    used.promise(Term(3, "n1"))
    assert used.position().term == Term(3, "n1")
    used.close()
    reader = Database(path, create=False, read_only=True)
    reader.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_needs_a_newer_release_is_refused(path, read_only):
    Database(path, create=True).close()
    raise_version(path, breaks=True)
    newer = schema.VERSION + 1
    text = f"needs software that knows version {newer} .* install the release"
    with pytest.raises(errors.ConfigurationError, match=text):
        Database(path, create=False, read_only=read_only)


def test_a_reader_does_not_change_an_old_file(path):
    unpack("version-1", path)
    before = columns(path)
    with pytest.raises(errors.ConfigurationError, match="the daemon that writes"):
        Database(path, create=False, read_only=True)
    assert columns(path) == before


def test_a_database_of_another_program_is_refused_and_gets_no_tables(path):
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE state (id); PRAGMA application_id = 7")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(errors.ConfigurationError, match="not a store of Ganeti"):
        Database(path, create=False)
    db = sqlite3.connect(path)
    assert [row[0] for row in db.execute("SELECT name FROM sqlite_master")] == ["state"]
    db.close()


def breaking(version, *, revert=True):
    def undo(db):
        db.execute(f"DROP TABLE extra{version}")

    return schema.Step(
        version,
        f"table {version}",
        lambda db: db.execute(f"CREATE TABLE extra{version} (id INTEGER)"),
        breaks=True,
        revert=undo if revert else None,
    )


def versions(db):
    return schema.version_of(db), db.execute("PRAGMA user_version").fetchone()[0]


def tables(db):
    return {row[0] for row in db.execute("SELECT name FROM sqlite_master")}


@pytest.fixture
def db(path):
    made = sqlite3.connect(path, isolation_level=None)
    schema.create(made)
    yield made
    made.close()


def test_steps_are_gone_back_in_the_opposite_order_and_taken_again(db):
    harmless = schema.Step(schema.VERSION + 2, "nothing", lambda _db: None)
    first, last = breaking(schema.VERSION + 1), breaking(schema.VERSION + 3)
    steps = (*schema.STEPS, first, harmless, last)
    schema.upgrade(db, steps)
    assert versions(db) == (last.version, last.version)
    assert schema.downgrade(db, harmless.version, steps) == [last]
    assert versions(db) == (harmless.version, first.version)
    assert schema.downgrade(db, schema.VERSION, steps) == [harmless, first]
    assert versions(db) == (schema.VERSION, 1)
    assert not {name for name in tables(db) if name.startswith("extra")}
    schema.check(db, "file")
    assert schema.upgrade(db, steps) == [first, harmless, last]
    assert versions(db) == (last.version, last.version)


def test_a_step_without_a_way_back_is_named_and_nothing_is_changed(db):
    first = breaking(schema.VERSION + 1, revert=False)
    last = breaking(schema.VERSION + 2)
    steps = (*schema.STEPS, first, last)
    schema.upgrade(db, steps)
    assert schema.irreversible(schema.VERSION, steps) == [first]
    assert schema.irreversible(first.version, steps) == []
    with pytest.raises(errors.ConfigurationError, match=f"step {first.version} of the"):
        schema.downgrade(db, schema.VERSION, steps)
    assert versions(db) == (last.version, last.version)
    assert f"extra{last.version}" in tables(db)


def test_a_file_of_this_or_an_older_version_is_not_gone_back(db):
    assert schema.downgrade(db, schema.VERSION) == []
    assert schema.downgrade(db, schema.VERSION + 5) == []


def test_the_present_steps_can_be_gone_back_and_taken_again(path):
    unpack("version-1", path)
    engine = store.open_master(path, replicate=None, clock=SystemClock())
    before = dict(engine.snapshot().nodes)
    engine.close()
    assert len(before) == 2
    for version in range(1, schema.VERSION):
        opened = Database(path, create=False)
        opened.file.downgrade(version)
        opened.close()
        again = store.open_master(path, replicate=None, clock=SystemClock())
        assert dict(again.snapshot().nodes) == before
        again.close()
