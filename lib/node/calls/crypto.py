"""Procedures for certificates: this node's own, and those of single transfers."""

import os
import re
import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssh
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.node.calls.membership import roles
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols.ssh import host_keys, keys

# SSH host keys of this node: the present ones, and their replacement in steps.
#
# New keys wait in files of their own until the master has recorded them and all nodes
# know them; then `use` takes them into use. Each step can be repeated after an end.

#: Suffix of the files of keys that wait.
WAITING_HOST_KEYS: Final = ".ganeti-new"
#: Lengths that `ssh-keygen -A` chooses.
_BITS: Final = {"rsa": 3072}
#: Seconds until a reloaded SSH server must present the new keys.
_RELOAD_S: Final = 10.0
_PAUSE_S: Final = 0.1


def present_host_keys(node: LocalNode) -> tuple[str, ...]:
    """Return the keys in the usual files, and those that the SSH server presents.

    Raises:
        OpPrereqError: a file is damaged, or the server uses other files.
        SshError: the server does not answer.
    """
    in_files = host_keys.own(node.paths.sshd_dir)
    presented = _presented(node)
    if in_files and not set(in_files) & set(presented):
        # Files that were replaced without a reload, or keys in other files.
        roles.daemon_util(node, "reload-ssh-keys")
        presented = _when(node, lambda shown: bool(set(in_files) & set(shown)))
    if not set(in_files) & set(presented):
        raise errors.OpPrereqError(
            f"node {node.paths.hostname}: its SSH server does not present the host keys"
            f" in {node.paths.sshd_dir}/ssh_host_*_key, but those of other files",
            "wrong_state",
        )
    return tuple(dict.fromkeys((*in_files, *presented)))


def make_host_keys(node: LocalNode) -> tuple[str, ...]:
    """Make new keys of the types that this node has, unless they wait; return them."""
    directory = node.paths.sshd_dir
    for kind in keys.ALGORITHMS:
        path = keys.host_key_path(directory, kind)
        if not os.path.exists(path):
            continue
        try:
            keys.load(path + WAITING_HOST_KEYS)
        except errors.OpPrereqError:
            # Missing, or half of it: nobody knows it yet.
            files.remove_file(path + WAITING_HOST_KEYS)
            comment = f"root@{node.paths.hostname}"
            keys.save(
                keys.generate(kind, _BITS.get(kind), comment), path + WAITING_HOST_KEYS
            )
    return host_keys.own(directory, WAITING_HOST_KEYS)


def use_host_keys(node: LocalNode) -> tuple[str, ...]:
    """Take the waiting keys into use; return what the SSH server presents then.

    The replaced keys stay beside the new ones, as backups.

    Raises:
        OpExecError: the server cannot be reloaded.
        SshError: it does not answer, or presents other keys.
    """
    directory = node.paths.sshd_dir
    waiting = []
    for kind in keys.ALGORITHMS:
        path = keys.host_key_path(directory, kind)
        if os.path.exists(f"{path}{WAITING_HOST_KEYS}.pub"):
            keys.save(keys.load(path + WAITING_HOST_KEYS), path)
            waiting.append(path + WAITING_HOST_KEYS)
    roles.daemon_util(node, "reload-ssh-keys")
    presented = _reloaded(node)
    for path in waiting:
        files.remove_file(f"{path}.pub")
        files.remove_file(path)
    return presented


def _reloaded(node: LocalNode) -> tuple[str, ...]:
    """Return the presented keys, when they are those in the files."""
    wanted = set(host_keys.own(node.paths.sshd_dir))
    presented = _when(node, lambda shown: set(shown) <= wanted)
    if not set(presented) <= wanted:
        raise errors.SshError(
            f"node {node.paths.hostname}: its SSH server presents other host keys"
            f" than those in {node.paths.sshd_dir}/ssh_host_*_key; restart it"
        )
    return presented


