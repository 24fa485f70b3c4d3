"""Keys and certificates of a new cluster, and their renewal on this node.

The note of a renewal that is not complete is on the node that makes the new
certificate, from before the first file is replaced until the end, and the nodes may
have different authorities then. It has digests of ``server.pem`` before and after: a
node whose file is neither has got it by a later renewal, made on another node because
this one was lost, and its note is outdated.
"""

import contextlib
import hashlib
from typing import Final

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.model.objects import Cluster, Node
from ganeti.protocols.ssh import authorized_keys, host_keys, keys

RAPI_PEM: Final = "rapi.pem"
SPICE_PEM: Final = "spice.pem"
SPICE_CA_PEM: Final = "spice-ca.pem"
HMAC_KEY: Final = "hmac.key"
DOMAIN_SECRET_FILE: Final = "cluster-domain-secret"  # noqa: S105 a file name
KNOWN_HOSTS: Final = "known_hosts"
PUBLIC_KEYS: Final = "ganeti_pub_keys"


def write_cluster_files(paths: Paths, cluster_name: str) -> None:
    """Write certificates and secrets of a new cluster into the state directory."""
    authority.write(
        authority.create(), server_pem=paths.server_pem, key_path=paths.server_key_pem
    )
    rapi = x509.create_service(cluster_name)
    files.write_file(paths.data(RAPI_PEM), rapi.pem, mode=0o440)
    write_spice(paths, cluster_name)
    files.write_file(paths.hmac_key, x509.new_secret(), mode=0o440)
    files.write_file(paths.data(DOMAIN_SECRET_FILE), x509.new_secret(), mode=0o640)


def write_spice(paths: Paths, cluster_name: str) -> None:
    """Write a new self-signed certificate of SPICE consoles, and its CA file."""
    pair = x509.create_service(cluster_name)
    files.write_file(paths.data(SPICE_PEM), pair.pem, mode=0o440)
    # It is self-signed, so viewers check it with the certificate itself.
    files.write_file(paths.data(SPICE_CA_PEM), pair.certificate_pem, mode=0o440)


def write_node_certificate(paths: Paths, uuid: str, now: float) -> str:
    """Write the certificate of this node, the master; return its digest.

    The authority of the cluster issues it, with the serial number ``now``, in Unix
    seconds.
    """
    pair = authority.issue_with_key(
        load_authority(paths), name=paths.hostname, uuid=uuid, serial=int(now)
    )
    files.write_file(paths.client_pem, pair.pem, mode=0o440)
    return pair.digest


def load_authority(paths: Paths) -> x509.Pair:
    """Return the authority of this cluster, on a master candidate.

    Raises:
        X509CertError: see `authority.load`.
    """
    return authority.load(server_pem=paths.server_pem, key_path=paths.server_key_pem)


def ensure_root_key(paths: Paths, kind: str, bits: int | None) -> keys.KeyPair:
    """Return root's key pair of a type; generate it if it does not exist.

    Private keys never leave the node on which they were generated.
    """
    authorized_keys.ensure_directory(paths.root_ssh_dir)
    path = keys.root_key_path(paths.root_ssh_dir, kind)
    try:
        pem = files.read_file(path)
    except FileNotFoundError:
        pem = b""
    if pem:
        return keys.load(path)
    pair = keys.generate(kind, bits, f"root@{paths.hostname}")
    keys.save(pair, path)
    return pair


def authorized_keys_path(paths: Paths) -> str:
    """Return the path of root's authorized_keys file."""
    return f"{paths.root_ssh_dir}/authorized_keys"


def set_up_ssh(
    paths: Paths, undo: contextlib.ExitStack, *, uuid: str, kind: str, bits: int
) -> None:
    """Authorize the first node's key on the node itself, and record the key."""
    pair, path = ensure_root_key(paths, kind, bits), authorized_keys_path(paths)
    if authorized_keys.add(path, [pair.public]):
        undo.callback(authorized_keys.remove, path, [pair.public])
    authorized_keys.update_node_keys(
        paths.data(PUBLIC_KEYS), "replace_or_add", {uuid: [pair.public.strip()]}
    )


def write_known_hosts(paths: Paths, cluster: Cluster, node: Node) -> None:
    """Write the known_hosts file of a new cluster.

    If the cluster does not manage SSH keys, all nodes are expected to have the RSA host
    key of the first one.
    """
    host_keys.write_known_hosts(
        paths.data(KNOWN_HOSTS),
        cluster.cluster_name,
        host_keys.shared(cluster, [node]),
        {node.name: node.ssh_host_keys},
    )


_MODE = 0o600
_MAX_BYTES = 4096


def _note_path(paths: Paths) -> str:
    return paths.data("renewing-certificates")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _present(paths: Paths) -> str:
    """Return the digest of the cluster certificate; of no file if it is missing."""
    try:
        return _digest(files.read_file(paths.server_pem))
    except FileNotFoundError:
        return _digest(b"")


def write_renewal_note(paths: Paths, new: bytes) -> None:
    """Leave the note, before the file gets its new content."""
    text = f"{_present(paths)}\n{_digest(new)}\n"
    files.write_file(_note_path(paths), text.encode(), mode=_MODE)


def has_renewal_note(paths: Paths) -> bool:
    """Return whether there is a note that is not outdated.

    Releases before this one left an empty one, which counts.
    """
    try:
        text = files.read_file(_note_path(paths), max_size=_MAX_BYTES).decode()
    except FileNotFoundError:
        return False
    digests = text.split()
    return not digests or _present(paths) in digests


def remove_renewal_note(paths: Paths) -> None:
    """Remove the note: this node has the files that all others have, too."""
    files.remove_file(_note_path(paths))
