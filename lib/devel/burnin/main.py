"""Main function of ``burnin``, and its questions to confd and to guests."""

import http.client
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import daemons, exitcodes
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.commands.cli.context import ClientEffects, CommandContext, real_effects
from ganeti.commands.cli.model import Command, Program
from ganeti.commands.cli.output import error_text
from ganeti.devel.burnin import rounds, settings
from ganeti.protocols import ssconf
from ganeti.protocols.confd import ConfdClient

_DAEMON: Final = "ganeti-confd"
_HTTP_PORT: Final = 80
#: Longest name that a guest may answer, in bytes.
_NAME_BYTES: Final = 256
_PAUSE_S: Final = 0.5
#: Role of the master in the answers of confd.
_MASTER: Final = confd.CONFD_NODE_ROLE_MASTER


class ProbeError(errors.GenericError):
    """Something does not answer as it should."""


def client_of(paths: Paths) -> ConfdClient:
    """Return a client of confd on the master candidates."""
    port = netutils.service_port(_DAEMON, daemons.DAEMONS[_DAEMON].port or 0, "udp")
    peers = ssconf.SimpleStore(paths).master_candidates_ips()
    return ConfdClient(files.read_file(paths.hmac_key), peers, port=port)


def ask_confd(
    client: ConfdClient, master: str, primaries: Mapping[str, str]
) -> list[str]:
    """Compare answers of confd with those of the master daemon.

    Args:
        client: of confd.
        master: name of the master node.
        primaries: instance -> its primary node.

    Returns:
        One line per question.

    Raises:
        ProbeError: an answer is missing or a different one.
        ConfdClientError: no question can be sent.
    """
    _answer(client, "ping", confd.CONFD_REQ_PING)
    lines = ["ping: answered"]
    named = _answer(client, "master", confd.CONFD_REQ_CLUSTER_MASTER)
    lines.append(_compared("master", master, named))
    role = _answer(client, "role", confd.CONFD_REQ_NODE_ROLE_BYNAME, master)
    lines.append(_compared(f"role of node {master}", _MASTER, role))
    for node in sorted(set(primaries.values())):
        answer = _answer(client, "instances", confd.CONFD_REQ_NODE_INSTANCES, node)
        known = _names(answer)
        missing = [i for i, at in primaries.items() if at == node and i not in known]
        if missing:
            raise ProbeError(f"confd: node {node}: instance {missing[0]} is missing")
        lines.append(f"instances of node {node}: as expected")
    return lines


def _answer(client: ConfdClient, what: str, kind: int, key: Any = None) -> Any:
    result = client.ask(kind, key)
    if result.reply is None or not result.is_ok:
        raise ProbeError(f"confd: {what}: no answer, or an error")
    return result.reply.answer


def _compared(what: str, wanted: Any, answer: Any) -> str:
    if answer != wanted:
        raise ProbeError(f"confd: {what}: wanted {wanted!r}, found {answer!r}")
    return f"{what}: as expected"


def _names(answer: Any) -> set[str]:
    """Return the names of the primary instances in an answer about a node."""
    is_pair = isinstance(answer, list) and answer and isinstance(answer[0], list)
    rows = answer[0] if is_pair else []
    return {str(row.get("name")) for row in rows if isinstance(row, dict)}


def ask_guest(
    name: str,
    timeout_s: float,
    *,
    port: int = _HTTP_PORT,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until a guest's web server answers ``/`` with the name of the instance.

    Raises:
        ProbeError: it has not done so in time.
    """
    deadline = now() + timeout_s
    while True:
        answer = _host_name(name, port, max(0.1, deadline - now()))
        if answer == name:
            return
        if now() >= deadline:
            raise ProbeError(
                f"guest {name}: wanted its name at http://{name}/ within {timeout_s:g}"
                f" seconds, found {answer or 'no answer'}"
            )
        pause(_PAUSE_S)


def _host_name(host: str, port: int, timeout_s: float) -> str:
    """Return the first line that a web server sends, empty if it does not answer."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/")
        text = connection.getresponse().read(_NAME_BYTES)
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
    return text.decode(errors="replace").split("\n")[0].strip()


_COMMAND = Command(settings.NAME, "try the operations of a cluster")
_PROGRAM = Program(settings.NAME, "Burn-in of a cluster", (_COMMAND,))


def main(
    argv: Sequence[str] | None = None, *, effects: ClientEffects | None = None
) -> int:
    """Run the tool; return the exit code."""
    parser = settings.build_parser()
    options = parser.parse_args(argv)
    wanted = settings.parse(parser, options)
    effects = real_effects() if effects is None else effects
    ctx = CommandContext(_PROGRAM, _COMMAND, settings.NAME, effects=effects)
    ctx.opts.reason, ctx.opts.debug = options.reason, options.debug
    burn_in = rounds.BurnIn(
        ctx,
        wanted,
        ask_guest=ask_guest,
        ask_confd=lambda master, primaries: ask_confd(
            client_of(ctx.paths), master, primaries
        ),
        is_verbose=options.verbose,
    )
    try:
        burn_in.run()
    except KeyboardInterrupt:
        ctx.err(f"{settings.NAME}: ended by the user; a job that runs goes on")
        return exitcodes.EXIT_FAILURE
    except (rounds.BurnInError, ProbeError, OSError) as err:
        ctx.err(f"{settings.NAME}: {err}")
        return exitcodes.EXIT_FAILURE
    except errors.GenericError as err:
        ctx.err(f"{settings.NAME}: {error_text.describe(err)[0]}")
        return exitcodes.EXIT_FAILURE
    ctx.out("- All steps passed")
    return exitcodes.EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
