"""A version request to RAPI that shows whether the daemon answers."""

import contextlib
import http
from typing import Any, Final

from ganeti.base.constants.daemons import DAEMONS
from ganeti.base.net import netutils

#: Seconds for connection and answer.
_TIMEOUT_S: Final = 20.0
_NAME: Final = "ganeti-rapi"
#: An answer that demands a password comes from a live daemon, too.
_ALIVE: Final = frozenset((http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED))


def problem(address: str, port: int | None = None) -> str | None:
    """Return why RAPI counts as dead, None if it answers, with TLS or without.

    The certificate is not verified: the request has no secret, and a wrong certificate
    is not mended by a restart.

    Args:
        address: at which RAPI listens.
        port: its port; None for the usual one.
    """
    import http.client
    import ssl

    number = port or netutils.service_port(_NAME, DAEMONS[_NAME].port or 0)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with_tls = http.client.HTTPSConnection(
        address, number, timeout=_TIMEOUT_S, context=context
    )
    without = http.client.HTTPConnection(address, number, timeout=_TIMEOUT_S)
    try:
        try:
            status = _status(with_tls)
        except ssl.SSLError:
            status = _status(without)
    except (OSError, http.client.HTTPException) as err:
        return f"no answer at {address} port {number}: {err}"
    if status in _ALIVE:
        return None
    return f"{address} port {number} answers the version request with status {status}"


def _status(connection: Any) -> int:
    with contextlib.closing(connection):
        connection.request("GET", "/version")
        return int(connection.getresponse().status)
