"""Destruction of a cluster: the steps on the last node after OP_CLUSTER_DESTROY."""

from ganeti.base import errors
from ganeti.base.constants import daemons
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap.init import initialise
from ganeti.bootstrap.options import Feedback
from ganeti.node.services import Services
from ganeti.protocols import rpc
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import choice
from ganeti.store.etcd.removal import remove_store


def finalize_destroy(paths: Paths, process: Runner, *, feedback: Feedback) -> None:
    """Stop the master daemons and remove the cluster's files from this node.

    The configuration is removed last, so the command can be repeated after a failure.

    Raises:
        OpExecError: the master daemons do not stop.
    """
    services = Services(paths, process)
    servers = choice.read(paths)
    if servers is not None:
        services.stop("ganeti-standby")
    services.stop_master()
    if servers is not None:
        try:
            remove_store(servers)
        except errors.StorageError as err:
            feedback(f"Warning: {err}")
    _leave(paths, feedback)
    try:
        services.stop_all()
    except errors.GenericError as err:
        feedback(f"Warning: {err}")
    initialise.remove_cluster_files(paths)


def steps(paths: Paths) -> list[str]:
    """Return the steps of `finalize_destroy` as text, in order."""
    return [
        "stop the master daemons",
        *(["remove the store from etcd"] if choice.is_etcd(paths) else []),
        "let the node daemon remove keys, certificates and ssconf files of the cluster",
        "stop all daemons",
        (
            f"remove the remaining files of the cluster in {paths.data_dir}, the"
            " configuration last"
        ),
    ]


def _leave(paths: Paths, feedback: Feedback) -> None:
    """Let this node's daemon remove its cluster files; a failure is a warning."""
    ssconf = SimpleStore(paths)
    name = paths.hostname
    address = ssconf.node_primary_ips().get(name)
    if address is None:
        return
    port = daemons.DAEMONS["ganeti-noded"].port or 0
    runner = rpc.StaticRunner([rpc.Target(name, name, address, port)], paths)
    try:
        answer = runner.call_one("node_leave_cluster", name, True)
    finally:
        runner.close()
    if answer.failed:
        feedback(f"Warning: {answer.describe('cannot leave the cluster cleanly')}")
