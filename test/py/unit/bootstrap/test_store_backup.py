"""Backup and restoration of a store in a file: what comes back, and what does not."""

import contextlib
import os
import pathlib
import sqlite3
import stat

import pytest

from fakes import clusters
from fakes.store import updates
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.bootstrap import store_access, store_backup
from ganeti.decisions.jobs import records
from ganeti.decisions.jobs.records import Status
from ganeti.master.config import ssconf
from ganeti.model.objects import CLUSTER_KEY, Update
from ganeti.store import Document, storefile

CLOCK = SystemClock()


def job(number, status):
    op = records.JobOp(input=b'{"OP_ID": "OP_TEST_DELAY"}', status=status)
    return Document(
        "jobs", str(number), records.encode_job(records.Job(id=number, ops=(op,)))
    )


@pytest.fixture
def site(tmp_path, monkeypatch):
    actual = Site(tmp_path)

    @contextlib.contextmanager
    def opened(_paths, _clock, node):
        # Never beside a running master.
        assert actual.done == ["stop"]
        engine = actual.open(node)
        try:
            yield engine
        finally:
            engine.close()

    monkeypatch.setattr(store_access, "opened", opened)
    monkeypatch.setattr(store_backup, "Services", lambda *_args: actual)
    return actual


class Site:
    """The master of a cluster of three; in place of its daemons, notes."""

    def __init__(self, folder):
        self.done, self.lines, self.cannot_stop = [], [], False
        snapshot = clusters.snapshot(nodes=3)
        self.own = snapshot.cluster.master_node
        name = snapshot.nodes[self.own].name
        self.paths = Paths(root=str(folder / name), hostname=name)
        self.file = str(folder / "backup")
        os.makedirs(self.paths.data_dir)
        self.commit(
            *updates(snapshot),
            Document("meta", "serial", b"7"),
            job(6, Status.SUCCESS),
            job(7, Status.QUEUED),
            Document("archive", "5", b"{}"),
        )

    def open(self, node=""):
        return store.open_master(
            self.paths.store_db, replicate=None, clock=CLOCK, node=node or self.own
        )

    def commit(self, *changes):
        engine = self.open()
        engine.commit(changes)
        engine.close()

    def start_master(self):
        self.done.append("start")

    def stop_master(self):
        if self.cannot_stop:
            raise errors.OpExecError("the master daemon does not end")
        self.done.append("stop")

    def back_up(self):
        return store_backup.back_up(self.paths, self.file, CLOCK)

    def restore(self):
        store_backup.restore(
            self.paths, None, CLOCK, self.file, feedback=self.lines.append
        )

    def read(self, table):
        engine = self.open()
        try:
            return dict(engine.scan(table)), engine.snapshot()
        finally:
            engine.close()


def test_a_backup_is_a_file_for_root_with_everything(site):
    engine = site.open()  # it is made while the master runs
    done = site.back_up()
    engine.close()
    assert done.revision == engine.snapshot().revision
    assert len(done.snapshot.nodes) == 3
    assert stat.S_IMODE(os.stat(site.file).st_mode) == 0o600
    assert not [
        name for name in os.listdir(os.path.dirname(site.file)) if ".new" in name
    ]
    with pytest.raises(errors.OpPrereqError, match="exists already"):
        site.back_up()


def test_the_configuration_comes_back_and_numbers_do_not(site):
    site.back_up()
    before = site.read("jobs")[1]
    lost = next(key for key in before.nodes if key != site.own)
    renamed = before.cluster.replace(cluster_name="other", serial_no=90)
    site.commit(
        Update("nodes", lost, None),
        Update("cluster", CLUSTER_KEY, renamed),
        Document("meta", "serial", b"11"),
        Document("jobs", "6", None),
        Document("jobs", "7", None),
        Document("archive", "5", None),
        job(11, Status.SUCCESS),
    )
    late = site.read("jobs")[1]
    site.restore()
    jobs, after = site.read("jobs")
    assert after.nodes == before.nodes
    assert after.cluster.cluster_name == before.cluster.cluster_name
    assert after.cluster.serial_no > late.cluster.serial_no
    assert after.revision > late.revision
    # Queued when the backup was made: it would be done again.
    assert set(jobs) == {"6", "11"}
    assert set(site.read("archive")[0]) == {"5"}
    assert site.read("meta")[0]["serial"] == b"11"
    assert site.done == ["stop", "start"]
    assert [line for line in site.lines if line.endswith("jobs 7")]


def test_a_lost_store_is_replaced_by_the_backup(site):
    site.back_up()
    before = site.read("jobs")[1]
    os.unlink(site.paths.store_db)
    site.restore()
    assert site.read("jobs")[1].nodes == before.nodes


