"""Signatures of clusters that exchange instances: made with the cluster domain secret.

A move between clusters passes certificates, names of keys and addresses through a
client that neither cluster trusts. Each value has a message authentication code, keyed
with the secret that both clusters have, over a salt and the value. Specified in
os-and-extstorage, section 6.
"""

import dataclasses
import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import export
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.net import ip
from ganeti.base.tls import x509
from ganeti.model import serializer

#: Text that is HMACed in the handshake.
_RIE_HANDSHAKE: Final = "Hi, I'm Ganeti"
_X509_CERT_SIGNATURE_HEADER: Final = "X-Ganeti-Signature"

_FILE: Final = "cluster-domain-secret"
#: Fewest and most bytes of a secret that is used.
_LENGTHS: Final = range(8, 1025)
#: Most characters of a signed certificate; those of transfers have about 1,200.
_MAX_CERTIFICATE: Final = 16 * 1024
_SALT: Final = re.compile(r"[-_.A-Za-z0-9]{1,64}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{40}")
_SIGNATURE: Final = re.compile(
    rf"^{re.escape(_X509_CERT_SIGNATURE_HEADER)}:\s*"
    r"(?P<salt>[-_.A-Za-z0-9]{1,64})/(?P<digest>[0-9a-fA-F]{40})\s*$",
    re.MULTILINE,
)
#: Names of keys as nodes make them, see the node call ``x509_cert_create``.
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
#: Begins the mark of an instance in a salt, see `DomainSecret.signed_name`.
_MARK: Final = "."
_MAGIC: Final = re.compile(export.IE_MAGIC_RE)
_HIGHEST_PORT: Final = 65535
_ADVICE: Final = (
    "both clusters need the same secret, see gnt-cluster renew-crypto"
    " --cluster-domain-secret"
)


class Receiver(msgspec.Struct, frozen=True):
    """Where one disk is sent: address, port, and the text that precedes its data."""

    host: str
    port: int
    magic: str


@dataclasses.dataclass(frozen=True)
class DomainSecret:
    """The secret that clusters share which exchange instances."""

    _key: bytes = dataclasses.field(repr=False)

    # Signing
    def _sign(self, text: str, mark: str = "") -> tuple[str, str]:
        """Return the code of a text, and the salt that it was made with.

        The code also covers the mark at the end of the salt.
        """
        salt = secrets.token_hex(8) + mark
        return serializer.sign(self._key, text, salt), salt

    def handshake(self) -> list[Any]:
        """Return what proves to another cluster that this one has the secret."""
        return [export.RIE_VERSION, *self._sign(_greeting())]

    def signed_name(self, name: str, owner: str) -> list[str]:
        """Return the name of a key with its signature, for one instance by its uuid."""
        return [name, *self._sign(name, _mark(owner))]

    def signed_certificate(self, pem: str) -> str:
        """Return a certificate, preceded by a line with its signature."""
        digest, salt = self._sign(pem)
        return f"{_X509_CERT_SIGNATURE_HEADER}: {salt}/{digest}\n{pem}"

    def signed_receiver(self, index: int, receiver: Receiver) -> list[Any]:
        """Return where a disk is received, with its signature."""
        given = [receiver.host, receiver.port, receiver.magic]
        return [*given, *self._sign(_receiver_text(index, receiver))]

    # Checking
    def _require(self, text: str, digest: Any, salt: Any, what: str) -> None:
        """Refuse a text whose code was not made with this secret.

        Raises:
            OpPrereqError: names ``what``, never the code that was wanted.
        """
        is_formed = (
            isinstance(digest, str)
            and isinstance(salt, str)
            and _DIGEST.fullmatch(digest)
            and _SALT.fullmatch(salt)
        )
        if not is_formed:
            raise refusal(f"{what}: wanted a signature of 40 hex digits and a salt")
        if not serializer.verify(self._key, text, salt, digest.lower()):
            raise refusal(
                f"{what}: was not signed with the domain secret of this cluster;"
                f" {_ADVICE}"
            )

    def check_handshake(self, given: Sequence[Any], what: str) -> None:
        """Refuse the handshake of a cluster that does not have the secret.

        Raises:
            OpPrereqError: another secret, another version, or no handshake.
        """
        what = f"{what}: handshake of the source cluster"
        version, digest, salt = _members(given, 3, what, "version, hmac and salt")
        if version != export.RIE_VERSION or isinstance(version, bool):
            raise refusal(
                f"{what}: wanted version {export.RIE_VERSION}, found {_shown(version)}"
            )
        self._require(_greeting(), digest, salt, what)

    def key_name(self, given: Sequence[Any], what: str, owner: str) -> str:
        """Return the name of a key that was prepared for an instance.

        A master of an earlier release has signed names without the instance.

        Raises:
            OpPrereqError: it is not signed, not a name, or that of another instance.
        """
        what = f"{what}: name of the key"
        name, digest, salt = _members(given, 3, what, "name, hmac and salt")
        if not isinstance(name, str) or not _KEY_NAME.fullmatch(name):
            raise refusal(f"{what}: wanted the name of a key, found {_shown(name)}")
        self._require(name, digest, salt, what)
        if _MARK in salt and not salt.endswith(_mark(owner)):
            raise refusal(
                f"{what}: was prepared for another instance; prepare the export again"
            )
        return name

    def certificate(self, given: str, what: str) -> str:
        """Return the PEM text of a signed certificate.

        Raises:
            OpPrereqError: it is not signed, damaged, or has expired.
        """
        what = f"{what}: certificate of the other cluster"
        if len(given) > _MAX_CERTIFICATE:
            raise refusal(
                f"{what}: wanted at most {_MAX_CERTIFICATE} characters, found"
                f" {len(given)}"
            )
        signature = _SIGNATURE.search(given)
        if signature is None:
            raise refusal(
                f"{what}: wanted a line {_X509_CERT_SIGNATURE_HEADER}:"
                " SALT/HMAC before it, found none"
            )
        try:
            certificate = x509.parse_certificate(
                given[signature.end() :].encode(), what
            )
        except errors.X509CertError as err:
            raise refusal(str(err)) from err
        pem = x509.certificate_pem(certificate).decode()
        self._require(pem, signature["digest"], signature["salt"], what)
        if x509.seconds_left(certificate) <= 0:
            raise refusal(f"{what}: has expired; prepare the export again")
        return pem

    def receivers(
        self, given: Sequence[Any], count: int, what: str
    ) -> tuple[Receiver, ...]:
        """Return where each disk is sent.

        Raises:
            OpPrereqError: another number than that of the disks, one that is not
                signed, or values of another kind.
        """
        if len(given) != count:
            raise refusal(
                f"{what}: wanted a receiver for each of {count} disks, found"
                f" {len(given)}"
            )
        return tuple(
            self._receiver(index, each, f"{what}: receiver of disk/{index}")
            for index, each in enumerate(given)
        )

    def _receiver(self, index: int, given: Any, what: str) -> Receiver:
        host, port, magic, digest, salt = _members(
            given, 5, what, "host, port, magic, hmac and salt"
        )
        is_port = isinstance(port, int) and not isinstance(port, bool)
        if not (is_port and 1 <= port <= _HIGHEST_PORT):
            raise refusal(f"{what}: wanted a port, found {_shown(port)}")
        if not isinstance(magic, str) or not _MAGIC.fullmatch(magic):
            raise refusal(f"{what}: wanted a magic of letters, digits and -_.")
        receiver = Receiver(_address(host, what), port, magic)
        self._require(_receiver_text(index, receiver), digest, salt, what)
        return receiver


