"""Execution of commands on other nodes over SSH.

A `Client` is one connection, over which commands run one after another. All
failures are reported as `errors.SshError` with host and cause. The only source of a
password is the function ``ask_password``.
"""

import base64
import contextlib
import dataclasses
import hashlib
import logging
import os
import secrets
import shlex
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

import paramiko
import paramiko.auth_strategy as auth
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from paramiko.pkey import UnknownKeyType

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.base.process import RunResult
from ganeti.protocols.ssh import host_keys, keys
from ganeti.protocols.ssh.account import login_user

#: Seconds for each of: TCP connection, banner, authentication.
CONNECT_TIMEOUT_S: Final = 10.0
#: An SSH server that reloads its keys drops new connections; pauses between attempts.
CONNECT_ATTEMPTS: Final = 5
CONNECT_PAUSE_S: Final = 0.3
#: Largest number of bytes that are read from a command's output at once.
_CHUNK: Final = 65536
#: Seconds between two probes of the connection during a command that is followed.
_KEEPALIVE_S: Final = 15
#: Longest output of a command, and longest error output, in bytes.
MAX_OUTPUT: Final = 64 * 1024 * 1024
#: A caller's decision about an unknown host key: (host, key type, fingerprint).
AskHostKey = Callable[[str, str, str], bool]
#: Asks the user for the password of "user@host"; None gives up.
AskPassword = Callable[[str], str | None]


# Paramiko's tracebacks would reach the terminal; every failure is also an exception.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _NoBannerError(errors.SshError):
    """The server dropped the connection before the SSH banner."""


class KeyRing:
    """Cache of private keys by file; a replaced file is read again; thread-safe.

    Callers that log in to many nodes share one ring.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[tuple[int, ...], paramiko.PKey]] = {}

    def key(self, path: str) -> paramiko.PKey:
        """Return the key in a file.

        Raises:
            SshError: it has a passphrase, or is damaged or of an unknown kind.
            OSError: it cannot be read.
        """
        with self._lock:
            version = files.version(path)
            known = self._keys.get(path)
            if known is None or known[0] != version:
                known = self._keys[path] = (version, _read_key(path))
            return known[1]


def _read_key(path: str) -> paramiko.PKey:
    """Return the key in a file; errors as those of `KeyRing.key`.

    The reader of paramiko tests whether the factors of an RSA key are primes, which
    takes 0.2 s of CPU. This is left out: the files are those of the account itself.
    """
    text = files.read_file(path)
    load = serialization.load_pem_private_key
    if b"BEGIN OPENSSH PRIVATE KEY" in text:
        load = serialization.load_ssh_private_key
    try:
        key = load(text, None, unsafe_skip_rsa_key_validation=True)
        # The reader of paramiko also reads a certificate beside the key.
        has_certificate = os.path.exists(f"{path}-cert.pub")
        if has_certificate or not isinstance(key, rsa.RSAPrivateKey):
            return paramiko.PKey.from_path(path)
        return paramiko.RSAKey(key=key)
    except TypeError as err:
        raise errors.SshError(
            f"{path}: has a passphrase, which no daemon can enter"
        ) from err
    except (
        *(ValueError, UnsupportedAlgorithm),
        *(paramiko.SSHException, UnknownKeyType),
    ) as err:
        raise errors.SshError(f"{path}: damaged, or no private key") from err


@dataclasses.dataclass(frozen=True)
class Identity:
    """Credentials of the client and its trusted host keys.

    Attributes:
        user: account on the server.
        key_files: private keys to try; missing ones are skipped.
        known_hosts: the cluster's host key file, empty for none.
        alias: name in that file for hosts whose own names it does not have.
        pinned: the only accepted host keys, instead of those in that file.
        ask_host_key: decides about unknown host keys; None refuses them.
        check_host_key: false accepts any host key (``--no-ssh-key-check``).
        ask_password: called when no key is accepted.
        personal_hosts: further known_hosts files, looked up by host name; used only
            with ``ask_host_key``.
        ring: cache of private keys.
    """

    user: str
    key_files: tuple[str, ...]
    known_hosts: str = ""
    alias: str = ""
    pinned: tuple[str, ...] = ()
    ask_host_key: AskHostKey | None = None
    check_host_key: bool = True
    ask_password: AskPassword | None = None
    personal_hosts: tuple[str, ...] = ()
    ring: KeyRing = dataclasses.field(
        default_factory=KeyRing, compare=False, repr=False
    )


def cluster_identity(paths: pathutils.Paths, cluster_name: str) -> Identity:
    """Return the credentials of this node for logins to other nodes of its cluster."""
    kinds = ("rsa", "ecdsa", "ed25519")
    return Identity(
        user=login_user(paths),
        key_files=tuple(keys.root_key_path(paths.root_ssh_dir, kind) for kind in kinds),
        known_hosts=paths.data("known_hosts"),
        alias=cluster_name,
    )


def _present(identity: Identity) -> list[str]:
    return [path for path in identity.key_files if os.path.exists(path)]


def fingerprint(key: paramiko.PKey) -> str:
    """Return a host key's fingerprint as ssh prints it."""
    return _digest(key.asbytes())