def test_what_is_no_backup_of_this_cluster_is_refused(site):
    site.back_up()
    present = site.read("jobs")[1].cluster
    site.commit(Update("cluster", CLUSTER_KEY, present.replace(uuid="another")))
    with pytest.raises(
        errors.OpPrereqError, match="wanted a backup of cluster another"
    ):
        site.restore()
    with open(site.file, "r+b") as stream:
        stream.truncate(5000)
    with pytest.raises(errors.OpPrereqError, match="no backup of a store"):
        site.restore()
    assert not site.done


def test_a_backup_needs_a_directory_and_leaves_nothing_where_it_fails(site):
    site.file = f"{site.file}.d/backup"
    with pytest.raises(errors.OpPrereqError, match="no such directory"):
        site.back_up()
    os.unlink(site.paths.store_db)
    site.file = os.path.dirname(site.file).removesuffix(".d")
    with pytest.raises(errors.GenericError):
        site.back_up()
    folder = os.path.dirname(site.file)
    assert not [name for name in os.listdir(folder) if name.startswith("backup")]


def test_a_backup_of_an_empty_store_is_refused(site):
    engine = site.open()
    engine.commit([Update("cluster", CLUSTER_KEY, None)])
    engine.close()
    with pytest.raises(errors.OpPrereqError, match="it has no cluster"):
        site.back_up()
    assert not os.path.exists(site.file)


def test_nothing_is_written_beside_a_master_that_does_not_end(site):
    site.back_up()
    before = site.read("jobs")[1]
    site.commit(Update("nodes", clusters.node_uuid(3), None))
    changed = site.read("jobs")[1]
    site.cannot_stop = True
    with pytest.raises(errors.OpExecError, match="does not end"):
        site.restore()
    assert site.read("jobs")[1].nodes == changed.nodes != before.nodes


def test_a_node_that_the_backup_does_not_know_as_candidate_restores_nothing(site):
    own = site.read("jobs")[1].nodes[site.own]
    site.commit(Update("nodes", site.own, own.replace(master_candidate=False)))
    site.back_up()
    site.commit(Update("nodes", site.own, own))
    with pytest.raises(errors.OpPrereqError, match=own.name):
        site.restore()
    assert site.done == []


def test_certificates_that_were_renewed_since_stay(site):
    cluster = site.read("jobs")[1].cluster
    old = {clusters.node_uuid(1): "OLD", clusters.node_uuid(2): "GONE"}
    site.commit(Update("cluster", CLUSTER_KEY, cluster.replace(candidate_certs=old)))
    site.back_up()
    new = {clusters.node_uuid(1): "NEW"}
    site.commit(Update("cluster", CLUSTER_KEY, cluster.replace(candidate_certs=new)))
    site.restore()
    assert site.read("jobs")[1].cluster.candidate_certs == {**old, **new}


def test_only_candidates_of_the_backup_keep_their_certificates(site):
    before = site.read("jobs")[1]
    ordinary = before.nodes[clusters.node_uuid(3)].replace(master_candidate=False)
    site.commit(Update("nodes", ordinary.uuid, ordinary))
    site.back_up()
    added = clusters.node(4)
    certs = {clusters.node_uuid(number): f"CERT {number}" for number in (1, 2, 3)}
    certs |= {added.uuid: "CERT 4", f"{added.uuid}{ssh.CRYPTO_NEXT}": "NEXT 4"}
    certs[f"{site.own}{ssh.CRYPTO_NEXT}"] = "NEXT 1"
    cluster = before.cluster.replace(candidate_certs=certs)
    site.commit(
        Update("nodes", ordinary.uuid, ordinary.replace(master_candidate=True)),
        Update("nodes", added.uuid, added),
        Update("cluster", CLUSTER_KEY, cluster),
    )
    site.restore()
    after = site.read("jobs")[1]
    assert after.cluster.candidate_certs == {
        clusters.node_uuid(1): "CERT 1",
        f"{site.own}{ssh.CRYPTO_NEXT}": "NEXT 1",
        clusters.node_uuid(2): "CERT 2",
    }
    assert added.uuid not in ssconf.ssconf_values(after)["master_candidates_certs"]


def lose(site):
    """Back up a store with a log of an unfinished job, use more numbers, lose it."""
    site.commit(Document("joblogs", "7/0", b"[2]"), Document("joblogs", "6/0", b"[1]"))
    site.back_up()
    os.unlink(site.paths.store_db)


def check_lost(site):
    jobs, _snapshot = site.read("jobs")
    assert set(jobs) == {"6"}
    assert set(site.read("joblogs")[0]) == {"6/0"}
    assert int(site.read("meta")[0]["serial"]) >= 10_007
    assert [line for line in site.lines if line.endswith("jobs 7")]
    assert os.listdir(site.paths.data_dir) == ["store.db"]


def test_a_lost_store_may_have_done_jobs_and_used_later_numbers(site):
    lose(site)
    site.restore()
    check_lost(site)
    assert site.done == ["stop", "start"]


