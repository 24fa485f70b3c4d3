"""The master role moves to this node: what its own files need, and `lead` in etcd.

The master daemon starts only where the file ``ssconf_master_node`` names the own node.
A node that cannot record that must not become the master: the old one, which the store
does not name any more, would refuse to start, too.

With the store in etcd, its servers say who is master: by the lease of the leadership.
`lead` takes it, and records this node as the master in the same store; nothing of an
earlier master can be written after that. So no vote of nodes and no survey of copies is
needed.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import ssh
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.base.tls import authority, x509
from ganeti.master import config
from ganeti.model.objects import Node, Snapshot
from ganeti.node.services import Services
from ganeti.operations import master_ip
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.rpc import calls
from ganeti.store.etcd import Claim, Servers, open_etcd

_log = logging.getLogger(__name__)

_OWNER: Final = "master-failover"
#: Seconds for the old master to remove the address of the cluster; it may be dead.
_OLD_S: Final = 5.0
#: Seconds for the other candidates to answer whether they accept this node: dead ones
#: lengthen a takeover by this time.
ASK_S: Final = 2.0


@contextlib.contextmanager
def lead(
    paths: Paths,
    clock: Clock,
    servers: Servers,
    own: Node,
    claim: Claim,
    *,
    is_certain: bool = False,
) -> Iterator[tuple[store.Engine, Node | None]]:
    """Take the leadership, and record this node as the master.

    The leadership lasts until the end of the block. A master daemon that is started in
    the block takes it over.

    Args:
        paths: of this node.
        clock: measures the lease.
        servers: of the store.
        own: this node.
        claim: whether another master is replaced.
        is_certain: lead although nodes would refuse the calls of this node.

    Yields:
        The store, and the master before; None if that was this node.

    Raises:
        TermError: another node is master.
        StorageError: no majority of the servers answers.
        OpPrereqError: this node is not a master candidate, or cannot record that it is
            the master, or see `check_certificate`; nothing was changed.
    """
    check_start(paths, own)
    if not is_certain:
        check_certificate(paths, store.read_snapshot(paths.store_db), own)
    opened = open_etcd(servers, clock=clock, node=own.uuid, claim=claim)
    try:
        snapshot = opened.snapshot()
        check_candidate(snapshot, own)
        if not is_certain:
            check_certificate(paths, snapshot, own)
        with recorded_here(paths, snapshot, own):
            old = record_master(config.Config(opened, clock), own)
        yield opened, old
    finally:
        opened.close()


def check_candidate(snapshot: Snapshot, own: Node) -> None:
    """Refuse to lead on a node that may not.

    Raises:
        OpPrereqError: it is no master candidate.
    """
    present = snapshot.nodes.get(own.uuid)
    if present is None or not present.master_candidate or present.offline:
        raise errors.OpPrereqError(
            f"{own.name} is not a master candidate", ecodes.ECODE_STATE
        )


def record_master(opened: config.Config, own: Node) -> Node | None:
    """Record a node as the master; return the master before if it was another one."""
    snapshot = opened.snapshot()
    old = snapshot.nodes.get(snapshot.cluster.master_node)
    if old is not None and old.uuid == own.uuid:
        return None
    with opened.edit(_OWNER) as edit:
        edit.update_cluster(master_node=own.uuid)
    return old


def check_certificate(paths: Paths, snapshot: Snapshot, own: Node) -> None:
    """Refuse to lead if nodes would refuse the calls of this node.

    A candidate's certificate is recorded after its role. The old master may have been
    lost in between.

    Raises:
        OpPrereqError: the certificate of this node is not that of a master candidate.
    """
    recorded = snapshot.cluster.candidate_certs
    if not recorded:
        return
    known = {recorded.get(f"{own.uuid}{suffix}") for suffix in ("", ssh.CRYPTO_NEXT)}
    try:
        digest = x509.digest(x509.load_certificate(paths.client_pem))
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), ecodes.ECODE_STATE) from err
    if digest not in known:
        raise errors.OpPrereqError(
            f"{own.name}: its certificate is not recorded as that of a candidate, so"
            " nodes would refuse its calls; the master records it, or another candidate"
            " that becomes the master. If there is none, use 'gnt-cluster"
            " master-failover --no-voting', then 'gnt-cluster renew-crypto"
            " --new-cluster-certificate'",
            ecodes.ECODE_STATE,
        )


def _check_accepted(paths: Paths, own: Node) -> None:
    """Refuse to take over if the other candidates refuse the calls of this node.

    The certificate may be recorded, and the master was lost before nodes had the new
    list of certificates. The next master sends it.

    Raises:
        OpPrereqError: more of those that answer refuse this node than accept it.
    """
    snapshot = store.read_snapshot(paths.store_db)
    left_out = {own.uuid, snapshot.cluster.master_node}
    others = [
        node.uuid
        for node in snapshot.nodes.values()
        if node.master_candidate and not node.offline and node.uuid not in left_out
    ]
    runner = rpc.NetworkRunner(lambda: snapshot, paths, None)
    try:
        answers = runner.call_nodes(
            others, calls.master_node_name(), timeout_s=ASK_S
        ).values()
    finally:
        runner.close()
    refused = sum(answer.refused for answer in answers)
    if refused > sum(not answer.failed for answer in answers):
        raise errors.OpPrereqError(
            f"{own.name}: {refused} of {len(others)} other master candidates refuse its"
            " certificate; one of them has to become the master",
            ecodes.ECODE_STATE,
        )


def take_over(
    paths: Paths, process: Runner, clock: Clock, servers: Servers, own: Node
) -> None:
    """Become master without an administrator, since no node leads.

    Raises:
        TermError: another candidate was faster.
        StorageError: no majority of the servers answers.
        OpPrereqError: this node is not a master candidate, or nodes refuse its calls.
        OpExecError: the master daemons do not start; the leadership was given up.
    """
    _check_accepted(paths, own)
    claim = Claim(needs_vacancy=True)
    with lead(paths, clock, servers, own, claim) as (opened, old):
        _log.warning(
            "no node leads: taking over, old master: %s",
            own.name if old is None else old.name,
        )
        dropping = None
        if old is not None:
            dropping = threading.Thread(
                target=_drop_address, args=(paths, opened, old), daemon=True
            )
            dropping.start()
        Services(paths, process).start_master()
        if dropping is not None:
            dropping.join()
    _log.warning("%s is the master now", own.name)


def _drop_address(paths: Paths, opened: store.Engine, old: Node) -> None:
    """Have the old master remove the address of the cluster, if it answers."""
    snapshot: Snapshot = opened.snapshot()
    cluster = snapshot.cluster
    runner = rpc.NetworkRunner(lambda: snapshot, paths, opened.term)
    try:
        answer = runner.call_node(
            old.uuid,
            calls.node_deactivate_master_ip(
                master_ip.parameters(cluster), cluster.use_external_mip_script
            ),
            timeout_s=_OLD_S,
        )
    finally:
        runner.close()
    if answer.failed:
        _log.warning(
            "%s", answer.describe("the old master did not remove the cluster's address")
        )


#: The file that names the master.
KEY: Final = "master_node"


def check_start(paths: Paths, own: Node) -> None:
    """Refuse a node on which the master daemon would not start.

    Raises:
        OpPrereqError: its name does not resolve, or its certificate is of another node.
    """
    try:
        netutils.lookup(paths.hostname, paths)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master: its own name does not resolve:"
            f" {err.args[-1]}",
            ecodes.ECODE_RESOLVER,
        ) from err
    present = authority.node_uuid(paths.client_pem)
    if present not in (None, own.uuid):
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master: {paths.client_pem}: wanted a"
            f" certificate of {own.uuid}, found one of {present}",
            ecodes.ECODE_STATE,
        )


@contextlib.contextmanager
def recorded_here(paths: Paths, snapshot: Snapshot, own: Node) -> Iterator[None]:
    """Have the files of this node name it as the master.

    The store records the new master in the block; if that fails, this node names the
    former one again.

    Args:
        paths: of this node.
        snapshot: the configuration, which may still name the former master.
        own: this node.

    Raises:
        OpPrereqError: the file cannot be written; the block was not entered.
    """
    store = ssconf.SimpleStore(paths)
    former = store.get_or(KEY, "")
    try:
        _write(paths, {**config.ssconf_values(snapshot), KEY: own.name})
        if store.master_node() != own.name:
            raise errors.ConfigurationError(f"{store.path(KEY)} names another node")
    except (errors.GenericError, OSError) as err:
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master, since it cannot record that: {err};"
            " the configuration was not changed",
            ecodes.ECODE_ENVIRON,
        ) from err
    try:
        yield
    except BaseException:
        with contextlib.suppress(errors.GenericError, OSError):
            # A faster master may have written its own name since.
            if store.master_node() == own.name:
                _write(paths, {KEY: former})
        raise


def _write(paths: Paths, values: dict[str, str]) -> None:
    """Write ssconf files; other keys that are refused do not matter to a new master."""
    try:
        ssconf.write(paths, values)
    except errors.ConfigurationError as err:
        _log.warning("%s", err)
