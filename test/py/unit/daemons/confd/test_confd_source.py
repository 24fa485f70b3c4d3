"""Settings of the cluster that confd follows: signatures, and requests seen before."""

import os
import pathlib
import select
import subprocess
import sys

import msgspec
import pytest

from fakes import clusters
from fakes.confd import KEY
from fakes.master import fill
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.daemons.confd.answers import Projection
from ganeti.daemons.confd.confd_source import MAGICS, StoreSource
from ganeti.decisions.quorum import Term
from ganeti.model.objects import CLUSTER_KEY, Update
from ganeti.protocols.confd import wire


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "node1"), hostname="node1")
    os.makedirs(made.data_dir)
    pathlib.Path(made.hmac_key).write_bytes(KEY)
    return made


@pytest.fixture
def master(paths):
    opened = store.open_master(paths.store_db, replicate=None, clock=SystemClock())
    fill(opened, clusters.snapshot())
    yield opened
    opened.close()


@pytest.fixture
def source(paths, master):
    made = StoreSource(paths, SystemClock())
    yield made
    made.close()


def change(master, source, **settings):
    """Commit settings; return when the source has seen them."""
    projection = Projection()
    source.update(projection)
    cluster = master.snapshot().cluster.replace(**settings)
    master.commit([Update("cluster", CLUSTER_KEY, cluster)])
    while not source.update(projection):
        select.select([source], [], [], source.next_look_s())


def accepts(source):
    """Return the first bytes of the requests that the source has signers for."""
    query = wire.Query(1, 0, "salt", None)
    accepted = set()
    for magic in (wire.MAGIC_SHA1, wire.MAGIC_SHA256):
        signers = wire.Signers(KEY, {magic})
        data = wire.seal_query(query, 1000.0, signers, magic)
        try:
            wire.open_request(data, source.signers(), 1000.0)
        except wire.Dropped:
            continue
        accepted.add(magic)
    return accepted


@pytest.mark.parametrize("hmac", MAGICS)
def test_signatures_follow_the_cluster(master, source, hmac):
    source.update(Projection())
    assert accepts(source) == {wire.MAGIC_SHA1}
    change(master, source, confd_hmac=hmac, max_running_jobs=7)
    assert accepts(source) == MAGICS[hmac]
    change(master, source, confd_hmac="sha1", max_running_jobs=8)
    assert accepts(source) == {wire.MAGIC_SHA1}


def test_an_option_of_the_daemon_wins(paths, master):
    source = StoreSource(paths, SystemClock(), "sha256")
    change(master, source, confd_hmac="both")
    assert accepts(source) == {wire.MAGIC_SHA256}
    source.close()


def test_detection_of_replays_follows_the_cluster(master, source):
    change(master, source, max_running_jobs=7)
    assert not source.detects_replays()
    change(master, source, confd_detect_replays=True)
    assert source.detects_replays()
    change(master, source, confd_detect_replays=False)
    assert not source.detects_replays()


def test_a_value_of_a_later_release_changes_nothing(master, source):
    change(master, source, confd_hmac="both")
    change(master, source, confd_hmac="sha3")
    assert accepts(source) == MAGICS["both"]


def test_a_replaced_copy_is_silent_until_its_revisions_are_left_out(
    paths, master, source
):
    replica = store.Replica(paths.store_db)
    early = replica.dump()
    for number in range(3):
        change(master, source, max_running_jobs=7 + number)
    projection = Projection()
    source.update(projection)
    revision = master.snapshot().revision
    master.close()
    # Another master has the history without the last changes.
    replica.install(Term(9, "other"), early)
    source.update(projection)
    assert not projection.is_enabled
    copy = msgspec.structs.replace(store.wire.decode_copy(early), revision=revision + 1)
    packed = store.wire.pack_copy(copy)
    replica.install(Term(10, "other"), store.wire.encode_copy(packed))
    assert source.update(projection)
    assert projection.snapshot.revision == revision + 1
    replica.close()


def test_the_daemon_of_all_nodes_loads_no_client_of_nodes():
    code = "import ganeti.daemons.mains.confd, sys; print(*sys.modules)"
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.check_output([sys.executable, "-c", code], env=env, text=True)
    assert "ganeti.protocols.rpc" not in loaded.split()
