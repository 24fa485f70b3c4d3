"""Node maintenance: an offline node stops the guests that it still runs.

An offline node gets no ssconf files from the master and may not call other nodes, so it
asks confd of the master candidates for its role. Only an answer on which enough of them
agree counts; with any doubt nothing is done.
"""

import logging
from typing import TYPE_CHECKING, Final

from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.constants import daemons as daemon_table
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.protocols.confd import ConfdClient, Result, wire

if TYPE_CHECKING:
    from ganeti.node.hypervisor import Hypervisor

_log = logging.getLogger(__name__)
_DAEMON: Final = "ganeti-confd"
_ALL: Final = -1
#: Servers that are frozen must not keep the watcher from its other work.
_ANSWER_S: Final = 10.0
#: Signatures of requests. A server that accepts only the other kind does not answer.
_MAGICS: Final = (wire.MAGIC_SHA1, wire.MAGIC_SHA256)
_ROLES: Final = frozenset(
    (
        confd.CONFD_NODE_ROLE_MASTER,
        confd.CONFD_NODE_ROLE_CANDIDATE,
        confd.CONFD_NODE_ROLE_OFFLINE,
        confd.CONFD_NODE_ROLE_DRAINED,
        confd.CONFD_NODE_ROLE_REGULAR,
    )
)


def run(watch: Watch) -> None:
    """Stop the guests of this node if the cluster wants that and has marked it offline.

    Failures are logged and do not end the run.
    """
    try:
        if not watch.ssconf.maintain_node_health():
            return
    except errors.ConfigurationError as err:
        _log.debug("node maintenance: %s", err)
        return
    try:
        role = _role(watch)
    except (errors.GenericError, OSError) as err:
        _log.warning("node maintenance: skipped, the role is unknown: %s", err)
        return
    _log.debug("node maintenance: role %d", role)
    if role == confd.CONFD_NODE_ROLE_OFFLINE:
        _stop_guests(watch)


def _role(watch: Watch) -> int:
    """Return the role of this node, as enough master candidates give it.

    Raises:
        GenericError: they do not answer in time, disagree, or do not know the node.
        OSError: the key cannot be read.
    """
    name = watch.paths.hostname
    for magic in _MAGICS:
        result = _ask(watch, magic)
        if result.answered:
            break
    if not result.is_complete:
        answered = ", ".join(result.answered) or "none"
        raise errors.ConfdClientError(
            f"too few master candidates answered within {_ANSWER_S:g} s: {answered}"
        )
    if result.is_inconsistent:
        raise errors.ConfdClientError("the master candidates give different answers")
    if result.reply is None or not result.is_ok:
        raise errors.ConfdClientError(f"the master candidates know no node {name}")
    role = result.reply.answer
    if not isinstance(role, int) or isinstance(role, bool) or role not in _ROLES:
        raise errors.ConfdClientError(
            f"wanted the number of a role, found {role!r:.60}"
        )
    return role


def _ask(watch: Watch, magic: bytes) -> Result:
    default = daemon_table.DAEMONS[_DAEMON].port or 0
    client = ConfdClient(
        files.read_file(watch.paths.hmac_key),
        watch.ssconf.master_candidates_ips(),
        port=netutils.service_port(_DAEMON, default, "udp"),
        magic=magic,
    )
    return client.ask(
        confd.CONFD_REQ_NODE_ROLE_BYNAME,
        watch.paths.hostname,
        coverage=_ALL,
        timeout_s=_ANSWER_S,
    )


def _stop_guests(watch: Watch) -> None:
    """Kill all guests of all enabled hypervisors."""
    # Imported here: almost no run needs the drivers.
    from ganeti.node import hypervisor
    from ganeti.node.hypervisor import registry

    effects = hypervisor.NodeEffects(watch.paths, watch.process, watch.clock)
    drivers = registry.drivers(effects)
    for kind in watch.ssconf.hypervisor_list():
        driver = drivers.get(kind)
        if driver is None:
            _log.warning("node maintenance: hypervisor %s is not offered here", kind)
            continue
        for guest in driver.all_infos():
            if guest.state is hypervisor.GuestState.RUNNING:
                _stop(driver, guest.name)


def _stop(driver: "Hypervisor", name: str) -> None:
    _log.warning("instance %s: killing its guest, because this node is offline", name)
    try:
        driver.stop(name, hvparams={}, force=True)
        driver.cleanup(name)
    except (errors.GenericError, OSError) as err:
        _log.error("instance %s: its guest could not be stopped: %s", name, err)
