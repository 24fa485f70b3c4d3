"""``node-daemon-setup``: set up the node daemon of a machine that joins a cluster.

Runs on the new node, over SSH, as the second step of ``gnt-node add``.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from cryptography import x509 as library

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto
from ganeti.node.services import Services
from ganeti.node.storage import allowed
from ganeti.protocols import ssconf
from ganeti.tools import common

_log = logging.getLogger(__name__)
NAME: Final = "node-daemon-setup"
_INPUT: Final[dict[str, common.Check]] = {
    ssh.NDS_CLUSTER_NAME: common.is_text,
    ssh.NDS_NODE_DAEMON_CERTIFICATE: common.is_text,
    ssh.NDS_HMAC: common.is_text,
    ssh.NDS_SSCONF: common.is_text_map,
    ssh.NDS_START_NODE_DAEMON: common.is_bool,
    ssh.NDS_NODE_NAME: common.is_text,
    ssh.NDS_NODE_CERTIFICATE: common.is_text,
}
_REQUIRED: Final = (
    ssh.NDS_NODE_DAEMON_CERTIFICATE,
    ssh.NDS_HMAC,
    ssh.NDS_SSCONF,
    ssh.NDS_NODE_NAME,
)


def main() -> int:
    """Run the tool."""
    return common.run_with_message(
        NAME,
        "Sets up a node daemon.",
        _INPUT,
        lambda paths, message, dry_run: set_up(
            paths, SystemRunner(), message, dry_run=dry_run
        ),
    )


def set_up(
    paths: Paths, process: Runner, message: Mapping[str, Any], *, dry_run: bool
) -> None:
    """Write the files of a cluster's node, and start its daemons.

    Raises:
        OpPrereqError: this node is in another cluster, lacks users of daemons, or the
            message is incomplete.
        X509CertError: the certificate cannot be used.
        OpExecError: a daemon does not start.
    """
    _check_complete(message, common.check_cluster(paths, message))
    services = Services(paths, process)
    services.check_users()
    pem = message[ssh.NDS_NODE_DAEMON_CERTIFICATE]
    cluster_pem, own_pem = _certificates(paths, message, pem.encode())
    values = message[ssh.NDS_SSCONF]
    ssconf.write(paths, values, dry_run=True)
    if dry_run:
        _log.info("dry run: nothing is written")
        return
    files.make_dir(paths.data_dir, 0o755)
    ssconf.write(paths, values)
    files.write_file(paths.hmac_key, message[ssh.NDS_HMAC], mode=0o440)
    files.write_file(paths.server_pem, cluster_pem, mode=0o440)
    files.write_file(paths.client_pem, own_pem, mode=0o440)
    # Of a renewal that this node began as the master, before it was lost.
    crypto.remove_renewal_note(paths)
    _prepare_storage(paths, values)
    services.stop_all()
    if message.get(ssh.NDS_START_NODE_DAEMON, False):
        services.start("ganeti-noded")
        for name in ("ganeti-confd", "ganeti-mond"):
            if services.has(name):
                services.start(name)


def _certificates(
    paths: Paths, message: Mapping[str, Any], pem: bytes
) -> tuple[bytes, bytes]:
    """Return the contents of server.pem and client.pem.

    A node that has a certificate like the given one, which ends later, keeps it: the
    request to add it again may be refused still.

    Raises:
        X509CertError: a certificate or key is missing, damaged, or of another cluster.
    """
    given = message.get(ssh.NDS_NODE_CERTIFICATE)
    if given is None:
        pair = x509.parse(pem, "input: node_daemon_certificate")
        name = message[ssh.NDS_NODE_NAME]
        own = x509.create_signed(pair, name, serial=int(time.time()))
        return pair.pem, own.pem
    trusted = x509.parse_certificates(pem, "input: node_daemon_certificate")
    own = x509.parse(given.encode(), "input: node_certificate")
    if not x509.is_issued_by(own.certificate, trusted[0]):
        raise errors.X509CertError(
            "input: node_certificate: is not signed by node_daemon_certificate"
        )
    present = _present(paths, trusted[0], own)
    return b"".join(map(x509.certificate_pem, trusted)), (present or own).pem


def _present(
    paths: Paths, issuer: library.Certificate, given: x509.Pair
) -> x509.Pair | None:
    """Return this node's key and certificate if they are as good as the given ones."""
    try:
        pair = x509.load(paths.client_pem)
        names = authority.names_of(pair.certificate)
    except (errors.X509CertError, ValueError):  # the latter for extensions
        return None
    is_same = (
        x509.is_issued_by(pair.certificate, issuer)
        and names == authority.names_of(given.certificate)
        and pair.key.public_key() == pair.certificate.public_key()
    )
    lasts = x509.seconds_left(pair.certificate) > x509.seconds_left(given.certificate)
    return pair if is_same and lasts else None


def _prepare_storage(paths: Paths, values: Mapping[str, str]) -> None:
    """Let disk files be in the cluster's directories, if these are the built-in ones.

    A directory of shared storage is not created: it is a mount point.
    """
    own, shared = (
        values.get(name, "").strip()
        for name in ("file_storage_dir", "shared_file_storage_dir")
    )
    listed = allowed.write_default_list(paths, [own, shared])
    if listed:
        _log.info("%s lists %s", allowed.list_file(paths), ", ".join(listed))
    if own:
        allowed.make_allowed_directory(paths, own)


def _check_complete(message: Mapping[str, Any], name: str) -> None:
    for key in _REQUIRED:
        if key not in message:
            raise errors.OpPrereqError(
                f"input: key {key!r} is missing", ecodes.ECODE_INVAL
            )
    cluster = message[ssh.NDS_SSCONF].get("cluster_name", "").strip()
    if cluster != name:
        raise errors.OpPrereqError(
            f"input: ssconf: cluster_name: wanted {name!r}, found {cluster!r}",
            ecodes.ECODE_INVAL,
        )
