"""The store, opened for writing by a command while no master daemon runs."""

import contextlib
from collections.abc import Iterator

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.pathutils import Paths
from ganeti.protocols import rpc
from ganeti.store import choice
from ganeti.store.copies import network_elections as elections
from ganeti.store.etcd import Claim, open_etcd


@contextlib.contextmanager
def holding(paths: Paths, clock: Clock, node: str) -> Iterator[store.Engine | None]:
    """Keep other candidates from taking over in a block, if the store is in etcd.

    Yields None for files, with which nobody takes over by itself. Raises as `opened`.
    """
    if not choice.is_etcd(paths):
        yield None
        return
    with opened(paths, clock, node) as engine:
        yield engine


@contextlib.contextmanager
def opened(
    paths: Paths,
    clock: Clock,
    node: str,
    *,
    is_takeover: bool = False,
    lost: frozenset[str] = frozenset(),
) -> Iterator[store.Engine]:
    """Win a term for this node, and yield the store.

    With files, a majority of the master candidates must answer. In etcd, the leadership
    is taken from whoever has it, and kept until the end of the block.

    Args:
        paths: of this node.
        clock: paces retries.
        node: uuid of this node.
        is_takeover: this node was not the master, so a newer copy is taken.
        lost: uuids of candidates, with files, that the administrator has given up:
            their copies are not asked for.

    Raises:
        StorageError: no majority, and a candidate that was not given up is silent.
        TermError: another node became master.
    """
    servers = choice.read(paths)
    if servers is not None:
        engine = open_etcd(servers, clock=clock, node=node, claim=Claim(is_forced=True))
        try:
            yield engine
        finally:
            engine.close()
        return
    with elections.asking(paths) as ask:
        elector = elections.elector(paths, node, ask, lost)
        term, survey = elector.elect(is_takeover=is_takeover, accept_loss=bool(lost))
    if not survey.is_enough and not lost.issuperset(survey.election.silent):
        raise errors.StorageError(survey.shortage())
    late = rpc.LateRunner()
    engine = store.open_master(
        paths.store_db,
        replicate=late,
        clock=clock,
        node=node,
        term=term,
        settings=store.CommitSettings(
            accept_loss=not survey.is_enough, is_patient=False, silent=lost
        ),
    )
    runner = rpc.NetworkRunner(engine.latest, paths, engine.term)
    try:
        late.set(runner)
        yield engine
    finally:
        engine.close()
        runner.close()
