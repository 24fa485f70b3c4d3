"""Sweeps of disks without a record: which calls nodes get, and when they are repeated."""

import logging

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.patience import until
from fakes.rpc import FakeRunner, failure
from fakes.store import FakeStore
from ganeti.base import errors
from ganeti.daemons.masterd.duties import leftover_disks
from ganeti.master import config
from ganeti.master.config.disk_notes import DiskNote, MadeDisk
from ganeti.model.objects import Disk, Update

N1, N2, GONE = clusters.node_uuid(1), clusters.node_uuid(2), clusters.node_uuid(9)
DIRECTORY = "/srv/ganeti/file-storage/web1"


def disk(number):
    return Disk(
        dev_type="file",
        logical_id=("loop", f"{DIRECTORY}/d{number}"),
        size=1024,
        uuid=f"d{number}",
        serial_no=1,
        iv_name=f"disk/{number}",
    )


class Clock(FakeClock):
    """Ends the sweeps after some pauses."""

    def __init__(self, count):
        super().__init__()
        self.pauses, self.count, self.stop = [], count, None

    def wait(self, event, timeout_s):
        self.pauses.append(timeout_s)
        if len(self.pauses) == self.count:
            self.stop()
        return super().wait(event, timeout_s)


class Site:
    """A master whose job 7 left a note of one disk on two nodes."""

    def __init__(self, pauses=1, *, nodes=(N1, N2), ended=(7,)):
        self.store = FakeStore(clusters.snapshot(nodes=2))
        self.config = config.Config(self.store, FakeClock())
        note = DiskNote("web1", (MadeDisk(disk(0), nodes),), ((DIRECTORY, N1),))
        self.config.disk_notes.add("7/0", note)
        self.config.disk_notes.leave("7/0")
        self.rpc = FakeRunner(
            self.config.snapshot,
            {"blockdev_remove": None, "file_storage_dir_remove": None},
        )
        self.clock = Clock(pauses)
        self.leftover = leftover_disks.LeftoverDisks(
            self.config.disk_notes,
            self.config.snapshot,
            self.rpc,
            self.clock,
            has_ended=lambda job: job in ended,
        )
        self.clock.stop = self.leftover.stop

    def run(self):
        self.leftover.start()
        until("the last pause", lambda: len(self.clock.pauses) == self.clock.count)
        return self.clock.pauses

    def removed_on(self):
        return [node for node, _args in self.rpc.called("blockdev_remove")]

    def notes(self):
        return list(self.config.disk_notes.left())


def test_a_clean_sweep_waits_for_news_without_a_limit():
    site = Site()
    assert site.run() == [None]
    assert site.removed_on() == [N1, N2]
    assert site.rpc.called("file_storage_dir_remove") == [(N1, (DIRECTORY,))]
    # Jobs that make disks wait for this call.
    assert site.rpc.limits["file_storage_dir_remove"] == {10.0}
    assert site.notes() == []


@pytest.mark.parametrize("procedure", ["blockdev_remove", "file_storage_dir_remove"])
def test_a_node_that_fails_is_tried_again_ever_less_often(procedure, caplog):
    site = Site(pauses=8)
    site.rpc.script[procedure] = failure("no answer")
    with caplog.at_level(logging.WARNING):
        assert site.run() == [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 60.0]
    assert site.notes() == ["disks/7/0/0"]
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == len(set(texts))
    assert all("no answer" in text and DIRECTORY in text for text in texts)
    if procedure == "blockdev_remove":
        assert f"disk {DIRECTORY}/d0 of instance web1, which has no record" in texts[0]
        # Its disks may still be there.
        assert site.rpc.called("file_storage_dir_remove") == []


def test_a_removed_node_took_its_disks_with_it():
    site = Site(nodes=(GONE, N2))
    assert site.leftover.sweep()
    assert site.removed_on() == [N2]
    assert site.notes() == []


def test_a_job_that_goes_on_keeps_its_disks():
    site = Site(ended=())
    assert not site.leftover.sweep()
    assert site.rpc.calls == []
    assert site.notes() == ["disks/7/0/0"]