def load(paths: pathutils.Paths) -> DomainSecret:
    """Return the domain secret of this cluster.

    Raises:
        OpPrereqError: its file is missing, empty or too long.
    """
    path = paths.data(_FILE)
    try:
        key = files.read_file(path, max_size=_LENGTHS.stop).strip()
    except (OSError, errors.GenericError) as err:
        raise errors.OpPrereqError(
            f"{paths.virtualize(path)}: cannot be read: {err}; make a new one with"
            " gnt-cluster renew-crypto --new-cluster-domain-secret",
            ecodes.ECODE_ENVIRON,
        ) from err
    if len(key) not in _LENGTHS:
        raise errors.OpPrereqError(
            f"{paths.virtualize(path)}: wanted a secret of {_LENGTHS.start} to"
            f" {_LENGTHS.stop - 1} bytes, found {len(key)}",
            ecodes.ECODE_ENVIRON,
        )
    return DomainSecret(key)


def _mark(owner: str) -> str:
    """Return the end of salts for one instance, by its uuid."""
    return _MARK + hashlib.sha256(owner.encode()).hexdigest()[:32]


def _greeting() -> str:
    return f"{export.RIE_VERSION}:{_RIE_HANDSHAKE}"


def _receiver_text(index: int, receiver: Receiver) -> str:
    return f"{index}:{receiver.host}:{receiver.port}:{receiver.magic}"


def _members(given: Any, count: int, what: str, wanted: str) -> list[Any]:
    if not isinstance(given, list | tuple) or len(given) != count:
        raise refusal(f"{what}: wanted a list of {wanted}, found {_shown(given)}")
    return list(given)


def _address(given: Any, what: str) -> str:
    text = given if isinstance(given, str) else ""
    try:
        ip.parse(text)
    except ValueError as err:
        raise refusal(f"{what}: wanted an IP address, found {_shown(given)}") from err
    return text


def _shown(value: Any) -> str:
    """Return a value of a client for an error, bounded."""
    return f"{value!r:.60}"
