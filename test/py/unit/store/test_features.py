"""Features of the stored form: used when all candidates know them, refused otherwise."""

import pytest

from fakes import cluster
from fakes.patience import until
from ganeti.base import errors
from ganeti.model.objects import Network, Update
from ganeti.store import Document, features
from ganeti.store.copies import replica
from ganeti.store.database import Database

LARGE = Network(
    name="lan",
    network="10.0.0.0/16",
    uuid="net",
    serial_no=1,
    reservations="0" * (1 << 16),
    ext_reservations="0" * (1 << 16),
)


def use_old_software(simulation, number, known=""):
    """Let a candidate's answers name some features, or none as the first release does."""
    copy = simulation[number]

    def without(method):
        def call(*args):
            answer = dict(method(*args))
            answer.pop(features.STATUS_KEY, None)
            if known:
                answer[features.STATUS_KEY] = known
            return answer

        return call

    for name in ("status", "promise"):
        setattr(copy, name, without(getattr(copy, name)))


def all_current(db):
    newest = db.snapshot().revision
    return all(c.is_current and c.revision >= newest for c in db.copies().values())


def add_large(db, number=1):
    db.commit([Update("networks", "net", LARGE.replace(serial_no=number))])


def stored(tmp_path, name="store.db"):
    """Return the stored form of the network, and the features in use."""
    db = Database(str(tmp_path / name), create=False)
    try:
        select = "SELECT data FROM networks WHERE key = 'net'"
        return db.file.sql.execute(select).fetchone()[0], db.tables.features()
    finally:
        db.close()


def test_a_feature_that_all_candidates_know_is_used_and_recorded(opener, tmp_path):
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    add_large(db)
    until("the copies", lambda: all_current(db))
    data, used = stored(tmp_path)
    assert used == {features.POOL_ROWS}
    assert len(data) < 1000
    assert stored(tmp_path, "copy1.db") == (data, used)


def test_a_feature_that_one_candidate_lacks_is_not_used_but_another_is(
    opener, simulation, tmp_path
):
    use_old_software(simulation, 1, features.COMPRESSED_NETWORKS)
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    add_large(db)
    until("the copies", lambda: all_current(db))
    data, used = stored(tmp_path)
    assert used == {features.COMPRESSED_NETWORKS}
    assert data.startswith(b"x")
    assert stored(tmp_path, "copy1.db") == (data, used)


def test_a_feature_that_a_candidate_lacks_is_not_used(opener, simulation, tmp_path):
    use_old_software(simulation, 1)
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    add_large(db)
    data, used = stored(tmp_path)
    assert used == frozenset()
    assert len(data) > 100_000


def test_a_candidate_that_lacks_a_used_feature_gets_nothing(
    opener, simulation, tmp_path
):
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    add_large(db)
    db.close()
    use_old_software(simulation, 1)
    db = opener()
    node = simulation.node(1)
    until("the reason", lambda: "upgrade the software" in db.copies()[node].trouble)
    before = simulation[1].status()["revision"]
    add_large(db, 2)
    assert simulation[1].status()["revision"] == before
    assert not db.copies()[node].is_current


def test_logs_in_the_archive_are_a_feature(opener, simulation, tmp_path):
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    assert db.may_use(features.ARCHIVED_LOGS)
    db.commit([Document("archive", "1", b"{}"), Document("archive", "1/1", None)])
    db.commit([Document("archive", "1/1", b"[]")])
    db.close()
    copy = Database(str(tmp_path / "store.db"), create=False)
    assert copy.tables.features() == {features.ARCHIVED_LOGS}
    copy.close()
    use_old_software(simulation, 1)
    db = opener()
    node = simulation.node(1)
    until("the reason", lambda: "upgrade the software" in db.copies()[node].trouble)


def test_logs_do_not_move_while_a_candidate_cannot_read_them(opener, simulation):
    use_old_software(simulation, 1)
    db = opener()
    db.commit(cluster.big(3, 2))
    until("the copies", lambda: all_current(db))
    assert not db.may_use(features.ARCHIVED_LOGS)


def test_a_copy_that_needs_a_newer_release_has_no_master_here(opener, tmp_path):
    db = opener()
    db.commit([Document("meta", features.KEY, b'["from-the-future"]')])
    before = db.term
    db.close()
    with pytest.raises(errors.ConfigurationError, match="uses from-the-future, which"):
        opener()
    kept = Database(str(tmp_path / "store.db"), create=False)
    assert kept.position().term == before
    kept.close()


def test_the_status_names_the_features_of_this_release(tmp_path):
    copy = replica.Replica(str(tmp_path / "none.db"))
    assert features.from_status(copy.status()) == features.KNOWN
    assert features.from_status({}) == frozenset()


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"\xff"])
def test_a_damaged_list_of_features_is_named(data):
    with pytest.raises(errors.ConfigurationError, match="features of the store"):
        features.decode(data)