def _when(
    node: LocalNode, is_wanted: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """Return the presented keys of a reloaded server, at last those after a time.

    The server may refuse connections for a moment: it gives its socket up and opens it
    again, and nothing waits for that where systemd does not run.

    Raises:
        SshError: it does not answer in all that time.
    """
    deadline = node.clock.monotonic() + _RELOAD_S
    while True:
        is_late = node.clock.monotonic() > deadline
        try:
            presented = _presented(node)
        except errors.SshError:
            if is_late:
                raise
        else:
            if is_late or is_wanted(presented):
                return presented
        node.clock.wait(threading.Event(), _PAUSE_S)


def _presented(node: LocalNode) -> tuple[str, ...]:
    from ganeti.protocols.ssh import client

    name = node.paths.hostname
    port = node.ssconf.ssh_ports().get(name, 22)
    return client.presented_keys(name, node.ssconf.node_primary_ips()[name], port)


_SSL: Final = "ssl"
#: Longest validity of a transfer's certificate, in seconds.
MAX_VALIDITY_S: Final = 7 * 86400
#: Longest list of authorities, in characters; one certificate has about 1,200.
_MAX_AUTHORITIES: Final = 16384
_HOST_KEYS: Final = {
    ssh.CRYPTO_GET: present_host_keys,
    ssh.CRYPTO_MAKE: make_host_keys,
    ssh.CRYPTO_USE: use_host_keys,
}
_TRANSFER_NAME: Final = re.compile(r"x509-[0-9]+-[0-9a-f]+")


@procedure("node_crypto_tokens")
def node_crypto_tokens(
    node: LocalNode, token_request: list[tuple[str, str, dict[str, Any] | None]]
) -> list[tuple[str, str]]:
    """Return certificate digests of this node; some actions change the certificate.

    ``get`` returns the digest of the present certificate. ``request`` makes a new key
    and returns a certificate request as PEM. ``install`` takes the certificate that
    the master has issued. ``create`` issues one with the key of the cluster
    certificate, which nodes have only in clusters of earlier releases. ``use`` takes
    a certificate that one of both left in a file of its own into use. ``trust``
    replaces the authorities that this node trusts. SSH host keys have actions of their
    own, see `_HOST_KEYS`.

    Raises:
        ProgrammerError: unknown type, action or option.
        X509CertError: a certificate is missing, damaged, or not one of this cluster.
    """
    return [
        (kind, _token(node, kind, action, options or {}))
        for kind, action, options in token_request
    ]


def _token(node: LocalNode, kind: str, action: str, options: dict[str, Any]) -> str:
    if kind == ssh.CRYPTO_TYPE_SSH_HOST and action in _HOST_KEYS:
        return "\n".join(_HOST_KEYS[action](node))
    if kind != _SSL:
        raise errors.ProgrammerError(f"crypto token: unknown type {kind!r}")
    path = _certificate_path(node, options.get(ssh.CRYPTO_OPTION_CERT_FILE))
    if action == "get":
        return x509.digest(x509.load_certificate(path))
    if action == ssh.CRYPTO_REQUEST:
        return _request(node)
    if action == ssh.CRYPTO_TRUST:
        return _trust(node, str(options.get(ssh.CRYPTO_OPTION_AUTHORITIES)))
    if action == ssh.CRYPTO_USE:
        return _use(node, str(options.get(ssh.CRYPTO_OPTION_DIGEST)))
    if action not in ("create", ssh.CRYPTO_INSTALL):
        raise errors.ProgrammerError(f"crypto token: unknown action {action!r}")
    if path == node.paths.server_pem:
        raise errors.ProgrammerError(
            "crypto token: the cluster certificate cannot be created by this call"
        )
    if action == ssh.CRYPTO_INSTALL:
        return _install(node, path, str(options.get(ssh.CRYPTO_OPTION_CERTIFICATE)))
    serial = options.get(ssh.CRYPTO_OPTION_SERIAL_NO)
    return x509.write_client_certificate(
        path,
        server_pem=node.paths.server_pem,
        name=node.paths.hostname,
        serial=int(node.clock.time()) if serial is None else int(serial),
    )


def _pending_key(node: LocalNode) -> str:
    """Return the file of the key whose certificate has been requested."""
    return f"{node.paths.client_pem}.key"


def _request(node: LocalNode) -> str:
    """Make a key and keep it until its certificate arrives; return the request."""
    key, request = authority.new_request(node.paths.hostname)
    files.write_file(_pending_key(node), key, mode=0o400)
    return request.decode()


def _install(node: LocalNode, path: str, pem: str) -> str:
    """Take a certificate of the requested key into use; return its digest.

    Raises:
        X509CertError: it is of another key, or not issued by the authority of the
            cluster.
    """
    pending = _pending_key(node)
    try:
        key = files.read_file(pending)
    except OSError as err:
        raise errors.X509CertError(f"{pending}: {err.strerror}") from err
    pair = x509.parse(key + pem.encode(), "issued certificate")
    if pair.key.public_key() != pair.certificate.public_key():
        raise errors.X509CertError(
            "issued certificate: is not of the key that this node requested it for"
        )
    trusted = authority.trusted(node.paths.server_pem)
    if not any(x509.is_issued_by(pair.certificate, issuer) for issuer in trusted):
        raise errors.X509CertError(
            f"issued certificate: is not signed by {node.paths.server_pem}"
        )
    files.write_file(path, pair.pem, mode=0o440)
    files.remove_file(pending)
    return pair.digest


def _use(node: LocalNode, digest: str) -> str:
    """Take the waiting certificate into use, and return its digest; can be repeated.

    The replaced one is kept with the backups.

    Raises:
        X509CertError: neither the waiting certificate nor the present one is wanted.
    """
    path = node.paths.client_pem
    waiting = path + ssh.CRYPTO_WAITING
    if os.path.exists(waiting) and _digest_of(waiting) == digest:
        if os.path.exists(path) and _digest_of(path) != digest:
            files.backup_file(path, node.paths.backup_dir)
        files.write_file(path, x509.load(waiting).pem, mode=0o440)
        files.remove_file(waiting)
    elif _digest_of(path) != digest:
        raise errors.X509CertError(
            f"{waiting}: wanted the certificate {digest}, which is not there"
        )
    return digest


def _trust(node: LocalNode, pem: str) -> str:
    """Replace the trusted authorities, the issuing one first; return its digest.

    The present certificate of this node stays valid, and one of the present authorities
    is among the new ones, so the node never trusts strangers alone.

    Raises:
        X509CertError: the authorities cannot replace the present ones.
    """
    where = node.paths.server_pem
    if len(pem) > _MAX_AUTHORITIES:
        raise errors.X509CertError(
            f"{where}: wanted at most {_MAX_AUTHORITIES} characters, found {len(pem)}"
        )
    given = x509.parse_certificates(pem.encode(), "given authorities")
    if not all(map(authority.is_one, given)) or not authority.is_used(where):
        raise errors.X509CertError(
            f"{where}: wanted certificates of authorities, in a cluster that has one"
        )
    present = authority.trusted(where)
    if not {x509.digest(each) for each in present} & {x509.digest(e) for e in given}:
        raise errors.X509CertError(
            f"{where}: none of the given authorities is trusted here; run gnt-node add"
            f" --readd for node {node.paths.hostname}"
        )
    own = x509.load_certificate(node.paths.client_pem)
    if not any(x509.is_issued_by(own, issuer) for issuer in given):
        raise errors.X509CertError(
            f"{node.paths.client_pem}: was issued by none of the given authorities"
        )
    digest = x509.digest(given[0])
    # Before: the term counts while any of the trusted authorities is the one in its
    # file, and the new first one is trusted already or not yet the first one.
    if node.terms is not None and given[0] in present:
        node.terms.move_to(digest)
    data = b"".join(map(x509.certificate_pem, given))
    if data != files.read_file(where):
        files.backup_file(where, node.paths.backup_dir)
        files.write_file(where, data, mode=0o440)
    return digest


def _digest_of(path: str) -> str:
    """Return the digest of a certificate file, empty if it is damaged."""
    try:
        return x509.digest(x509.load_certificate(path))
    except errors.X509CertError:
        return ""


def _certificate_path(node: LocalNode, wanted: str | None) -> str:
    """Return the local path of one of this node's certificate files."""
    own = node.paths.client_pem
    path = own if wanted is None else node.paths.localize(wanted)
    if path not in (own, own + ssh.CRYPTO_WAITING, node.paths.server_pem):
        raise errors.ProgrammerError(f"{wanted}: not a certificate file of a node")
    return path


def _transfers(node: LocalNode) -> str:
    return f"{node.paths.run_dir}/crypto"


@procedure("x509_cert_create")
def x509_cert_create(node: LocalNode, validity: int) -> tuple[str, str]:
    """Create key and certificate for one transfer; return name and certificate."""
    if validity < 1:
        raise errors.X509CertError(
            f"certificate validity: wanted at least 1 second, found {validity}"
        )
    pair = x509.create_self_signed(
        node.paths.hostname,
        validity_s=min(validity, MAX_VALIDITY_S),
        serial=secrets.randbits(64) or 1,
    )
    name = f"x509-{int(node.clock.time())}-{secrets.token_hex(8)}"
    directory = f"{_transfers(node)}/{name}"
    os.makedirs(_transfers(node), mode=0o700, exist_ok=True)
    os.mkdir(directory, 0o700)
    files.write_file(f"{directory}/key", pair.key_pem, mode=0o400)
    files.write_file(f"{directory}/cert", pair.certificate_pem, mode=0o400)
    return name, pair.certificate_pem.decode()


def transfer_certificate(node: LocalNode, name: str) -> tuple[str, str]:
    """Return the paths of the key and the certificate that `x509_cert_create` made.

    Raises:
        X509CertError: no transfer certificate has this name.
    """
    directory = f"{_transfers(node)}/{name}"
    if not _TRANSFER_NAME.fullmatch(name) or not os.path.isdir(directory):
        raise errors.X509CertError(f"transfer certificate {name!r}: not found")
    return f"{directory}/key", f"{directory}/cert"