@pytest.mark.parametrize("changes", [{}, {"uuid": "other"}])
def test_a_disk_with_a_record_stays_with_its_directory(changes):
    site = Site()
    record = disk(0).replace(**changes)
    site.store.commit([Update("disks", record.uuid, record)])
    assert site.leftover.sweep()
    assert site.rpc.calls == []
    assert site.notes() == []


def test_a_directory_that_another_job_uses_stays():
    site = Site()
    note = DiskNote("web1", (), ((DIRECTORY, N1),))
    site.config.disk_notes.add("8/0", note)
    assert site.leftover.sweep()
    assert site.removed_on() == [N1, N2]
    assert site.rpc.called("file_storage_dir_remove") == []


def test_a_directory_of_two_notes_goes_with_the_second_of_them():
    """The store may still have the first note when the second one is swept."""
    site = Site()
    notes, removals = site.config.disk_notes, []
    notes.add("7/1", DiskNote("web1", (), ((DIRECTORY, N1),)))
    notes.leave("7/1")
    site.store.commit_soon = removals.append
    assert site.leftover.sweep()
    assert site.rpc.called("file_storage_dir_remove") == [(N1, (DIRECTORY,))]
    for changes in removals:
        site.store.commit(changes)
    assert site.notes() == []


def test_after_a_stop_no_removal_begins():
    site = Site()
    site.leftover.stop()
    assert not site.leftover.sweep()
    assert site.rpc.calls == []


def test_of_two_disks_the_one_with_a_record_stays():
    site = Site()
    note = DiskNote("web1", (MadeDisk(disk(0), (N1,)), MadeDisk(disk(1), (N2,))), ())
    site.config.disk_notes.add("7/1", note)
    site.config.disk_notes.leave("7/1")
    site.store.commit([Update("disks", "d0", disk(0))])
    assert site.leftover.sweep()
    assert site.removed_on() == [N2]


@pytest.mark.parametrize("kind", ["file", "sharedfile"])
def test_a_directory_with_a_disk_of_an_instance_stays(kind):
    site = Site()
    record = disk(5).replace(dev_type=kind)
    site.store.commit([Update("disks", record.uuid, record)])
    assert site.leftover.sweep()
    assert site.removed_on() == [N1, N2]
    assert site.rpc.called("file_storage_dir_remove") == []


def test_a_disk_that_one_node_keeps_is_asked_for_on_the_other_all_the_same():
    site = Site()
    site.rpc.script["blockdev_remove"] = lambda node, _args: (
        failure("busy") if node == N1 else None
    )
    assert not site.leftover.sweep()
    assert site.removed_on() == [N1, N2]
    site.rpc.script["blockdev_remove"] = None
    assert site.leftover.sweep()
    assert site.notes() == []


def test_a_directory_of_a_removed_node_is_gone():
    site = Site()
    note = DiskNote("web1", (), (("/srv/other", GONE), (DIRECTORY, N1)))
    site.config.disk_notes.add("7/1", note)
    site.config.disk_notes.leave("7/1")
    assert site.leftover.sweep()
    assert {node for node, _ in site.rpc.called("file_storage_dir_remove")} == {N1}
    assert site.notes() == []


@pytest.mark.parametrize("error", [errors.StorageError("full"), KeyError("bug")])
def test_the_thread_goes_on_after_an_error(error, caplog):
    site = Site(pauses=2)
    acts = [error]

    def remove(_node, _args):
        if acts:
            raise acts.pop()

    site.rpc.script["blockdev_remove"] = remove
    assert site.run() == [1.0, None]
    assert site.notes() == []
    assert str(error) in caplog.text


def test_a_mirror_is_named_by_its_volumes(caplog):
    mirror = clusters.drbd_disk("m1", 1, 2)
    site = Site()
    site.config.disk_notes.end_sweep("disks/7/0/0", is_clean=True)
    site.config.disk_notes.add("7/0", DiskNote("web1", (MadeDisk(mirror, (N1,)),)))
    site.config.disk_notes.leave("7/0")
    site.rpc.script["blockdev_remove"] = failure("no answer")
    with caplog.at_level(logging.WARNING):
        assert not site.leftover.sweep()
    text = "disk m1.data, m1.meta of instance web1, which has no record"
    assert text in caplog.text