def test_a_repeated_restoration_knows_that_the_store_was_lost(site, monkeypatch):
    lose(site)

    def fail(*_args, **_options):
        raise errors.StorageError("no majority")

    with monkeypatch.context() as patched:
        patched.setattr(store_backup, "_write", fail)
        with pytest.raises(errors.OpExecError, match="This can be repeated"):
            site.restore()
    site.done.clear()
    site.restore()
    check_lost(site)


def test_jobs_of_a_store_that_is_there_stay(site):
    site.back_up()
    site.restore()
    assert set(site.read("jobs")[0]) == {"6", "7"}
    assert int(site.read("meta")[0]["serial"]) == 7


def test_logs_come_with_their_jobs_and_archived_jobs_stay_archived(site):
    site.commit(
        Document("joblogs", "6/0", b"[1]"),
        Document("joblogs", "7/0", b"[2]"),
        job(8, Status.ERROR),
    )
    site.back_up()
    site.commit(
        Document("jobs", "6", None),
        Document("joblogs", "6/0", None),
        Document("joblogs", "7/0", None),
        Document("jobs", "7", None),
        Document("jobs", "8", None),
        Document("archive", "8", b"{}"),
    )
    site.restore()
    assert set(site.read("jobs")[0]) == {"6"}
    assert site.read("joblogs")[0] == {"6/0": b"[1]"}
    assert set(site.read("archive")[0]) == {"5", "8"}


def test_a_failed_restoration_starts_no_master_and_can_be_repeated(site, monkeypatch):
    site.back_up()
    site.commit(Update("nodes", clusters.node_uuid(3), None))

    def fail(*_args, **_options):
        raise errors.StorageError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(store_backup, "_write", fail)
        with pytest.raises(errors.OpExecError, match=r"disk full\. This can be repeat"):
            site.restore()
    assert site.done == ["stop"]
    site.done.clear()
    site.restore()
    assert clusters.node_uuid(3) in site.read("jobs")[1].nodes


def spoil(path):
    """Overwrite all pages but the first one."""
    with open(path, "r+b") as stream:
        for start in range(4096, os.path.getsize(path), 4096):
            stream.seek(start)
            stream.write(b"\xff" * 4096)


def test_a_damaged_store_is_kept_and_replaced_by_the_backup(site):
    site.back_up()
    before = site.read("jobs")[1]
    spoil(site.paths.store_db)
    site.restore()
    assert site.read("jobs")[1].nodes == before.nodes
    aside = f"{site.paths.store_db}.damaged"
    assert os.path.exists(aside)
    assert f"{site.paths.store_db}: damaged" in site.lines[1]
    assert aside in site.lines[1]


class Killed(BaseException):
    pass


def test_a_restoration_killed_in_its_copy_keeps_the_damaged_store(site, monkeypatch):
    site.back_up()
    spoil(site.paths.store_db)
    damaged = pathlib.Path(site.paths.store_db).read_bytes()

    def half(source, path):
        content = pathlib.Path(source.path).read_bytes()
        pathlib.Path(path).write_bytes(content[: len(content) // 2])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(storefile.StoreFile, "save_as", half)
        with pytest.raises(Killed):
            site.restore()
    # A killed process removes nothing.
    pathlib.Path(f"{site.paths.store_db}.new").write_bytes(damaged[:8192])
    site.done.clear()
    site.restore()
    assert pathlib.Path(f"{site.paths.store_db}.damaged").read_bytes() == damaged
    assert set(site.read("jobs")[0]) == {"6"}
    assert sorted(os.listdir(site.paths.data_dir)) == ["store.db", "store.db.damaged"]


def test_a_backup_of_a_damaged_store_names_the_store(site):
    spoil(site.paths.store_db)
    with pytest.raises(errors.ConfigurationError) as caught:
        site.back_up()
    assert str(caught.value).startswith(f"{site.paths.store_db}: damaged")
    assert not [
        name
        for name in os.listdir(os.path.dirname(site.file))
        if name.startswith("backup")
    ]


def test_a_store_of_a_newer_release_is_not_replaced(site):
    site.back_up()
    with contextlib.closing(sqlite3.connect(site.paths.store_db)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(errors.OpPrereqError, match="version 99"):
        site.restore()
    assert site.done == []


def test_a_backup_of_another_cluster_is_refused_without_a_store(site):
    site.back_up()
    os.unlink(site.paths.store_db)
    uuid = clusters.node_uuid(77)
    pair = authority.issue_with_key(
        authority.create(), name="n1", uuid=uuid, serial=1, validity_s=3600
    )
    files.write_file(site.paths.client_pem, pair.pem)
    with pytest.raises(errors.OpPrereqError, match=f"uuid {uuid}.*another cluster"):
        site.restore()
    assert site.done == []
