"""Replacement of the files that all nodes share: cluster certificate, keys, secrets.

All daemons are stopped during the replacement, so it uses only SSH and this node's
ssconf files. After an interruption it can be run again: it re-creates all files and
writes them to all nodes. When the node daemons run again, and before the master daemon
starts, this node is elected master and records its certificate in the configuration, on
a majority of the master candidates. Node certificates and SSH keys are renewed by
OP_CLUSTER_RENEW_CRYPTO instead. The exception is the master's client certificate: it is
replaced together with the cluster certificate, because nodes would refuse the calls of
the master otherwise.

A cluster certificate is replaced here only if `needs_restart`; otherwise a job does it
while everything works, see `ganeti.operations.cluster.renew_crypto`.

A new cluster certificate is that of a new authority. Each node gets a certificate that
it has issued, or the master would not accept the node. The master makes the keys of
these certificates; OP_CLUSTER_RENEW_CRYPTO, which follows, has each node replace its
own.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ganeti import store
from ganeti.automation import new_master
from ganeti.base import daemon_users, errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes, misc
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto, lost_master, store_access
from ganeti.bootstrap.options import Feedback
from ganeti.master import config
from ganeti.model.objects import CLUSTER_KEY, Update
from ganeti.node.services import Services
from ganeti.protocols import ssconf
from ganeti.protocols.ssconf import FILEPREFIX, SimpleStore
from ganeti.protocols.ssh import account, client

_log = logging.getLogger(__name__)
_OWNER: Final = "renew-crypto"
_MASTER_DAEMON: Final = "ganeti-masterd"
_SERVER_PEM: Final = "server.pem"
_SERVER_KEY: Final = "server-key.pem"
_CLIENT_PEM: Final = "client.pem"
_CANDIDATES: Final = "master_candidates_certs"
_SSH_PORT: Final = 22
#: Seconds to wait until the daemons of a node have stopped or started.
_DAEMONS_S: Final = 180.0
#: Seconds to wait for the end of a watcher that is running.
_WATCHER_S: Final = 60.0
_WATCHER_LOCK: Final = "ganeti-watcher.lock"
#: Permissions by file of the state directory.
_MODES: Final = {
    crypto.DOMAIN_SECRET_FILE: 0o640,
    _SERVER_KEY: authority.KEY_MODE,
}
_DEFAULT_MODE: Final = 0o440

_REPEAT_HINT: Final = (
    "run the same command again, with the same options; it restarts from the beginning"
)

_LOST_HINT: Final = (
    ". If candidates are lost for good, name them with --lost-candidates: what they"
    " alone have is lost"
)


@dataclasses.dataclass(frozen=True)
class RenewOptions:
    """Files to replace.

    Attributes:
        cluster_certificate: create a new cluster certificate.
        contents: file name in the state directory -> new content.
        check_host_keys: refuse nodes whose SSH host key is not the cluster's.
        without_master: this node is another master candidate, because the master is
            lost.
        given_up: names or UUIDs of master candidates lost for good: this node goes
            on without their copies, and marks them offline.
    """

    cluster_certificate: bool = False
    contents: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    check_host_keys: bool = True
    without_master: bool = False
    given_up: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class _RemoteNode:
    """A node, and the SSH connection to it."""

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
    """Replace files on all online nodes, while all daemons are stopped.

    Args:
        paths: of this node, the master; see `RenewOptions.without_master`.
        process: starts daemons.
        clock: source of time stamps.
        options: the files to replace.
        feedback: called with each step.

    Returns:
        One line per node on which copying files or starting daemons failed, sorted;
        the rest of the cluster runs.

    Raises:
        SshError: a node cannot be reached; nothing was changed.
        OpPrereqError: without a master, this node is no master candidate, the master
            daemon runs, a lost node answers, or see the checks in `lost_master`.
        OpExecError: daemons do not stop, or the store in etcd cannot be had, and
            nothing was changed; or the new files
            could not be created, no majority of the master candidates has recorded the
            new certificate, or the daemons of the master do not start.
    """
    services = Services(paths, process)
    with contextlib.ExitStack() as stack:
        feedback("Gathering cluster information")
        # The node that nodes accept afterwards: usually the master.
        caller = (
            lost_master.caller(paths)
            if options.without_master
            else store.read_snapshot(paths.store_db).cluster.master_node
        )
        lost: dict[str, str] = {}
        if options.without_master:
            lost = lost_master.lost_candidates(paths, options.given_up, caller)
            _check_lost(paths, options, lost.values())
        failed: dict[str, str] = {}
        remotes = _connect(paths, options, stack, failed)
        if options.without_master:
            lost_master.check_copies(
                paths,
                caller,
                {remote.name for remote in remotes},
                frozenset(lost),
                is_refused=_is_refused(paths),
            )
        feedback("Blocking watcher")
        lock = f"{paths.lock_dir}/{_WATCHER_LOCK}"
        # The lock of this node alone; for other watchers see `_start_nodes`.
        stack.enter_context(files.locked(lock, timeout_s=_WATCHER_S))
        # Before the first daemon stops: the candidates stop one after another, and the
        # last ones could take over when the lease has ended.
        held = stack.enter_context(_holding(paths, clock, caller))
        # Only here: as long as no file has changed, the daemons can go on as before.
        with _restarted_on_failure(services, paths, remotes, feedback):
            _stop(services, paths, remotes, feedback)
        try:
            feedback("Updating certificates and keys")
            written = _write(paths, clock, options, caller)
            failed |= _copy(paths, remotes, written, feedback)
            if options.cluster_certificate:
                failed |= _send_certificates(paths, clock, remotes, failed, feedback)
        except (errors.GenericError, OSError, KeyboardInterrupt) as err:
            raise errors.OpExecError(
                "interrupted while all daemons are stopped"
                f" ({str(err) or type(err).__name__}): {_REPEAT_HINT}"
            ) from err
        # Before the record, which a majority takes. If the record came before the stop,
        # a repetition would need the certificates of the interrupted run.
        failed |= _start_nodes(services, paths, remotes, feedback)
        if options.cluster_certificate:
            feedback("Recording the certificate of the master")
            editing = (
                lost_master.recording(paths, clock, caller, frozenset(lost), _OWNER)
                if options.without_master
                else _editing(paths, clock, caller, held)
            )
            _record_master(paths, caller, editing, options)
        _start_master(services, paths, feedback)
        # At the very end: without the note, a master with its own new certificate looks
        # as if the renewal were complete.
        crypto.remove_renewal_note(paths)
    return [f"node {name}: {text}" for name, text in sorted(failed.items())]


def needs_restart(paths: Paths) -> bool:
    """Return whether a new cluster certificate can only be made with daemons stopped.

    That is so when all nodes share one certificate, as in clusters of earlier releases,
    and when the present ones cannot be used, because they have ended for example: a job
    of the master daemon would reach no node. It stays so until the renewal is complete:
    only this node has a new certificate when it is interrupted. It is so, too, on a
    candidate that became the master when the last one was lost in the middle.
    """
    if crypto.has_renewal_note(paths) or _is_unlisted(paths):
        return True
    try:
        if not authority.is_used(paths.server_pem):
            return True
        crypto.load_authority(paths)
        used = [x509.load(paths.client_pem).certificate]
        used += authority.trusted(paths.server_pem)[:1]
    except errors.X509CertError:
        return True
    return min(map(x509.seconds_left, used)) <= 0


def _is_unlisted(paths: Paths) -> bool:
    """Return whether this node is the master, and nodes refuse its certificate."""
    try:
        snapshot = store.read_snapshot(paths.store_db)
    except errors.GenericError:
        return False
    own = snapshot.nodes.get(snapshot.cluster.master_node)
    if own is None or own.name != paths.hostname:
        return False
    try:
        new_master.check_certificate(paths, snapshot, own)
    except errors.OpPrereqError:
        return True
    return False


def _is_refused(paths: Paths) -> bool:
    """Return whether nodes refuse the calls of all others, whoever is the master."""
    if crypto.has_renewal_note(paths):
        return True
    try:
        authority.check_ends(paths.server_pem, paths.client_pem)
    except errors.X509CertError:
        return True
    return False


def steps(paths: Paths, options: RenewOptions) -> list[str]:
    """Return the steps of `renew` as text, in order; no node is contacted."""
    simple = SimpleStore(paths)
    others = _others(simple, paths)
    written = [*options.contents]
    if options.cluster_certificate:
        written.insert(0, _SERVER_PEM)
    names = ", ".join(paths.data(name) for name in written)
    everywhere = ", ".join([*others, paths.hostname])
    planned = [f"log in to {', '.join(others)} as root over SSH"] if others else []
    planned += [
        "block the watcher",
        f"stop all daemons on {everywhere}",
        f"write {names}",
    ]
    if options.cluster_certificate:
        planned.append("issue new certificates for all nodes")
    if others:
        planned.append(f"copy these files to {', '.join(others)}")
    if not options.cluster_certificate:
        return [*planned, f"start all daemons on {everywhere}"]
    return [
        *planned,
        f"start the node daemons on {everywhere}",
        *(f"mark {n} offline, without asking for its copy" for n in options.given_up),
        (
            "record the certificate of the master in the configuration, under a new"
            " term that a majority of the master candidates has promised"
        ),
        f"start the master daemons on {paths.hostname}",
    ]


def _others(simple: SimpleStore, paths: Paths) -> list[str]:
    """Return the names of the other online nodes, sorted.

    The newest configuration counts, too: a node that all nodes refuse to call, itself
    included, does not get the ssconf files of later changes.
    """
    left_out = {simple.master_node(), paths.hostname}
    with contextlib.suppress(errors.GenericError):
        nodes = store.read_snapshot(paths.store_db).nodes.values()
        left_out.update(node.name for node in nodes if node.offline)
    return sorted(name for name in simple.online_nodes() if name not in left_out)


def _connect(
    paths: Paths,
    options: RenewOptions,
    stack: contextlib.ExitStack,
    failed: dict[str, str],
) -> list[_RemoteNode]:
    """Log in to all other online nodes, before anything is changed.

    Those that cannot be reached are added to `failed` if nothing could mark them
    offline before.

    Raises:
        SshError: a node cannot be reached.
    """
    # No node can be marked offline then.
    is_cut_off = options.without_master or _is_refused(paths) or _is_unlisted(paths)
    remotes = []
    for name in _others(SimpleStore(paths), paths):
        try:
            remotes.append(_log_in(paths, options, name, stack))
        except errors.SshError as err:
            if not is_cut_off:
                raise errors.SshError(
                    f"{err}; nothing was changed. If the node is lost, mark it offline"
                    f" first: gnt-node modify --offline yes {name}"
                ) from err
            failed[name] = str(err)
    return remotes


def _log_in(
    paths: Paths, options: RenewOptions, name: str, stack: contextlib.ExitStack
) -> _RemoteNode:
    """Log in to a node until the end of a stack. Raises SshError."""
    simple = SimpleStore(paths)
    identity = dataclasses.replace(
        client.cluster_identity(paths, simple.cluster_name()),
        check_host_key=options.check_host_keys,
    )
    address = simple.node_primary_ips().get(name)
    port = simple.ssh_ports().get(name, _SSH_PORT)
    shell = client.Client(
        name,
        port,
        identity,
        address=address,
        environment=account.node_environment(paths, name),
    )
    stack.enter_context(shell)
    return _RemoteNode(name, address, port, shell)


def _check_lost(paths: Paths, options: RenewOptions, lost: Collection[str]) -> None:
    """Refuse to act without a master that runs, or to give up nodes that answer.

    Raises:
        OpPrereqError: the daemon of the master runs, or such a node answers.
    """
    simple = SimpleStore(paths)
    listed = dict.fromkeys([*simple.node_list(), simple.master_node()])
    for name in [n for n in listed if n in lost or n == simple.master_node()]:
        with contextlib.ExitStack() as stack:
            try:
                remote = _log_in(paths, options, name, stack)
                argv = [paths.daemon_util, "check", _MASTER_DAEMON]
                is_running = not remote.shell.run(argv, timeout_s=_DAEMONS_S).failed
            except errors.SshError:
                continue  # lost, as the administrator wrote
        if is_running:
            raise errors.OpPrereqError(
                f"{_MASTER_DAEMON} runs on {name}: run the command there, without"
                f" --without-master; or stop it with 'daemon-util stop"
                f" {_MASTER_DAEMON}' if it cannot be used",
                ecodes.ECODE_STATE,
            )
        if name in lost:
            raise errors.OpPrereqError(
                f"--lost-candidates: node {name} answers over SSH, so it is not lost:"
                " leave it out; if it cannot be used any more, switch it off",
                ecodes.ECODE_STATE,
            )


# Daemons
@contextlib.contextmanager
def _restarted_on_failure(
    services: Services, paths: Paths, remotes: Sequence[_RemoteNode], feedback: Feedback
) -> Iterator[None]:
    """Start the stopped daemons again if the others cannot be stopped."""
    try:
        yield
    except (errors.GenericError, KeyboardInterrupt) as err:
        failed = _start_nodes(services, paths, remotes, feedback)
        _start_master(services, paths, feedback)
        rest = "".join(f"; node {name}: {text}" for name, text in failed.items())
        raise errors.OpExecError(
            f"nothing was changed: {str(err) or type(err).__name__}{rest}"
        ) from err


def _stop(
    services: Services, paths: Paths, remotes: Sequence[_RemoteNode], feedback: Feedback
) -> None:
    feedback("Stopping master daemons")
    services.stop_master()
    for remote in remotes:
        feedback(f"Stopping daemons on {remote.name}")
        _daemon_util(paths, remote, "stop-all")
    feedback(f"Stopping daemons on {paths.hostname}")
    services.stop_all()


def _start_nodes(
    services: Services, paths: Paths, remotes: Sequence[_RemoteNode], feedback: Feedback
) -> dict[str, str]:
    """Start all daemons but those of the master role.

    Returns:
        Name of other node -> error text.

    Raises:
        OpExecError: the node daemon of the master does not start.
    """
    failed = {}
    for remote in remotes:
        feedback(f"Starting daemons on {remote.name}")
        try:
            # The watcher of that node may have started daemons with the old files.
            _daemon_util(paths, remote, "stop-all")
            _daemon_util(paths, remote, "start-all")
        except errors.GenericError as err:
            failed[remote.name] = str(err)
    feedback(f"Starting daemons on {paths.hostname}")
    services.start("ganeti-noded")
    return failed


def _start_master(services: Services, paths: Paths, feedback: Feedback) -> None:
    feedback(f"Starting master daemons on {paths.hostname}")
    services.start_all()


def _daemon_util(paths: Paths, remote: _RemoteNode, verb: str) -> None:
    result = remote.shell.run([paths.daemon_util, verb], timeout_s=_DAEMONS_S)
    if result.failed:
        raise errors.OpExecError(
            f"node {remote.name}: daemon-util {verb} {result.reason}:"
            f" {result.output.strip()}"
        )


# Files
def _write(paths: Paths, clock: Clock, options: RenewOptions, caller: str) -> list[str]:
    """Write the new files on this node, keeping backups; return the names to copy."""
    contents = dict(options.contents)
    if options.cluster_certificate:
        new = authority.create()
        # The key first: an interrupted run leaves no authority without its key.
        contents[_SERVER_KEY] = new.key_pem
        contents[_SERVER_PEM] = new.certificate_pem
        crypto.write_renewal_note(paths, new.certificate_pem)
    for name in contents:
        _back_up(paths, paths.data(name))
    for name, data in contents.items():
        path = paths.data(name)
        group = daemon_users.reader_group(path, paths)
        gid = -1 if group is None else group
        files.write_file(path, data, mode=_mode(name), gid=gid)
    if not options.cluster_certificate:
        return sorted(contents)
    _back_up(paths, paths.client_pem)
    snapshot = store.read_snapshot(paths.store_db)
    digest = crypto.write_node_certificate(paths, caller, clock.time())
    # The other candidates get new certificates later.
    cluster = snapshot.cluster.replace(candidate_certs={caller: digest})
    snapshot = snapshot.apply([Update("cluster", CLUSTER_KEY, cluster)])
    values = config.ssconf_values(snapshot)
    ssconf.write(paths, {_CANDIDATES: values[_CANDIDATES]})
    # In this order, server-key.pem precedes server.pem on the other nodes as well.
    return [*sorted(contents), f"{FILEPREFIX}{_CANDIDATES}"]


def _mode(name: str) -> int:
    if name.startswith(FILEPREFIX):
        return 0o444
    return _MODES.get(name, _DEFAULT_MODE)


def _back_up(paths: Paths, path: str) -> None:
    if os.path.exists(path):
        _log.info("%s: saved as %s", path, files.backup_file(path, paths.backup_dir))


@contextlib.contextmanager
def _holding(paths: Paths, clock: Clock, caller: str) -> Iterator[store.Engine | None]:
    """Keep the leadership of a store in etcd: other candidates stop one by one.

    Raises:
        OpExecError: it cannot be had.
    """
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(store_access.holding(paths, clock, caller))
        except errors.GenericError as err:
            raise errors.OpExecError(f"nothing was changed: {err}") from err
        yield held


@contextlib.contextmanager
def _editing(
    paths: Paths, clock: Clock, caller: str, held: store.Engine | None
) -> Iterator[config.Edit]:
    """Yield an edit of the configuration on the master; raises as `store_access`."""
    with contextlib.ExitStack() as stack:
        engine = held or stack.enter_context(store_access.opened(paths, clock, caller))
        with config.Config(engine, clock).edit(_OWNER) as edit:
            yield edit


def _record_master(
    paths: Paths,
    caller: str,
    editing: contextlib.AbstractContextManager[config.Edit],
    options: RenewOptions,
) -> None:
    """Record this node's new certificate as the only one that may call nodes.

    The node daemons accept it already, from their ssconf files. The master daemon must
    not start before: it would write the recorded certificate to these files.

    Raises:
        OpExecError: no majority of the master candidates has recorded it.
    """
    try:
        digest = x509.digest(x509.load_certificate(paths.client_pem))
        with editing as edit:
            edit.update_cluster(candidate_certs={caller: digest})
    except (errors.GenericError, KeyboardInterrupt) as err:
        rest = _LOST_HINT if options.without_master and not options.given_up else ""
        raise errors.OpExecError(
            "the node daemons run with the new files, but the master daemon is not"
            " started, because the certificate of the master was not recorded by a"
            f" majority of the master candidates: {str(err) or type(err).__name__}."
            f" When the candidates run, {_REPEAT_HINT}{rest}"
        ) from err


def _copy(
    paths: Paths,
    remotes: Sequence[_RemoteNode],
    names: Sequence[str],
    feedback: Feedback,
) -> dict[str, str]:
    """Copy files of the state directory; return node name -> error text."""
    failed = {}
    candidates = SimpleStore(paths).master_candidates()
    for remote in remotes:
        for name in names:
            # A node that is no candidate must not get the secrets of candidates.
            if name in misc.CANDIDATE_FILES and remote.name not in candidates:
                continue
            feedback(f"Copying {paths.data(name)} to {remote.name}:{remote.port}")
            try:
                remote.shell.put_file(
                    account.path_on(paths, remote.name, paths.data(name)),
                    files.read_file(paths.data(name)),
                    mode=_mode(name),
                )
            except errors.GenericError as err:
                failed[remote.name] = str(err)
                break
    return failed


def _send_certificates(
    paths: Paths,
    clock: Clock,
    remotes: Sequence[_RemoteNode],
    failed: Mapping[str, str],
    feedback: Feedback,
) -> dict[str, str]:
    """Give each node that has the other files a certificate of the new authority.

    Returns:
        Node name -> error text.
    """
    issuer = crypto.load_authority(paths)
    uuids = {
        node.name: node.uuid
        for node in store.read_snapshot(paths.store_db).nodes.values()
    }
    refused = {}
    for remote in remotes:
        if remote.name in failed or remote.name not in uuids:
            continue
        feedback(f"Sending {remote.name} its certificate")
        pair = authority.issue_with_key(
            issuer,
            name=remote.name,
            uuid=uuids[remote.name],
            serial=int(clock.time()),
        )
        path = account.path_on(paths, remote.name, paths.client_pem)
        try:
            remote.shell.put_file(path, pair.pem, mode=_mode(_CLIENT_PEM))
        except errors.GenericError as err:
            refused[remote.name] = str(err)
    return refused


def read_pem(path: str, *, with_key: bool = True) -> bytes:
    """Return the content of a PEM file that the administrator provides.

    Raises:
        OpPrereqError: the file cannot be read, or is not a certificate (with
            ``with_key``: not a certificate with its key).
    """
    try:
        if with_key:
            x509.load(path)
        else:
            x509.load_certificate(path)
        return files.read_file(path)
    except (errors.X509CertError, OSError) as err:
        raise refusal(f"{err}") from err


def read_secret(path: str) -> bytes:
    """Return the content of a file with a secret that the administrator provides.

    Trailing white space is replaced by one newline.

    Raises:
        OpPrereqError: the file cannot be read or is empty.
    """
    try:
        data = files.read_file(path)
    except OSError as err:
        raise refusal(f"cannot read {path}: {err.strerror}") from err
    if not data.strip():
        raise refusal(f"{path}: is empty")
    return data.rstrip() + b"\n"
