"""Ending a cluster: what is left to do on the last node after OP_CLUSTER_DESTROY."""

from ganeti import errors, rpc
from ganeti.bootstrap import initialise
from ganeti.bootstrap.options import Feedback
from ganeti.bootstrap.services import Services
from ganeti.constants import daemons
from ganeti.pathutils import Paths
from ganeti.process import Runner
from ganeti.ssconf import SimpleStore


def finalize_destroy(paths: Paths, process: Runner, *, feedback: Feedback) -> None:
    """Stop the master daemons and make this node leave what was the cluster.

    The node's own files go last, so that a failure can be repeated.

    Raises:
        OpExecError: the master daemons do not stop.
    """
    services = Services(paths, process)
    services.stop_master()
    _leave(paths, feedback)
    try:
        services.stop_all()
    except errors.GenericError as err:
        feedback(f"Warning: {err}")
    initialise.remove_cluster_files(paths)


def steps(paths: Paths) -> list[str]:
    """Return what `finalize_destroy` does, in words and in order."""
    return [
        "stop the master daemons",
        "have the node daemon forget the cluster: keys, certificates, ssconf files",
        "stop all daemons",
        (
            f"remove what is left of the cluster in {paths.data_dir}, the configuration"
            " last"
        ),
    ]


def _leave(paths: Paths, feedback: Feedback) -> None:
    """Ask our own node daemon to forget the cluster; its failure is a warning."""
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
