"""A version request to RAPI that shows whether the daemon answers."""

import contextlib
import http
from typing import Final

from ganeti.constants.daemons import DAEMONS
from ganeti.utils import netutils

#: Seconds for connection and answer.
_TIMEOUT_S: Final = 20.0
_NAME: Final = "ganeti-rapi"
#: An answer that demands a password comes from a live daemon, too.
_ALIVE: Final = frozenset((http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED))


def problem(address: str, port: int | None = None) -> str | None:
    """Return why RAPI counts as dead, None if it answers.

    The certificate is not verified: the request has no secret, and a wrong certificate
    is not mended by a restart.

    Args:
        address: at which RAPI listens.
        port: its port; None for the usual one.
    """
    import http.client
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    number = port or netutils.service_port(_NAME, DAEMONS[_NAME].port or 0)
    connection = http.client.HTTPSConnection(
        address, number, timeout=_TIMEOUT_S, context=context
    )
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/version")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as err:
            return f"no answer at {address} port {number}: {err}"
    if status in _ALIVE:
        return None
    return f"{address} port {number} answers the version request with status {status}"
