"""The certificate authority of a cluster, and the node certificates that it issues.

``server.pem`` has the certificate of the authority, on all nodes. Its key is in a file
of its own, ``server-key.pem``, on master candidates only. The certificate of a node
(``client.pem``) identifies the node as a server and as a caller; the node makes its key
itself and sends the public part in a request.

A certificate names its node as DNS names: the UUID, which calls of the master demand,
and the name, for tools that run before the UUID is known. A node has no influence on
these names: of a request, only the public key is used.

Clusters of earlier releases have one certificate with its key on all nodes. `is_one`
distinguishes both kinds.

While the authority is renewed, ``server.pem`` has two certificates: nodes trust both,
and the first one issues. ``server-key.pem`` has both keys then, the new one first.
"""

import datetime as dt
import os
import re
from collections.abc import Sequence
from typing import Final

from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import x509

#: Mode of the key file.
KEY_MODE: Final = 0o600
_CERTIFICATE_MODE: Final = 0o440
#: Largest request that is parsed, in bytes; one of a P-256 key has about 450.
_MAX_REQUEST: Final = 8192
_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: The library reads one key of a text; in a renewal the file has two.
_KEY: Final = re.compile(
    b"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \\1-----\n?", re.DOTALL
)


def create() -> x509.Pair:
    """Return a new authority: a certificate that signs others and nothing else."""
    key = x509.new_rsa_key()
    name = x509.subject_of(x509.CLUSTER_NAME)
    lifetime_s = int(dt.timedelta(days=x509.VALIDITY_DAYS).total_seconds())
    certificate = (
        x509.builder(name, name, key.public_key(), 1, lifetime_s)
        # No certificate that it issues may sign others.
        .add_extension(library.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            library.SubjectKeyIdentifier.from_public_key(key.public_key()),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return x509.Pair(key, certificate)


def _usage(*, signs_certificates: bool) -> library.KeyUsage:
    return library.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def is_one(certificate: library.Certificate) -> bool:
    """Return whether a certificate is an authority's, which no server presents.

    The cluster certificate of earlier releases has no restriction of its use.
    """
    try:
        usage = certificate.extensions.get_extension_for_class(library.KeyUsage).value
    except library.ExtensionNotFound:
        return False
    return usage.key_cert_sign and not usage.digital_signature


def is_used(server_pem: str) -> bool:
    """Return whether the nodes of this cluster have certificates of their own.

    Raises:
        X509CertError: the cluster certificate is damaged.
    """
    return os.path.exists(server_pem) and is_one(x509.load_certificate(server_pem))


def write(authority: x509.Pair, *, server_pem: str, key_path: str) -> None:
    """Write an authority's certificate and, before it, its key."""
    files.write_file(key_path, authority.key_pem, mode=KEY_MODE)
    files.write_file(server_pem, authority.certificate_pem, mode=_CERTIFICATE_MODE)


def trusted(server_pem: str) -> list[library.Certificate]:
    """Return the authorities that a node trusts, the issuing one first.

    In clusters of earlier releases it is the certificate of the cluster.

    Raises:
        X509CertError: the file is missing or damaged.
    """
    return x509.load_certificates(server_pem)


def keys_of(pem: bytes, where: str) -> list[x509.PrivateKey]:
    """Return the keys of a key file, in order. Raises X509CertError."""
    blocks = [match.group() for match in _KEY.finditer(pem)]
    return [x509.parse_key(text, where) for text in blocks]


def load_all(*, server_pem: str, key_path: str) -> list[x509.Pair]:
    """Return the authorities whose keys a candidate has, in the order of the keys.

    The first one is the newest. Keys without a certificate are left out.

    Raises:
        X509CertError: a file is missing or damaged.
    """
    certificates = trusted(server_pem)
    return [
        x509.Pair(key, certificate)
        for key in keys_of(_read_keys(key_path), key_path)
        for certificate in certificates
        if certificate.public_key() == key.public_key()
    ]


def keys_pem(pairs: Sequence[x509.Pair]) -> bytes:
    """Return the content of the key file for authorities, the newest first."""
    return b"".join(pair.key_pem for pair in pairs)


def certificates_pem(pairs: Sequence[x509.Pair]) -> bytes:
    """Return the content of ``server.pem`` for authorities, the issuing one first."""
    return b"".join(pair.certificate_pem for pair in pairs)


def _read_keys(key_path: str) -> bytes:
    try:
        return files.read_file(key_path)
    except OSError as err:
        raise errors.X509CertError(
            f"{key_path}: {err.strerror}; copy this file from another master candidate"
        ) from err


def load(*, server_pem: str, key_path: str) -> x509.Pair:
    """Return the authority of this cluster, on a master candidate.

    Raises:
        X509CertError: a file is missing or damaged, or they do not belong together.
    """
    certificate = x509.load_certificate(server_pem)
    keys = keys_of(_read_keys(key_path), key_path)
    # During a renewal the file has the keys of both authorities.
    for key in keys:
        if key.public_key() == certificate.public_key():
            return x509.Pair(key, certificate)
    problem = f"is not the key of {server_pem}" if keys else "has no key"
    raise errors.X509CertError(
        f"{key_path}: {problem}; copy this file from another master candidate"
    )


def new_request(name: str) -> tuple[bytes, bytes]:
    """Return a new P-256 key and a request for its certificate, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        library.CertificateSigningRequestBuilder()
        .subject_name(x509.subject_of(name))
        .sign(key, hashes.SHA256())
    )
    return x509.key_pem(key), request.public_bytes(serialization.Encoding.PEM)


def requested_key(pem: str) -> ec.EllipticCurvePublicKey:
    """Return the public key of a node's request; everything else in it is ignored.

    Raises:
        X509CertError: the text is no request, its signature is wrong, or the key is
            not of the curve P-256.
    """
    if len(pem) > _MAX_REQUEST:
        raise errors.X509CertError(
            f"certificate request: wanted at most {_MAX_REQUEST} characters, found"
            f" {len(pem)}"
        )
    try:
        request = library.load_pem_x509_csr(pem.encode())
        key = request.public_key()
        # The signature proves that the sender has the private key.
        is_valid = request.is_signature_valid
    except (ValueError, TypeError, library.InvalidVersion) as err:
        raise errors.X509CertError(f"certificate request: damaged: {err}") from err
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
        key.curve, ec.SECP256R1
    ):
        raise errors.X509CertError("certificate request: wanted a key of P-256")
    if not is_valid:
        raise errors.X509CertError(
            "certificate request: is not signed with the key that it has"
        )
    return key


def issue(
    authority: x509.Pair,
    key: ec.EllipticCurvePublicKey,
    *,
    name: str,
    uuid: str | None,
    serial: int,
    validity_s: int | None = None,
) -> library.Certificate:
    """Return a node's certificate.

    Args:
        authority: of the cluster.
        key: the node's public key.
        name: of the node.
        uuid: of the node; None for a machine that is being added, which has none yet.
        serial: serial number; by convention the time, in seconds since 1970.
        validity_s: at most the authority's remaining validity, which is the default.
    """
    # A certificate that outlives its issuer would be refused from the issuer's end on.
    rest = int(x509.seconds_left(authority.certificate))
    names = [library.DNSName(text) for text in (uuid, name) if text]
    issuer_id = library.AuthorityKeyIdentifier.from_issuer_public_key(
        authority.key.public_key()
    )
    return (
        x509.builder(
            x509.subject_of(name),
            authority.certificate.subject,
            key,
            serial,
            rest if validity_s is None else min(rest, validity_s),
        )
        .add_extension(library.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            library.ExtendedKeyUsage(
                # A node daemon answers calls with the certificate with which the node
                # makes them.
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(library.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def issue_with_key(
    authority: x509.Pair,
    *,
    name: str,
    uuid: str | None,
    serial: int,
    validity_s: int | None = None,
) -> x509.Pair:
    """Return a new P-256 key with its certificate, see `issue`."""
    key = ec.generate_private_key(ec.SECP256R1())
    return x509.Pair(
        key,
        issue(
            authority,
            key.public_key(),
            name=name,
            uuid=uuid,
            serial=serial,
            validity_s=validity_s,
        ),
    )


def node_uuid(client_pem: str) -> str | None:
    """Return the UUID that a node's own certificate names.

    Returns:
        None for a file that is missing or damaged, and in clusters of earlier releases,
        whose certificates have no UUID.
    """
    try:
        names = names_of(x509.load_certificate(client_pem))
    except (errors.X509CertError, ValueError):  # the latter for extensions
        return None
    return next(filter(_UUID.fullmatch, names), None)


def check_ends(*paths: str) -> None:
    """Check that what this node presents and trusts has not ended.

    Args:
        paths: files of certificates. One that cannot be read is left to its user; of
            several certificates in a file, one that is valid is enough.

    Raises:
        X509CertError: one has ended, so no node can be called.
    """
    for path in paths:
        try:
            # During a renewal the file has the former authority, too, which may have
            # ended.
            ends = [each.not_valid_after_utc for each in x509.load_certificates(path)]
        except errors.X509CertError:
            continue
        if ends and max(ends) < dt.datetime.now(dt.UTC):
            raise errors.X509CertError(
                path,
                f"ended on {max(ends):%Y-%m-%d %H:%M} UTC, so nodes and this one refuse"
                " each other's calls; if the clock of this node is right, run"
                " gnt-cluster renew-crypto --new-cluster-certificate on the master,"
                " which needs no calls then; if the master is lost, run it on another"
                " master candidate, with --without-master",
            )


def names_of(certificate: library.Certificate) -> tuple[str, ...]:
    """Return the DNS names of a certificate: UUID and name of its node."""
    try:
        extension = certificate.extensions.get_extension_for_class(
            library.SubjectAlternativeName
        )
    except library.ExtensionNotFound:
        return ()
    return tuple(extension.value.get_values_for_type(library.DNSName))
