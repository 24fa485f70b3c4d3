"""Key pairs in the file formats of OpenSSH."""

import dataclasses
import os
from typing import Final

from cryptography import exceptions
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ganeti.base import errors
from ganeti.base.filesystem import files

#: Smallest RSA key that current OpenSSH servers accept.
MIN_RSA_BITS: Final = 1024
#: Default length of a key type, in bits.
DEFAULT_BITS: Final = {"rsa": 2048, "ecdsa": 256, "ed25519": 256}
#: Longest public key line, in characters; RSA keys of 16,384 bits have 2,800.
_MAX_LINE: Final = 8192
_CURVES: Final = {256: ec.SECP256R1(), 384: ec.SECP384R1(), 521: ec.SECP521R1()}
#: First word of a public key line by key type.
ALGORITHMS: Final = {
    "rsa": ("ssh-rsa",),
    "ecdsa": tuple(f"ecdsa-sha2-nistp{bits}" for bits in _CURVES),
    "ed25519": ("ssh-ed25519",),
}


@dataclasses.dataclass(frozen=True)
class KeyPair:
    """A private key in OpenSSH form and its public line, both newline terminated."""

    kind: str
    private: str = dataclasses.field(repr=False)
    public: str


def check_type(kind: str, bits: int | None) -> int:
    """Return the key length to use for a type.

    Raises:
        OpPrereqError: type or length is not supported.
    """
    if kind == "dsa":
        raise errors.OpPrereqError(
            "SSH key type dsa: current OpenSSH refuses such keys, use rsa or ecdsa",
            "wrong_input",
        )
    if kind not in DEFAULT_BITS:
        raise errors.OpPrereqError(
            f"SSH key type: wanted one of {', '.join(DEFAULT_BITS)}, found {kind!r}",
            "wrong_input",
        )
    wanted = DEFAULT_BITS[kind] if bits is None else bits
    if kind == "rsa" and wanted < MIN_RSA_BITS:
        raise errors.OpPrereqError(
            f"SSH key type rsa: wanted at least {MIN_RSA_BITS} bits, found {wanted}",
            "wrong_input",
        )
    if kind == "ecdsa" and wanted not in _CURVES:
        raise errors.OpPrereqError(
            f"SSH key type ecdsa: wanted 256, 384 or 521 bits, found {wanted}",
            "wrong_input",
        )
    return wanted


def generate(kind: str, bits: int | None = None, comment: str = "") -> KeyPair:
    """Create a new key pair.

    Raises:
        OpPrereqError: see `check_type`.
    """
    bits = check_type(kind, bits)
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if kind == "rsa":
        key = rsa.generate_private_key(65537, bits)
    elif kind == "ecdsa":
        key = ec.generate_private_key(_CURVES[bits])
    else:
        key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}".rstrip()
    return KeyPair(kind, private.decode(), line + "\n")


def load(path: str) -> KeyPair:
    """Read a pair from ``path`` and ``path.pub``.

    Raises:
        OpPrereqError: one of the two files is missing or damaged.
    """
    try:
        private = files.read_file(path).decode()
        public = files.read_file(f"{path}.pub").decode()
    except OSError as err:
        raise errors.OpPrereqError(
            f"SSH key {path}: cannot be read: {err.strerror}", "environment_error"
        ) from err
    return KeyPair(kind_of(public), private, public)


def save(pair: KeyPair, path: str) -> None:
    """Write a pair to ``path`` (0600) and ``path.pub`` (0644).

    Existing files with other content are copied to backup files first.
    """
    for name, text, mode in (
        (path, pair.private, 0o600),
        (f"{path}.pub", pair.public, 0o644),
    ):
        if os.path.exists(name):
            if files.read_file(name) == text.encode():
                continue
            files.backup_file(name, os.path.dirname(name))
        files.write_file(name, text, mode=mode)


def kind_of(public_line: str) -> str:
    """Return the key type of a public key line.

    Raises:
        OpPrereqError: the text is not a public key line.
    """
    algorithm = public_line.split(None, 1)[0] if public_line.strip() else ""
    for kind, names in ALGORITHMS.items():
        if algorithm in names:
            return kind
    raise errors.OpPrereqError(
        f"SSH public key: wanted a key of type {', '.join(ALGORITHMS)}, found"
        f" {algorithm[:40]!r}",
        "wrong_input",
    )


def one_public_key(text: str, kind: str, comment: str) -> str:
    """Return the line of the public key that another node sent, written again.

    Only the key itself is taken from the text: not its comment, and no second line.

    Args:
        text: content of a public key file.
        kind: wanted key type.
        comment: comment of the new line.

    Raises:
        OpPrereqError: the text is not exactly one key of this type.
    """
    line = text.removesuffix("\n")
    if len(line) > _MAX_LINE:
        raise _not_one_key(
            kind, f"{len(line)} characters, at most {_MAX_LINE} are possible"
        )
    words = line.split()
    is_line = line.isprintable() and len(words) > 1
    if not is_line or kind_of(line) != kind:
        raise _not_one_key(kind, repr(line[:80]))
    try:
        key = serialization.load_ssh_public_key(f"{words[0]} {words[1]}".encode())
    except (ValueError, exceptions.UnsupportedAlgorithm) as err:
        raise _not_one_key(kind, str(err)) from err
    if isinstance(key, rsa.RSAPublicKey):
        check_type("rsa", key.key_size)
    encoded = key.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return f"{encoded.decode()} {comment}"


def _not_one_key(kind: str, content: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"SSH public key: wanted exactly one key of type {kind}, found {content}",
        "wrong_input",
    )


def check_line(line: str) -> str:
    """Return a public key line without surrounding white space.

    Raises:
        OpPrereqError: it is more than one line.
    """
    line = line.strip()
    if not line.isprintable():
        raise errors.OpPrereqError(
            f"SSH public key: wanted one line, found {line[:80]!r}", "wrong_input"
        )
    return line


def body(public_line: str) -> str:
    """Return the base64 part of a public key line."""
    parts = public_line.split()
    if len(parts) < 2:
        raise errors.OpPrereqError(
            "SSH public key: wanted a type and a key, found one word", "wrong_input"
        )
    return parts[1]


def root_key_path(ssh_dir: str, kind: str) -> str:
    """Return the path of root's private key file for a key type."""
    return os.path.join(ssh_dir, f"id_{kind}")


def host_key_path(sshd_dir: str, kind: str) -> str:
    """Return the path of the private host key file for a key type."""
    return os.path.join(sshd_dir, f"ssh_host_{kind}_key")
