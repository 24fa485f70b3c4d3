"""Beginning as master with the store in etcd: the lease takes the place of a vote."""

from collections.abc import Callable

from ganeti import store
from ganeti.base import clock, errors
from ganeti.base.pathutils import Paths
from ganeti.daemons.masterd import startup
from ganeti.protocols import rpc
from ganeti.store.etcd import Claim, Servers, open_etcd

#: A master daemon that is stopped in order leaves its lease to end by itself, so that
#: it can be started again before another candidate takes over.
_CLAIM = Claim(gives_back=False)


def open_store(
    paths: Paths,
    time: clock.Clock,
    servers: Servers,
    on_deposed: Callable[[], None],
) -> tuple[store.Engine, rpc.NetworkRunner]:
    """Open the store for writing, as its only master.

    Args:
        paths: of this node.
        time: measures the lease.
        servers: of the store.
        on_deposed: called once when the lease is over or another master has begun.

    Raises:
        NotMaster: another node has the lease, or the configuration names another one.
        StorageError: no majority of the servers answers.
        ConfigurationError: the store is damaged, or was moved to a file.
    """
    snapshot = store.read_snapshot(paths.store_db)
    nodes = snapshot.nodes
    own = snapshot.uuid_of("nodes", paths.hostname)
    if own is None:
        raise startup.NotMaster(
            startup.Refusal.FAILED,
            f"{paths.hostname} is not a node of the configuration",
        )
    try:
        opened = open_etcd(
            servers, clock=time, node=own, on_deposed=on_deposed, claim=_CLAIM
        )
    except errors.TermError as err:
        text = str(err)
        for node in nodes.values():
            text = text.replace(node.uuid, node.name)
        raise startup.NotMaster(startup.Refusal.NOT_MASTER, text) from err
    runner = rpc.NetworkRunner(opened.latest, paths, opened.term)
    try:
        startup.check_configuration(opened.snapshot(), paths)
        first = store.Document("meta", "term", str(opened.term).encode())
        opened.commit([first])
    except BaseException:
        opened.close()
        runner.close()
        raise
    return opened, runner