def mirror_site(*, is_complete, kept_for="d0"):
    """Return a site whose job has moved a mirror from node 2 to node 3."""
    before = clusters.drbd_disk("d0", 1, 2)
    after = clusters.drbd_disk("d0", 1, 3)
    site = Site()
    site.store.documents.clear()
    site.store.commit(
        [
            Update("nodes", clusters.node_uuid(3), clusters.node(3)),
            Update("disks", "d0", after),
            Update(
                "instances",
                clusters.instance_uuid(1),
                clusters.instance(1, disks=["d0"], disks_active=True),
            ),
        ]
    )
    made = MadeDisk(before, (N2,), kept_for=kept_for)
    site.config.disk_notes.add("7/0", DiskNote("web1", (made,)))
    site.config.disk_notes.leave("7/0")
    status = {"dev_path": "/dev/drbd0", "major": 147, "minor": 0}
    status |= {"sync_percent": None, "estimated_time": None, "ldisk_status": 1}
    site.rpc.script["blockdev_getmirrorstatus_multi"] = [
        [True, status | {"is_degraded": not is_complete}]
    ]
    site.rpc.script["blockdev_find"] = status | {"is_degraded": False}
    return site


def test_an_old_copy_stays_until_the_new_one_is_complete():
    site = mirror_site(is_complete=False)
    assert not site.leftover.sweep()
    assert site.removed_on() == []
    assert site.notes() == ["disks/7/0/0"]
    site = mirror_site(is_complete=True)
    assert site.leftover.sweep()
    assert site.removed_on() == [N2]
    assert site.notes() == []


def test_an_old_copy_goes_with_its_instance():
    site = mirror_site(is_complete=False)
    site.store.commit([Update("instances", clusters.instance_uuid(1), None)])
    assert site.leftover.sweep()
    assert site.removed_on() == [N2]


def test_a_mirror_stays_on_the_nodes_where_it_has_a_record():
    site = mirror_site(is_complete=True)
    site.store.commit([Update("disks", "d0", clusters.drbd_disk("d0", 1, 2))])
    assert site.leftover.sweep()
    assert site.removed_on() == []


def test_the_nodes_of_a_mirror_count_more_than_older_ones_of_its_volumes():
    site = mirror_site(is_complete=True)
    record = clusters.drbd_disk("d0", 1, 2)
    stale = tuple(child.replace(nodes=(N1, GONE)) for child in record.children)
    site.store.commit([Update("disks", "d0", record.replace(children=stale))])
    assert site.leftover.sweep()
    assert site.removed_on() == []


def test_a_mirror_whose_other_node_was_removed_is_removed():
    site = mirror_site(is_complete=True)
    made = MadeDisk(clusters.drbd_disk("m1", 9, 2), (GONE, N2))
    site.config.disk_notes.add("7/1", DiskNote("web1", (made,)))
    site.config.disk_notes.leave("7/1")
    assert site.leftover.sweep()
    assert site.removed_on() == [N2, N2]
    _node, (wire,) = site.rpc.called("blockdev_remove")[-1]
    own = wire["dynamic_params"]
    assert (own["local-minor"], own["remote-ip"]) == (0, None)
    assert site.notes() == []


def test_remains_are_taken_over_unless_they_are_being_removed():
    site = mirror_site(is_complete=True)
    notes = site.config.disk_notes
    assert notes.begin_sweep("disks/7/0/0") is not None
    with pytest.raises(errors.ConfigurationError, match="try again later"):
        notes.take_over("8/0", "d0", N2, instance="web1")
    notes.end_sweep("disks/7/0/0", is_clean=False)
    assert notes.take_over("8/0", "d0", N1, instance="web1") == []
    (taken,) = notes.take_over("8/0", "d0", N2, instance="web1")
    assert taken.nodes == (N2,)
    # The new owner removes them, no sweep does.
    assert site.leftover.sweep()
    assert site.removed_on() == []
