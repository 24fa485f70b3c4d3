"""Replacing the files that all nodes share: cluster certificate, keys and secrets.

Works over SSH and with this node's ssconf alone, as all daemons are down meanwhile.
For the same reason it can simply be run again after it was interrupted: it makes
everything anew and writes it everywhere. Certificates of nodes and SSH keys are not
changed here, see OP_CLUSTER_RENEW_CRYPTO; but the master's own certificate is, when
there is a new cluster certificate, as the master could call no node without.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti import config, errors, ssconf, store
from ganeti.bootstrap import crypto
from ganeti.bootstrap.options import Feedback
from ganeti.bootstrap.services import Services
from ganeti.clock import Clock
from ganeti.constants import ecodes
from ganeti.constants import ssconf as constants
from ganeti.pathutils import Paths
from ganeti.process import Runner
from ganeti.ssconf import SimpleStore
from ganeti.ssh import account, client
from ganeti.utils import files, x509

_log = logging.getLogger(__name__)
_OWNER: Final = "renew-crypto"
_SERVER_PEM: Final = "server.pem"
_CANDIDATES: Final = "master_candidates_certs"
_SSH_PORT: Final = 22
#: Seconds that the daemons of a node have to end or to start.
_DAEMONS_S: Final = 180.0
#: Seconds that a watcher that runs just now has to end.
_WATCHER_S: Final = 60.0
_WATCHER_LOCK: Final = "ganeti-watcher.lock"
#: Permissions by file of the state directory.
_MODES: Final = {crypto.DOMAIN_SECRET_FILE: 0o640}
_DEFAULT_MODE: Final = 0o440

AGAIN: Final = (
    "run the same command again, with the same options: it begins from the start"
)


@dataclasses.dataclass(frozen=True)
class RenewOptions:
    """What is replaced.

    Attributes:
        cluster_certificate: make a new certificate of the node daemons.
        contents: file name in the state directory -> new content.
        check_host_keys: refuse nodes whose SSH host key is not the cluster's.
    """

    cluster_certificate: bool = False
    contents: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    check_host_keys: bool = True


@dataclasses.dataclass(frozen=True)
class _Place:
    """A node as SSH finds it."""

    name: str
    address: str | None
    port: int
    shell: client.Client


def renew(
    paths: Paths,
    process: Runner,
    clock: Clock,
    options: RenewOptions,
    *,
    feedback: Feedback,
) -> list[str]:
    """Replace files on all online nodes, with all daemons down.

    Args:
        paths: of this node, the master.
        process: starts daemons.
        clock: for time stamps.
        options: what the caller decided.
        feedback: told each step.

    Returns:
        a line for each node that does not have the new files; the cluster runs all
        the same.

    Raises:
        SshError: a node cannot be reached; nothing was changed.
        OpExecError: daemons do not stop, with nothing changed; or the new files
            could not be made, or the daemons of the master do not start.
    """
    services = Services(paths, process)
    with contextlib.ExitStack() as stack:
        feedback("Gathering cluster information")
        places = _connect(paths, options, stack)
        feedback("Blocking watcher")
        os.makedirs(paths.lock_dir, exist_ok=True)
        lock = f"{paths.lock_dir}/{_WATCHER_LOCK}"
        stack.enter_context(files.locked(lock, timeout_s=_WATCHER_S))
        with _running_again_if_unchanged(services, paths, places, feedback):
            _stop(services, paths, places, feedback)
        failed: dict[str, str] = {}
        try:
            feedback("Updating certificates and keys")
            written = _write(paths, clock, options)
            failed |= _copy(paths, places, written, feedback)
        except (errors.GenericError, OSError, KeyboardInterrupt) as err:
            raise errors.OpExecError(
                "interrupted while all daemons are stopped"
                f" ({err or type(err).__name__}): {AGAIN}"
            ) from err
        failed |= _start(services, paths, places, feedback)
    return [f"node {name}: {text}" for name, text in sorted(failed.items())]


def steps(paths: Paths, options: RenewOptions) -> list[str]:
    """Return what `renew` does, in words and in order; asks nobody."""
    simple = SimpleStore(paths)
    others = sorted(set(simple.online_nodes()) - {simple.master_node()})
    written = [*options.contents]
    if options.cluster_certificate:
        written.insert(0, _SERVER_PEM)
    names = ", ".join(paths.data(name) for name in written)
    everywhere = ", ".join([*others, paths.hostname])
    planned = [f"log in to {', '.join(others)} as root over SSH"] if others else []
    planned += [
        "keep the watcher from running",
        f"stop all daemons on {everywhere}",
        f"write {names}",
    ]
    if options.cluster_certificate:
        planned.append("make the master's own client certificate anew")
    if others:
        planned.append(f"copy these files to {', '.join(others)}")
    return [*planned, f"start all daemons on {everywhere}"]


def _connect(
    paths: Paths, options: RenewOptions, stack: contextlib.ExitStack
) -> list[_Place]:
    """Log in to all other online nodes before anything is touched."""
    simple = SimpleStore(paths)
    identity = dataclasses.replace(
        client.cluster_identity(paths, simple.cluster_name()),
        check_host_key=options.check_host_keys,
    )
    addresses, ports = simple.node_primary_ips(), simple.ssh_ports()
    places = []
    for name in sorted(set(simple.online_nodes()) - {simple.master_node()}):
        port = ports.get(name, _SSH_PORT)
        shell = client.Client(
            name,
            port,
            identity,
            address=addresses.get(name),
            environment=account.node_environment(paths, name),
        )
        stack.enter_context(shell)
        places.append(_Place(name, addresses.get(name), port, shell))
    return places


# Daemons
@contextlib.contextmanager
def _running_again_if_unchanged(
    services: Services, paths: Paths, places: Sequence[_Place], feedback: Feedback
) -> Iterator[None]:
    """Start what was stopped when the rest cannot be stopped."""
    try:
        yield
    except (errors.GenericError, KeyboardInterrupt) as err:
        failed = _start(services, paths, places, feedback)
        rest = "".join(f"; node {name}: {text}" for name, text in failed.items())
        raise errors.OpExecError(
            f"nothing was changed: {err or type(err).__name__}{rest}"
        ) from err


def _stop(
    services: Services, paths: Paths, places: Sequence[_Place], feedback: Feedback
) -> None:
    feedback("Stopping master daemons")
    services.stop_master()
    for place in places:
        feedback(f"Stopping daemons on {place.name}")
        _daemon_util(paths, place, "stop-all")
    feedback(f"Stopping daemons on {paths.hostname}")
    services.stop_all()


def _start(
    services: Services, paths: Paths, places: Sequence[_Place], feedback: Feedback
) -> dict[str, str]:
    """Start all daemons, the master's last; return name -> trouble of other nodes.

    Raises:
        OpExecError: those of the master do not start.
    """
    failed = {}
    for place in places:
        feedback(f"Starting daemons on {place.name}")
        try:
            _daemon_util(paths, place, "start-all")
        except errors.GenericError as err:
            failed[place.name] = str(err)
    feedback(f"Starting daemons on {paths.hostname}")
    services.start_all()
    return failed


def _daemon_util(paths: Paths, place: _Place, verb: str) -> None:
    result = place.shell.run([paths.daemon_util, verb], timeout_s=_DAEMONS_S)
    if result.failed:
        raise errors.OpExecError(
            f"node {place.name}: daemon-util {verb} {result.reason}:"
            f" {result.output.strip()}"
        )


# Files
def _write(paths: Paths, clock: Clock, options: RenewOptions) -> list[str]:
    """Write the new files here, keeping the old ones; return which ones to copy."""
    contents = dict(options.contents)
    if options.cluster_certificate:
        contents[_SERVER_PEM] = x509.create_self_signed().pem
    for name in contents:
        _keep(paths, paths.data(name))
    for name, data in contents.items():
        files.write_file(paths.data(name), data, mode=_mode(name))
    if not options.cluster_certificate:
        return sorted(contents)
    _keep(paths, paths.client_pem)
    _record_master(paths, clock, crypto.write_client_certificate(paths, clock.time()))
    return [*sorted(contents), f"{constants.FILEPREFIX}{_CANDIDATES}"]


def _mode(name: str) -> int:
    if name.startswith(constants.FILEPREFIX):
        return 0o444
    return _MODES.get(name, _DEFAULT_MODE)


def _keep(paths: Paths, path: str) -> None:
    if os.path.exists(path):
        _log.info("%s is kept as %s", path, files.backup_file(path, paths.backup_dir))


def _record_master(paths: Paths, clock: Clock, digest: str) -> None:
    """Let this node's new certificate alone call nodes, until the others have theirs.

    The master daemon is down, so that the store is opened here.
    """
    engine = store.open_master(paths.store_db, replicate=None, clock=clock)
    try:
        cfg = config.Config(engine, clock)
        with cfg.edit(_OWNER) as edit:
            master = edit.snapshot.cluster.master_node
            edit.update_cluster(candidate_certs={master: digest})
        values = config.ssconf_values(engine.snapshot())
    finally:
        engine.close()
    ssconf.write(paths, {_CANDIDATES: values[_CANDIDATES]})


def _copy(
    paths: Paths, places: Sequence[_Place], names: Sequence[str], feedback: Feedback
) -> dict[str, str]:
    """Copy files of the state directory; return node name -> trouble."""
    failed = {}
    for place in places:
        for name in names:
            feedback(f"Copying {paths.data(name)} to {place.name}:{place.port}")
            try:
                place.shell.put_file(
                    account.path_on(paths, place.name, paths.data(name)),
                    files.read_file(paths.data(name)),
                    mode=_mode(name),
                )
            except errors.GenericError as err:
                failed[place.name] = str(err)
                break
    return failed


def read_pem(path: str, *, with_key: bool = True) -> bytes:
    """Return the content of an administrator's PEM file, which must be usable.

    Raises:
        OpPrereqError: it is not.
    """
    try:
        if with_key:
            x509.load(path)
        else:
            x509.load_certificate(path)
        return files.read_file(path)
    except (errors.X509CertError, OSError) as err:
        raise errors.OpPrereqError(f"{err}", ecodes.ECODE_INVAL) from err


def read_secret(path: str) -> bytes:
    """Return the content of an administrator's file with a secret.

    Raises:
        OpPrereqError: it cannot be read or is empty.
    """
    try:
        data = files.read_file(path)
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {err.strerror}", ecodes.ECODE_INVAL
        ) from err
    if not data.strip():
        raise errors.OpPrereqError(f"{path}: is empty", ecodes.ECODE_INVAL)
    return data.rstrip() + b"\n"
