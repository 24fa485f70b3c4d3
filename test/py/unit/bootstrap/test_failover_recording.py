"""The first group of a failover has all that a master after it must know."""

import pytest

from fakes import clusters
from fakes.master import fill
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.bootstrap import failover
from ganeti.decisions.quorum import Term, Voters
from ganeti.master import config
from ganeti.store import Document
from ganeti.store.copies import voters
from ganeti.store.database import Database

OWN = clusters.node_uuid(2)


@pytest.fixture
def path(tmp_path):
    actual = str(tmp_path / "store.db")
    opened = store.open_master(actual, replicate=None, clock=SystemClock())
    fill(opened, clusters.snapshot(nodes=3))
    opened.commit([Document("meta", "serial", b"385")])
    opened.close()
    return actual


def record(path, *, accept_loss):
    """Write the first group of a failover; return last job id, serial and groups."""
    term = Term(9, OWN)
    opened = store.open_master(
        path, replicate=None, clock=SystemClock(), node=OWN, term=term
    )
    cfg = config.Config(opened, SystemClock())
    before = opened.snapshot().revision
    with failover._recording(cfg, opened, failover._Elected(term, accept_loss)) as edit:
        edit.update_cluster(master_node=OWN)
    opened.close()
    db = Database(path, create=False)
    try:
        header = config.Header.decode(db.tables.read("meta", config.HEADER_KEY))
        groups = [group for group in db.log.groups() if group.revision > before]
        return int(db.tables.read("meta", "serial")), header.serial_no, len(groups)
    finally:
        db.close()


def test_an_accepted_loss_leaves_out_numbers_in_the_first_group(path):
    # A failover may end here, and another node go on with this group.
    last_job, serial, groups = record(path, accept_loss=True)
    assert groups == 1
    assert last_job > 385 + 1000
    assert serial > 1_000_000


def test_an_open_change_of_the_candidate_set_does_not_part_them(path):
    opened = store.open_master(path, replicate=None, clock=SystemClock())
    nodes = [clusters.node_uuid(number) for number in (1, 2, 3)]
    opened.commit([voters.encode(Voters(frozenset(nodes), frozenset(nodes[:2])))])
    opened.close()
    last_job, serial, groups = record(path, accept_loss=True)
    assert groups == 1
    assert last_job > 385 + 1000
    assert serial > 1_000_000


def test_a_failover_without_loss_leaves_out_nothing(path):
    last_job, serial, groups = record(path, accept_loss=False)
    assert (last_job, groups) == (385, 1)
    assert serial < 1000
