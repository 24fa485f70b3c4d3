"""Certificates: the cluster's, the nodes', and those of single transfers.

A PEM file of the cluster has the private key first and then the certificate.
`ganeti.protocols.http` decides which certificates may connect.
"""

import dataclasses
import datetime as dt
import hashlib
import secrets
from collections.abc import Collection
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from ganeti.base import errors
from ganeti.base.filesystem import files

KEY_BITS: Final = 2048
#: Common name of the cluster certificate; not a host name, as no host is checked.
CLUSTER_NAME: Final = "ganeti.example.com"
VALIDITY_DAYS: Final = 5 * 365
#: Clocks of nodes may differ; a new certificate must be valid on all of them.
_BACKDATE: Final = dt.timedelta(minutes=10)
_DAY_S: Final = 86400
#: Form of a certificate's digest, see `digest`.
DIGEST_REGEX: Final = "[0-9A-F]{2}(:[0-9A-F]{2}){19}"


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclasses.dataclass(frozen=True)
class Pair:
    """A private key and its certificate."""

    key: PrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return certificate_pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """The key as PEM, not encrypted."""
        return key_pem(self.key)

    @property
    def pem(self) -> bytes:
        """Key and certificate, the content of a PEM file of the cluster."""
        return self.key_pem + self.certificate_pem

    @property
    def digest(self) -> str:
        """The certificate's digest, see the function `digest`."""
        return digest(self.certificate)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def digest(certificate: x509.Certificate) -> str:
    """Return the SHA-1 of the certificate as 20 upper case hex pairs with colons."""
    return format_digest(certificate.public_bytes(serialization.Encoding.DER))


def format_digest(der: bytes) -> str:
    """Return the digest of a certificate in DER form."""
    # The documented form of the file ``ssconf_master_candidates_certs`` is SHA-1.
    return hashlib.sha1(der).digest().hex(":").upper()


def create_self_signed(
    common_name: str = CLUSTER_NAME,
    *,
    validity_s: int = VALIDITY_DAYS * _DAY_S,
    serial: int = 1,
    names: Collection[str] = (),
) -> Pair:
    """Return a new key with a self-signed certificate that may sign others.

    Args:
        common_name: name of the subject.
        validity_s: seconds from now on.
        serial: serial number.
        names: host names of the subject, the only ones that today's clients compare.
    """
    key = new_rsa_key()
    name = subject_of(common_name)
    unsigned = builder(name, name, key.public_key(), serial, validity_s).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    if names:
        hosts = [x509.DNSName(each) for each in names]
        unsigned = unsigned.add_extension(
            x509.SubjectAlternativeName(hosts), critical=False
        )
    return Pair(key, unsigned.sign(key, hashes.SHA256()))


def create_service(cluster_name: str) -> Pair:
    """Return a new key and certificate for connections of users: RAPI, SPICE.

    Args:
        cluster_name: host name of the cluster. Clients that are given another address
            of a node compare the common name.
    """
    # Each name once: a cluster may have the first one itself.
    return create_self_signed(names=dict.fromkeys((CLUSTER_NAME, cluster_name)))


def create_signed(
    issuer: Pair, common_name: str, *, serial: int, validity_s: int | None = None
) -> Pair:
    """Return a new key with a certificate signed by an issuer.

    Args:
        issuer: the cluster's pair.
        common_name: the node's name.
        serial: serial number; by convention the time, in seconds since 1970.
        validity_s: at most the issuer's remaining validity, which is the default.
    """
    key = new_rsa_key()
    rest = int(seconds_left(issuer.certificate))
    unsigned = builder(
        subject_of(common_name),
        issuer.certificate.subject,
        key.public_key(),
        serial,
        rest if validity_s is None else min(rest, validity_s),
    )
    return Pair(key, unsigned.sign(issuer.key, hashes.SHA256()))


def new_rsa_key() -> rsa.RSAPrivateKey:
    """Return a new RSA key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)


def subject_of(common_name: str) -> x509.Name:
    """Return the name of a certificate that has only a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
    serial: int,
    validity_s: int,
) -> x509.CertificateBuilder:
    """Return an unsigned certificate that is valid from now on, without extensions."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + dt.timedelta(seconds=validity_s))
    )


def parse_key(pem: bytes, where: str) -> PrivateKey:
    """Return the key of a PEM text. Raises X509CertError."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as err:
        raise errors.X509CertError(f"{where}: no key: {err}") from err
    if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        raise errors.X509CertError(f"{where}: wanted an RSA or EC key")
    return key


def parse(pem: bytes, where: str) -> Pair:
    """Return the key and certificate of a PEM text.

    Args:
        pem: key and certificate, in any order.
        where: origin for messages, such as a file name.

    Raises:
        X509CertError: key or certificate is missing or damaged.
    """
    try:
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, TypeError) as err:
        raise errors.X509CertError(f"{where}: no key and certificate: {err}") from err
    if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        raise errors.X509CertError(f"{where}: wanted an RSA or EC key")
    return Pair(key, certificate)


def load(path: str) -> Pair:
    """Return the key and certificate of a file.

    Raises:
        X509CertError: the file is unreadable, or key or certificate is missing.
    """
    try:
        return parse(files.read_file(path), path)
    except OSError as err:
        raise errors.X509CertError(f"{path}: {err.strerror}") from err


def load_certificate(path: str) -> x509.Certificate:
    """Return the certificate of a file, which need not hold a key.

    Raises:
        X509CertError: the file is unreadable or damaged.
    """
    try:
        return parse_certificate(files.read_file(path), path)
    except OSError as err:
        raise errors.X509CertError(f"{path}: no certificate: {err}") from err


def load_certificates(path: str) -> list[x509.Certificate]:
    """Return all certificates of a file, at least one.

    Raises:
        X509CertError: the file is unreadable or damaged.
    """
    try:
        return parse_certificates(files.read_file(path), path)
    except OSError as err:
        raise errors.X509CertError(f"{path}: no certificate: {err}") from err


def parse_certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    """Return all certificates of a PEM text, at least one. Raises X509CertError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as err:
        raise errors.X509CertError(f"{where}: no certificate: {err}") from err


def parse_certificate(pem: bytes, where: str) -> x509.Certificate:
    """Return the certificate of a PEM text, which may have a key as well.

    Raises:
        X509CertError: the certificate is missing or damaged.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as err:
        raise errors.X509CertError(f"{where}: no certificate: {err}") from err


def seconds_left(certificate: x509.Certificate) -> float:
    """Return the remaining validity in seconds; negative when expired."""
    now = dt.datetime.now(dt.UTC)
    return (certificate.not_valid_after_utc - now).total_seconds()


def is_self_signed(certificate: x509.Certificate) -> bool:
    """Return whether subject and issuer are the same."""
    return certificate.subject == certificate.issuer


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether another certificate's key signed a certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def write_cluster_certificate(path: str) -> str:
    """Write a new cluster certificate and return its digest."""
    pair = create_self_signed()
    files.write_file(path, pair.pem, mode=0o440)
    return pair.digest


def write_client_certificate(
    path: str, *, server_pem: str, name: str, serial: int
) -> str:
    """Write a new node certificate, signed by the cluster's, and return its digest.

    Raises:
        X509CertError: the cluster certificate cannot be used.
    """
    pair = create_signed(load(server_pem), name, serial=serial)
    files.write_file(path, pair.pem, mode=0o440)
    return pair.digest


def new_secret() -> str:
    """Return a key for message signatures: 40 hex digits and a newline."""
    return f"{secrets.token_hex(20)}\n"
