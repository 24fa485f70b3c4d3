"""``ganeti-standby``: on each master candidate, if the store is in etcd.

It keeps the file of the node equal to the store, for confd and all others that read the
file, and takes over when no master has the lease. On a node that is not the master any
more it removes the address of the cluster and stops the remote API.

Exit code 11 when the store of this node is not in etcd.
"""

import argparse
import contextlib
import logging
import os
import sys
import threading
from typing import Final

from ganeti import store
from ganeti.automation import new_master
from ganeti.base import clock, errors, pathutils, process
from ganeti.base.constants import exitcodes
from ganeti.base.filesystem import pidfile
from ganeti.base.net import netutils
from ganeti.daemons import common
from ganeti.decisions.quorum import Term
from ganeti.master import address_removal
from ganeti.model.objects import Snapshot
from ganeti.node.services import Services
from ganeti.operations import master_ip
from ganeti.store import choice, schema
from ganeti.store.etcd import Candidacy, Gateway, Mirror, Servers
from ganeti.store.etcd.reader import Reader

_log = logging.getLogger(__name__)

NAME: Final = "ganeti-standby"
_MASTER: Final = "ganeti-masterd"
_RAPI: Final = "ganeti-rapi"
#: Seconds between two looks at what this node still has of the master role.
_TIDY_S: Final = 2.0
#: Seconds until this node tries again to take over. Other candidates come first, if the
#: master daemon could not be started here.
_RETRY_S: Final = 1.0
_FAILED_S: Final = 10.0


class Standby:
    """The daemon's service: three threads."""

    def __init__(
        self,
        paths: pathutils.Paths,
        servers: Servers,
        time: clock.Clock,
        runner: process.Runner,
    ) -> None:
        """Prepare; `start` starts the threads."""
        self._paths = paths
        self._servers = servers
        self._clock = time
        self._process = runner
        self._end = threading.Event()
        self._control: common.Control | None = None
        self._gateway = Gateway(servers)
        self._mirror: Mirror | None = None
        self._threads: list[threading.Thread] = []

    def start(self, control: common.Control) -> "Standby":
        """Open the file and begin to follow the store.

        Raises:
            StorageError: the disk failed.
        """
        self._control = control
        self._mirror = open_mirror(self._servers, self._paths.store_db, self._clock)
        for name, work in (
            ("mirror", self._follow),
            ("candidacy", self._campaign),
            ("tidy", self._tidy),
        ):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> None:
        """Follow the store no more."""
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._gateway.close()

    def _follow(self) -> None:
        if self._mirror is None:
            return
        try:
            self._mirror.run(self._end)
        finally:
            with contextlib.suppress(errors.GenericError):
                self._mirror.close()

    # Taking over
    def _campaign(self) -> None:
        """Take over whenever no node leads."""
        # Without a name: the leadership of this node's own master is one, too.
        candidacy = Candidacy(self._servers, "", self._clock)
        try:
            while candidacy.wait(self._end):
                self._clock.wait(self._end, self._try())
        except errors.ConfigurationError as err:
            _log.critical("this node cannot take over: %s", err)
        finally:
            candidacy.close()

    def _try(self) -> float:
        """Try to take over; return the seconds to wait before the next attempt."""
        snapshot = self._snapshot()
        if snapshot is None:
            return _FAILED_S
        own = snapshot.nodes.get(snapshot.uuid_of("nodes", self._paths.hostname) or "")
        if own is None or not own.master_candidate:
            return _FAILED_S
        try:
            new_master.take_over(
                self._paths, self._process, self._clock, self._servers, own
            )
        except errors.TermError as err:
            _log.info("another candidate was faster: %s", err)
        except errors.StorageError as err:
            _log.warning("the leadership is free, but cannot be taken: %s", err)
        except errors.GenericError as err:
            _log.error("this node cannot take over: %s", err)
            return _FAILED_S
        except Exception:  # noqa: BLE001 - logged
            _log.exception("this node cannot take over")
            return _FAILED_S
        return _RETRY_S

    def _snapshot(self) -> Snapshot | None:
        """Return the configuration in the file of this node, if it has one."""
        try:
            return store.read_snapshot(self._paths.store_db)
        except errors.GenericError as err:
            _log.warning("no configuration yet: %s", err)
            return None

    # Rest of the master role
    def _tidy(self) -> None:
        reader = Reader(self._gateway)
        while not self._clock.wait(self._end, _TIDY_S):
            try:
                if choice.read(self._paths) != self._servers:
                    _log.warning("the store was moved, or this node is no candidate")
                    self._ask_stop()
                    return
                self._leave_role(reader)
            except (errors.GenericError, OSError) as err:
                _log.warning("what is left of the master role: %s", err)

    def _ask_stop(self) -> None:
        if self._control is not None:
            self._control.ask_stop()

    def _leave_role(self, reader: Reader) -> None:
        """Stop the remote API and remove the address, if this node does not lead."""
        if pidfile.is_locked(self._paths.pid_file(_MASTER)):
            return
        has_api = pidfile.is_locked(self._paths.pid_file(_RAPI))
        snapshot = self._snapshot()
        if snapshot is None or not snapshot.nodes:
            return
        uuid = snapshot.uuid_of("nodes", self._paths.hostname)
        address = snapshot.cluster.master_ip
        has_address = not netutils.is_loopback(address) and netutils.owns_address(
            address
        )
        if uuid is None or not (has_api or has_address):
            return
        leading = _leading(reader)
        if leading is not None and leading.owner == uuid:
            return  # its daemon is about to start
        if has_api:
            _log.warning("this node is not the master: stopping the remote API")
            Services(self._paths, self._process).stop(_RAPI)
        if has_address:
            _log.warning("this node is not the master: removing %s", address)
            result = address_removal.drop(
                self._paths,
                snapshot.nodes[uuid].primary_ip,
                master_ip.parameters(snapshot.cluster),
                is_external=snapshot.cluster.use_external_mip_script,
            )
            if result.failed:
                _log.error("%s", result.describe("the address was not removed"))


def _leading(reader: Reader) -> Term | None:
    """Return the term of the master; None if there is none or nobody knows."""
    try:
        return reader.look().leading
    except errors.StorageError:
        return None


def open_mirror(servers: Servers, path: str, time: clock.Clock) -> Mirror:
    """Open the file that follows the store; one that is damaged is set aside.

    Raises:
        StorageError: the disk failed.
    """
    try:
        return Mirror(servers, path, time)
    except errors.ConfigurationError as err:
        _log.error("the copy of the store is replaced: %s", err)
    schema.set_aside(path, f"{path}.damaged")
    return Mirror(servers, path, time)


def check(options: argparse.Namespace, paths: pathutils.Paths) -> Servers:
    """Return where the store is.

    Raises:
        StartError: it is not in etcd, or the record of that is damaged.
    """
    common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
    try:
        servers = choice.read(paths)
    except errors.ConfigurationError as err:
        raise common.StartError(str(err)) from err
    if servers is None:
        raise common.StartError(
            "the store of this node is not in etcd", exitcodes.EXIT_NOTMASTER
        )
    return servers


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    return common.parser(NAME)


def main() -> int:
    """Run the daemon."""
    paths = common.own_paths(NAME)
    options = common.parse(build_parser(), sys.argv[1:])

    def start(control: common.Control) -> common.Service:
        servers = check(options, paths)
        return Standby(
            paths, servers, clock.SystemClock(), process.SystemRunner()
        ).start(control)

    def check_only() -> None:
        check(options, paths)

    daemon = common.Daemon(name=NAME, check=check_only, start=start)
    return common.run(daemon, options, paths)
