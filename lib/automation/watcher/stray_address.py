"""The address of the cluster on a node that is not the master: removed again.

After a partition heals, or after a crash, the previous master may still have the
address of the cluster, which the present master has too.
"""

import logging
import socket
from typing import Any

from ganeti.automation.watcher import daemons
from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.net import netutils

_log = logging.getLogger(__name__)
_MASTER = "ganeti-masterd"


def remove(watch: Watch) -> None:
    """Remove the cluster's address from this machine if another node is the master.

    A running master daemon prevents that: it removes the address itself when it learns
    that it was deposed. Failures are logged and do not end the run.
    """
    try:
        master, address = watch.ssconf.master_node(), watch.ssconf.master_ip()
    except errors.ConfigurationError as err:
        _log.debug("address of the cluster: %s", err)
        return
    if master == watch.paths.hostname or not has_address(address):
        return
    if daemons.is_running(watch, _MASTER):
        return
    _log.warning(
        "this machine has the address %s of the cluster, but the master is %s;"
        " removing the address",
        address,
        master,
    )
    try:
        problem = _drop(watch, address)
    except (errors.GenericError, OSError) as err:
        problem = str(err)
    if problem:
        _log.error("address %s of the cluster: not removed: %s", address, problem)


def has_address(address: str) -> bool:
    """Return whether this machine has an address that other machines can reach."""
    if not netutils.is_address(address) or netutils.is_loopback(address):
        return False
    # Almost no machine has it: the kernel's list of addresses takes longer to read.
    with socket.socket(netutils.family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return netutils.owns_address(address)


def _drop(watch: Watch, address: str) -> str | None:
    """Remove the address; return the error if that failed."""
    from ganeti.master import address_removal as cluster_address

    ssconf, name = watch.ssconf, watch.paths.hostname
    parameters: dict[str, Any] = {
        "uuid": name,
        "ip": address,
        "netmask": ssconf.master_netmask(),
        "netdev": ssconf.master_netdev(),
        "ip_family": int(ssconf.primary_ip_family()),
    }
    result = cluster_address.drop(
        watch.paths,
        ssconf.node_primary_ips()[name],
        parameters,
        is_external=_has_own_script(watch),
    )
    return result.fail_msg if result.failed else None


def _has_own_script(watch: Watch) -> bool:
    """Return whether the cluster uses a set-up script of its own.

    Only master candidates, and thus all previous masters, know that.
    """
    from ganeti import store

    try:
        snapshot = store.read_snapshot(watch.paths.store_db)
    except errors.GenericError as err:
        _log.debug("use of an own set-up script: %s", err)
        return False
    return bool(snapshot.cluster.use_external_mip_script)
