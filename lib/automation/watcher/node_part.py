"""Part of a run on every node: daemons of the node, hook scripts, node maintenance."""

import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ganeti.automation.watcher import effects
from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.constants import daemons as daemon_table
from ganeti.base.constants.protocols import confd, hooks
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.text.control_chars import escape
from ganeti.protocols.confd import ConfdClient, Result, wire
from ganeti.store import choice

if TYPE_CHECKING:
    from ganeti.node.hypervisor import Hypervisor

_log = logging.getLogger(__name__)

# Node maintenance: an offline node stops the guests that it still runs.
#
# An offline node gets no ssconf files from the master and may not call other nodes, so
# it asks confd of the master candidates for its role. Only an answer on which enough of
# them agree counts; with any doubt nothing is done.

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


def run_node_maintenance(watch: Watch) -> None:
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

    node_effects = hypervisor.NodeEffects(watch.paths, watch.process, watch.clock)
    drivers = registry.drivers(node_effects)
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


# The address of the cluster on a node that is not the master: removed again.
#
# After a partition heals, or after a crash, the previous master may still have the
# address of the cluster, which the present master has too.

_MASTER = "ganeti-masterd"


def remove_stray_address(watch: Watch) -> None:
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
    if effects.is_daemon_running(watch, _MASTER):
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
    from ganeti.master import address_removal

    ssconf, name = watch.ssconf, watch.paths.hostname
    parameters: dict[str, Any] = {
        "uuid": name,
        "ip": address,
        "netmask": ssconf.master_netmask(),
        "netdev": ssconf.master_netdev(),
        "ip_family": int(ssconf.primary_ip_family()),
    }
    result = address_removal.drop(
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


# Guests of this node that have lost a process beside their emulator, in the log.
#
# Each loss is logged once, and once more when it is over. Nothing is repaired: a reboot
# of the guest starts the process again, and is the administrator's choice.

#: Losses that are in the log, below the state directory.
_STATE: Final = "watcher.lost-processes"
_LARGEST_STATE: Final = 1 << 20


def report_lost_processes(watch: Watch) -> None:
    """Log what has changed since the last run."""
    path = watch.paths.data(_STATE)
    known = _known(path)
    lost = _lost(watch)
    if lost is None or lost == known:
        return
    for text in sorted(lost - known):
        _log.warning("%s", escape(text))
    for text in sorted(known - lost):
        _log.info("over: %s", escape(text))
    try:
        if lost:
            files.write_file(path, json.dumps(sorted(lost)))
        else:
            files.remove_file(path)
    except OSError as err:
        _log.warning("%s: %s", path, err)


def _lost(watch: Watch) -> set[str] | None:
    """Return the losses as lines, None if they are unknown."""
    # Other nodes need not load the driver.
    if not os.path.isdir(f"{watch.paths.run_dir}/kvm-hypervisor/pid"):
        return set()
    from ganeti.node.hypervisor.kvm.devices import helper_processes

    try:
        lost = helper_processes.lost(watch.paths)
    except (errors.GenericError, OSError) as err:
        _log.warning("processes of guests: %s", err)
        return None
    return {
        f"instance {name}: {each.text}" for name, rows in lost.items() for each in rows
    }


def _known(path: str) -> set[str]:
    try:
        rows = json.loads(files.read_file(path, max_size=_LARGEST_STATE))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, errors.GenericError) as err:
        _log.warning("%s: %s", path, err)
        return set()
    known = rows if isinstance(rows, list) else []
    return {row for row in known if isinstance(row, str)}


#: Daemons of every node, in their start order. A daemon that is not installed is
#: skipped; ganeti-kvmd ends by itself where no instance needs it.
_DAEMONS: Final = ("ganeti-noded", "ganeti-confd", "ganeti-mond", "ganeti-kvmd")
#: Only where the store is in etcd.
_STANDBY: Final = "ganeti-standby"
_PLUGIN_NAME: Final = re.compile(hooks.EXT_PLUGIN_MASK)
#: Seconds for one hook script; a script that hangs must not stop the watcher.
_HOOK_S: Final = 600.0
#: Bytes of each output of a hook script; a script that prints more is killed.
_HOOK_OUTPUT: Final = 1 << 20
#: Characters of a script's output that the log shows.
_OUTPUT_CHARS: Final = 1000


def run(watch: Watch, environ: Mapping[str, str]) -> None:
    """Look after this node; failures are logged and do not end the run.

    Args:
        watch: the run.
        environ: environment of the watcher, passed on to hook scripts.
    """
    for daemon in _DAEMONS:
        effects.ensure_daemon(watch, daemon)
    if choice.is_etcd(watch.paths):
        effects.ensure_daemon(watch, _STANDBY)
    remove_stray_address(watch)
    report_lost_processes(watch)
    run_hooks(watch, environ)
    run_node_maintenance(watch)


def run_hooks(watch: Watch, environ: Mapping[str, str]) -> None:
    """Run the scripts in ``hooks/watcher`` in the order of their names."""
    directory = f"{watch.paths.hooks_dir}/{hooks.HOOKS_NAME_WATCHER}"
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as err:
        _log.warning("hooks: %s", err)
        return
    env = {**environ, "LC_ALL": "C"}
    for name in names:
        path = f"{directory}/{name}"
        if not _is_script(name, path):
            _log.debug("hook %s: skipped, not an executable script", name)
            continue
        _run_hook(watch, path, env)


def _is_script(name: str, path: str) -> bool:
    return (
        _PLUGIN_NAME.fullmatch(name) is not None
        and os.path.isfile(path)
        and os.access(path, os.X_OK)
    )


def _run_hook(watch: Watch, path: str, env: Mapping[str, str]) -> None:
    try:
        result = watch.process.run_bounded(
            [path], timeout_s=_HOOK_S, max_output=_HOOK_OUTPUT, env=env
        )
    except errors.CommandError as err:
        _log.warning("hook %s", err)
        return
    output = escape(result.output.strip()[-_OUTPUT_CHARS:])
    level = logging.WARNING if result.failed else logging.INFO
    _log.log(level, "hook %s %s; output: %s", path, result.reason, output or "none")
