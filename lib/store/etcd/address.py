"""The address of a store in etcd: ``etcd://HOST:PORT,HOST:PORT/PREFIX?OPTIONS``.

Options name the files for TLS: ``ca``, ``cert`` and ``key``.
"""

import dataclasses
import re
from typing import Final

from ganeti.base import errors

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
#: Keys begin with it if the address has no prefix.
DEFAULT_PREFIX: Final = "ganeti"
#: More servers than any etcd cluster has members.
MAX_SERVERS: Final = 32
_MAX_PORT: Final = 65535
_SERVER: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)"
    r"(:(?P<port>[0-9]{1,5}))?"
)
_FORM: Final = "etcd://HOST:PORT,HOST:PORT/PREFIX?ca=FILE&cert=FILE&key=FILE"
#: Option -> attribute of `TlsFiles`.
_TLS_OPTIONS: Final = {"ca": "authority", "cert": "certificate", "key": "key"}
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """Files for TLS, in PEM.

    Attributes:
        authority: certificates that servers are checked with.
        certificate: of this client; empty if the servers ask for none.
        key: of the certificate.
    """

    authority: str
    certificate: str = ""
    key: str = ""


@dataclasses.dataclass(frozen=True)
class Servers:
    """Where a store is.

    Attributes:
        hosts: ``HOST:PORT`` of each server, IPv6 addresses in brackets.
        prefix: first part of all keys; two stores on the same servers differ in it.
        tls: None for plain HTTP.
    """

    hosts: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    tls: TlsFiles | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(self.hosts)}/{self.prefix}"

    def url(self, host: str) -> str:
        """Return the address of one server, without a path."""
        return f"{'http' if self.tls is None else 'https'}://{host}"


def parse(text: str, tls: TlsFiles | None = None) -> Servers:
    """Return the servers that an address names.

    Args:
        text: ``etcd://HOST[:PORT],...[/PREFIX][?OPTION=VALUE&...]``.
        tls: files for TLS if no option names any; None for plain HTTP.

    Raises:
        ConfigurationError: the text is no such address.

    >>> str(parse("etcd://a,b:2380"))
    'etcd://a:2379,b:2380/ganeti'
    """
    if not text.startswith(SCHEME):
        raise _refusal(text, f"it does not begin with {SCHEME}")
    place, mark, options = text.removeprefix(SCHEME).partition("?")
    if mark:
        tls = _tls_files(text, options)
    names, slash, prefix = place.partition("/")
    if slash and not _PREFIX.fullmatch(prefix):
        raise _refusal(text, "after the slash, wanted letters, digits, '.', '_', '-'")
    hosts = tuple(_host(text, name) for name in names.split(","))
    if len(hosts) > MAX_SERVERS:
        raise _refusal(text, f"it names {len(hosts)} servers, at most {MAX_SERVERS}")
    if len(set(hosts)) < len(hosts):
        raise _refusal(text, "it names a server twice")
    return Servers(hosts, prefix or DEFAULT_PREFIX, tls)


def _tls_files(text: str, options: str) -> TlsFiles:
    """Return the files that the options name."""
    values: dict[str, str] = {}
    for option in options.split("&"):
        name, _equals, value = option.partition("=")
        if name not in _TLS_OPTIONS or not value.startswith("/"):
            raise _refusal(
                text, f"{option!r} is no option; wanted ca, cert or key with a path"
            )
        if _TLS_OPTIONS[name] in values:
            raise _refusal(text, f"the option {name} is given twice")
        values[_TLS_OPTIONS[name]] = value
    if "authority" not in values:
        raise _refusal(text, "servers with TLS need the option ca")
    if "key" in values and "certificate" not in values:
        raise _refusal(text, "the option key needs the option cert")
    return TlsFiles(**values)


def _host(text: str, name: str) -> str:
    match = _SERVER.fullmatch(name)
    if match is None:
        raise _refusal(text, f"{name!r} is no HOST:PORT")
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port <= _MAX_PORT:
        raise _refusal(text, f"port {port} is out of range")
    return f"{match['host']}:{port}"


def _refusal(text: str, reason: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f"address of the store {text[:200]!r}: {reason}; wanted {_FORM}"
    )