def _digest(blob: bytes) -> str:
    digest = hashlib.sha256(blob).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class _Trust:
    """The host keys that are accepted of one host."""

    def __init__(self, host: str, identity: Identity) -> None:
        self.host = host
        self.alias = identity.alias or host
        self._recorded = (
            host_keys.read_known_hosts(identity.known_hosts)
            if identity.known_hosts
            else []
        )
        own = [key for names, key in self._recorded if host in names]
        # Keys of other hosts are valid under the alias as well.
        shared = [key for names, key in self._recorded if names == (self.alias,)]
        #: Whether the host has keys of its own.
        self.has_own = bool(identity.pinned or own)
        self.keys = tuple(identity.pinned or own or shared)

    def owners(self, key: str) -> list[str]:
        """Return the other hosts that have a key as their own."""
        own = {self.host, self.alias}
        return sorted(
            name
            for names, recorded in self._recorded
            if recorded == key
            for name in names
            if name not in own
        )

    def is_known(self, key: str) -> bool:
        """Return whether a machine that joins needs no question about its key."""
        return key in self.keys and (self.has_own or not self.owners(key))

    def refusal(self, key: paramiko.PKey) -> errors.SshError:
        """Return the error about a key that is not accepted."""
        line = key_line(key)
        if not self.has_own:
            if self.keys:
                return _changed(self.host, key)
            return errors.SshError(
                f"{self.host}: host key {key.get_name()} {fingerprint(key)} is not"
                f" known for {self.alias}"
            )
        owner = "".join(f", which is that of {name}" for name in self.owners(line)[:1])
        return errors.SshError(
            f"{self.host}: wanted one of its recorded SSH host keys"
            f" ({', '.join(map(_described, self.keys))}), found {key.get_name()}"
            f" {fingerprint(key)}{owner}: another machine answers at its address, or"
            " the node has new keys; if it was installed again, run gnt-node add"
            f" --readd {self.host}"
        )

    def transport(self, sock: Any, /, **options: Any) -> paramiko.Transport:
        """Return a connection that asks the server for a key of a known type."""
        made = paramiko.Transport(sock, **options)
        kinds = {line.split()[0] for line in self.keys}
        offered = made.get_security_options()
        offered.key_types = sorted(
            offered.key_types, key=lambda name: _key_type(name) not in kinds
        )
        return made


