"""The store, used by a command while no master daemon runs, and its place in etcd."""

import contextlib
import dataclasses
from collections.abc import Iterator

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.pathutils import Paths
from ganeti.protocols import rpc
from ganeti.store import choice
from ganeti.store.copies import election
from ganeti.store.etcd import Claim, Gateway, Servers, open_etcd, parse, to_etcd
from ganeti.store.etcd.reader import Reader
from ganeti.store.etcd.servers import remove_store


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
    with election.asking(paths) as ask:
        elector = election.elector(paths, node, ask, lost)
        term, survey = elector.elect(is_takeover=is_takeover, accept_loss=bool(lost))
    # With accepted loss the election goes on without a majority; here only the copies
    # of lost candidates may be missing.
    if not survey.is_enough and not lost.issuperset(survey.election.silent):
        raise errors.StorageError(survey.shortage())
    # The store and the runner need each other, see `ganeti.bootstrap.failover`.
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


@dataclasses.dataclass(frozen=True)
class Place:
    """Servers that answer, and the files to write on master candidates."""

    servers: Servers
    files: choice.Prepared

    def fill(self, paths: Paths, node: str) -> None:
        """Move the store in the file of this node there, and record that.

        Args:
            paths: of this node.
            node: uuid of this node.

        Raises:
            ConfigurationError: there is another store.
            StorageError: no majority of the servers answers, or the disk failed.
            TermError: somebody else writes there.
        """
        to_etcd(paths.store_db, self.servers, node)
        # The record comes last: until then the file counts, and the move can be
        # repeated.
        choice.write(paths, self.files)

    def remove(self) -> None:
        """Remove the store, since its cluster was not created."""
        remove_store(self.servers)


def find_place(text: str | None, *, is_new: bool = True) -> Place | None:
    """Return the place that an address names, None for no address.

    Args:
        text: address of a store in etcd.
        is_new: there must be no store.

    Raises:
        OpPrereqError: the address is wrong, a file cannot be read, no majority of the
            servers answers, or there is a store.
    """
    if text is None:
        return None
    try:
        servers = parse(text)
        place = Place(servers, choice.prepare(servers))
    except errors.ConfigurationError as err:
        raise refusal(str(err)) from err
    gateway = Gateway(servers)
    try:
        reader = Reader(gateway)
        seen, moving = reader.look(), reader.moving()
    except errors.GenericError as err:
        raise errors.OpPrereqError(
            f"the store cannot be used: {err}", ecodes.ECODE_ENVIRON
        ) from err
    finally:
        gateway.close()
    if is_new and (seen.end_at or moving is not None):
        raise errors.OpPrereqError(
            f"{servers}: wanted no store, found revision {seen.mark.revision}; choose"
            " another prefix, or remove the old one with 'etcdctl del --prefix"
            f" {servers.prefix}/'",
            ecodes.ECODE_EXISTS,
        )
    return place