def _key_type(algorithm: str) -> str:
    """Return the type of the key that makes signatures of an algorithm."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def key_line(key: paramiko.PKey) -> str:
    """Return a public key in the form ``type base64``."""
    return f"{key.get_name()} {key.get_base64()}"


def _described(line: str) -> str:
    """Return type and fingerprint of a key in the form ``type base64``."""
    kind, body = line.split()
    return f"{kind} {_digest(base64.b64decode(body))}"


class _HostKeyPolicy(paramiko.MissingHostKeyPolicy):
    """Policy that decides about all host keys; it may ask about unknown ones."""

    def __init__(self, trust: _Trust, identity: Identity) -> None:
        self._trust = trust
        self._identity = identity

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Raise SshError unless the key is accepted."""
        del client, hostname
        identity, trust = self._identity, self._trust
        if not identity.check_host_key:
            return
        ask = identity.ask_host_key
        if ask is None:
            if key_line(key) not in trust.keys:
                raise trust.refusal(key)
            return
        if trust.is_known(key_line(key)) or self._is_personal(key):
            return
        if not ask(trust.host, key.get_name(), fingerprint(key)):
            raise errors.SshError(f"{trust.host}: its host key was not accepted")

    def _is_personal(self, key: paramiko.PKey) -> bool:
        """Return whether the user knows the host by this key.

        A node that is added again may have new keys, which the user decides about.
        """
        host = self._trust.host
        entry = _load_host_keys(self._identity.personal_hosts).lookup(host)
        recorded = entry.get(key.get_name()) if entry is not None else None
        if recorded is not None and recorded != key:
            raise _changed(host, key)
        return recorded is not None


def _load_host_keys(paths: Sequence[str]) -> paramiko.HostKeys:
    loaded = paramiko.HostKeys()
    for path in paths:
        if path and os.path.exists(path):
            loaded.load(path)
    return loaded


def _changed(host: str, key: paramiko.PKey) -> errors.SshError:
    return errors.SshError(
        f"{host}: host key has changed, found {key.get_name()} {fingerprint(key)};"
        " either the machine was installed again, or another machine answers at its"
        " address"
    )


class _Attempts(auth.AuthStrategy):
    """Authentication attempts: each existing key, then a password if provided."""

    def __init__(self, identity: Identity, account: str) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._identity = identity
        self._account = account
        #: Whether the user has entered a password.
        self.asked_password = False
        #: Why keys were not tried, by file.
        self.unusable: dict[str, str] = {}

    def get_sources(self) -> Iterator[auth.AuthSource]:
        """Yield the authentication methods to try, in order."""
        user = self._identity.user
        for path in _present(self._identity):
            try:
                key = self._identity.ring.key(path)
            except errors.SshError as err:
                self.unusable[path] = str(err)
                continue
            yield auth.InMemoryPrivateKey(user, key)
        ask = self._identity.ask_password
        password = None if ask is None else ask(self._account)
        if password is not None:
            self.asked_password = True
            yield auth.Password(user, lambda: password)


class Client:
    """An SSH connection to one host; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        identity: Identity,
        *,
        address: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Connect and log in.

        Args:
            host: host name, for messages and host keys.
            port: TCP port.
            identity: see `Identity`.
            address: address to connect to; None looks up the host name.
            environment: variables for each command, see `node_environment`.

        Raises:
            SshError: the host cannot be reached, has a wrong host key, or refuses the
                login.
        """
        self.host = host
        self._environment = dict(environment or {})
        self._client = paramiko.SSHClient()
        for attempt in range(CONNECT_ATTEMPTS):
            try:
                self._connect((address or host, port), identity)
            except _NoBannerError as err:
                self._client.close()
                if attempt == CONNECT_ATTEMPTS - 1:
                    raise errors.SshError(*err.args) from err
                threading.Event().wait(CONNECT_PAUSE_S)
                self._client = paramiko.SSHClient()
            except BaseException:
                self._client.close()
                raise
            else:
                return

    def _connect(self, address: tuple[str, int], identity: Identity) -> None:
        where = f"{self.host} ({address[0]} port {address[1]})"
        began = time.monotonic()
        try:
            sock = socket.create_connection(address, CONNECT_TIMEOUT_S)
        except OSError as err:
            raise errors.SshError(
                f"{where}: cannot be reached: {err.strerror or err}"
            ) from err
        trust = _Trust(self.host, identity)
        self._client.set_missing_host_key_policy(_HostKeyPolicy(trust, identity))
        attempts = _Attempts(identity, f"{identity.user}@{where}")
        try:
            self._client.connect(
                self.host,
                username=identity.user,
                sock=sock,
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
                auth_strategy=attempts,
                transport_factory=trust.transport,
            )
        except paramiko.AuthenticationException as err:
            asked, unusable = attempts.asked_password, attempts.unusable
            tried = [path for path in _present(identity) if path not in unusable]
            raise errors.SshError(
                f"{identity.user}@{where}: no key was accepted"
                f"{', nor the password' if asked else ''}, tried"
                f" {'; '.join((', '.join(tried) or 'none', *unusable.values()))}"
            ) from err
        except (paramiko.SSHException, OSError, EOFError) as err:
            if time.monotonic() - began >= CONNECT_TIMEOUT_S:
                raise errors.SshError(
                    f"{where}: accepts connections but does not answer: its SSH server"
                    " or the machine is frozen or overloaded"
                ) from err
            text = f"{where}: no SSH connection: {err}"
            if "banner" in str(err) or isinstance(err, (ConnectionError, EOFError)):
                raise _NoBannerError(text) from err
            raise errors.SshError(text) from err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def host_key(self) -> str:
        """The key that the server has proved to have, as ``type base64``."""
        transport = self._client.get_transport()
        if transport is None:
            raise errors.SshError(f"{self.host}: the connection is closed")
        return key_line(transport.get_remote_server_key())

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Run a command and wait for its end.

        Args:
            argv: program and arguments; quoted for the remote shell.
            stdin: complete standard input.
            timeout_s: longest time without output; then the connection is closed and
                the result is a timeout.
            on_line: called with each line of the output, as it comes. The connection is
                then probed, so that the loss of the host is noticed.

        Raises:
            SshError: the connection broke, or the output is too long.
        """
        command = shlex.join([*self._prefix(), *argv])
        try:
            transport = self._client.get_transport()
            if transport is None:
                raise errors.SshError(f"{self.host}: the connection is closed")
            channel = transport.open_session(timeout=CONNECT_TIMEOUT_S)
            channel.settimeout(timeout_s)
            if on_line is not None:
                transport.set_keepalive(_KEEPALIVE_S)
            channel.exec_command(command)
            return _converse(channel, tuple(argv), stdin, on_line)
        except (paramiko.SSHException, OSError, EOFError) as err:
            raise errors.SshError(
                f"{self.host}: connection lost while running {argv[0]}: {err}"
            ) from err

    def _prefix(self) -> list[str]:
        pairs = [f"{name}={value}" for name, value in self._environment.items()]
        return ["env", *pairs] if pairs else []

    def put_file(self, path: str, data: str | bytes, *, mode: int) -> None:
        """Write a file on the host, atomically.

        Raises:
            SshError: the file cannot be written.
        """
        temp = f"{path}.new-{secrets.token_hex(4)}"
        raw = data.encode() if isinstance(data, str) else data
        try:
            with self._open_sftp() as sftp:
                with sftp.open(temp, "wx") as stream:
                    stream.chmod(0o600)
                    stream.write(raw)
                    stream.chmod(mode)
                self._move(sftp, temp, path)
        except (paramiko.SSHException, OSError, EOFError) as err:
            raise errors.SshError(
                f"{self.host}: {path} cannot be written: {err}"
            ) from err

    def _open_sftp(self) -> paramiko.SFTPClient:
        try:
            return self._client.open_sftp()
        except (paramiko.SSHException, EOFError) as err:
            raise OSError(
                "its SSH server must offer SFTP (Subsystem sftp in sshd_config), but"
                f" refused it: {str(err) or 'connection closed'}"
            ) from err

    def _move(self, sftp: paramiko.SFTPClient, temp: str, path: str) -> None:
        """Rename a temporary file; if that fails, remove it and find the reason."""
        try:
            sftp.posix_rename(temp, path)
        except OSError as err:
            with contextlib.suppress(OSError):
                sftp.remove(temp)
            raise OSError(self._obstacle(sftp, path) or str(err)) from err

    def _obstacle(self, sftp: paramiko.SFTPClient, path: str) -> str:
        """Return why a path cannot be replaced; SFTP reports only "Failure"."""
        try:
            mode = sftp.lstat(path).st_mode
        except OSError:
            return ""
        if stat.S_ISDIR(mode or 0):
            return "is a directory"
        if not self.run(["mountpoint", "-q", path]).failed:
            return "is a mount point, which cannot be replaced"
        return ""


def _converse(
    channel: Any,
    argv: tuple[str, ...],
    stdin: str | bytes | None,
    on_line: Callable[[str], None] | None,
) -> RunResult:
    """Write a command's input and collect its output; a thread reads stderr."""
    errors_read: list[bytes] = []

    def read_stderr() -> None:
        left = MAX_OUTPUT
        while left >= 0 and (data := _receive(channel.recv_stderr)):
            errors_read.append(data)
            left -= len(data)
        if left < 0:
            channel.close()

    reader = threading.Thread(target=read_stderr, daemon=True)
    reader.start()
    if stdin is not None:
        _send(channel, stdin.encode() if isinstance(stdin, str) else stdin)
    channel.shutdown_write()
    stdout, timed_out, left, rest = [], False, MAX_OUTPUT, b""
    try:
        while left >= 0 and (data := channel.recv(_CHUNK)):
            stdout.append(data)
            left -= len(data)
            if on_line is not None:
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    on_line(line.decode(errors="replace"))
        if rest and on_line is not None:
            on_line(rest.decode(errors="replace"))
    except TimeoutError:
        timed_out = True
    if timed_out or left < 0:
        channel.close()
    reader.join()
    if left < 0 or sum(map(len, errors_read)) > MAX_OUTPUT:
        raise OSError(f"the output is longer than {MAX_OUTPUT} bytes")
    code = None if timed_out else channel.recv_exit_status()
    channel.close()
    return RunResult(
        argv=argv,
        code=code if code is None or code >= 0 else None,
        signal=None,
        stdout=b"".join(stdout).decode(errors="replace"),
        stderr=b"".join(errors_read).decode(errors="replace"),
        timed_out=timed_out,
    )


def _send(channel: Any, data: bytes) -> None:
    """Write the input of a command, which may end without having read it."""
    try:
        channel.sendall(data)
    except OSError:
        if channel.exit_status < 0:
            raise  # It has not ended, so the connection is lost.


def _receive(read: Callable[[int], bytes]) -> bytes:
    try:
        return read(_CHUNK)
    except TimeoutError:
        return b""


def presented_keys(host: str, address: str, port: int) -> tuple[str, ...]:
    """Return the host keys that a server presents, at most one of each type.

    Args:
        host: name, for messages.
        address: address to connect to.
        port: TCP port.

    Raises:
        SshError: the server cannot be reached, or presents none.
    """
    presented = []
    problem = "no host key of a known type"
    for names in keys.ALGORITHMS.values():
        try:
            presented.append(key_line(_presented(address, port, names)))
        except paramiko.SSHException as err:
            problem = str(err)
        except (OSError, EOFError) as err:
            problem = f"cannot be reached: {err}"
    if not presented:
        raise errors.SshError(f"{host} ({address} port {port}): {problem}")
    return tuple(presented)


def _presented(address: str, port: int, names: Sequence[str]) -> paramiko.PKey:
    sock = socket.create_connection((address, port), CONNECT_TIMEOUT_S)
    transport = paramiko.Transport(sock)
    try:
        offered = transport.get_security_options()
        offered.key_types = [
            name for name in offered.key_types if _key_type(name) in names
        ]
        transport.banner_timeout = CONNECT_TIMEOUT_S
        transport.start_client(timeout=CONNECT_TIMEOUT_S)
        return transport.get_remote_server_key()
    finally:
        transport.close()
