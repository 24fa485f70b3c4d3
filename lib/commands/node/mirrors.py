"""``list-drbd``: the DRBD minors of a node, as confd of this node knows them."""

from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import daemons, ecodes
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.protocols.confd import ConfdClient, Result, wire
from ganeti.protocols.ssconf import SimpleStore

_DAEMON: Final = "ganeti-confd"
#: Seconds; confd of this node answers within milliseconds.
_ANSWER_S: Final = 3.0
#: Signatures of requests. A server that accepts only the other kind does not answer.
_MAGICS: Final = (wire.MAGIC_SHA1, wire.MAGIC_SHA256)
_COLUMNS: Final = (
    table.Column("Node"),
    table.Column("Minor", "number"),
    table.Column("Instance"),
    table.Column("Disk"),
    table.Column("Role"),
    table.Column("PeerNode"),
)
_Row = tuple[str, int, str, str, str, str]


def show(ctx: CommandContext) -> None:
    """List the minors of a node with the disks that use them."""
    rows = _rows(ctx, ctx.args[0])
    if ctx.opts.json:
        fields = ctx.command.fields
        listing.print_json(ctx, [dict(zip(fields, row, strict=True)) for row in rows])
        return
    texts = [[escape(str(value)) for value in row] for row in rows]
    listing.print_table(ctx, _COLUMNS, texts)


def _rows(ctx: CommandContext, node: str) -> list[_Row]:
    """Return confd's answer.

    Raises:
        OpPrereqError: no node has the name.
        OpExecError: confd does not answer, or answers something else.
    """
    result = _ask(ctx, node)
    if not result.is_ok:
        answer = None if result.reply is None else result.reply.answer
        if answer == confd.CONFD_ERROR_UNKNOWN_ENTRY and type(answer) is int:
            raise errors.OpPrereqError(
                f"node {node}: confd of this node knows none of this name",
                ecodes.ECODE_NOENT,
            )
        raise errors.OpExecError(
            f"node {node}: confd of this node answers error {answer!r:.40}, see its log"
        )
    rows: Any = result.reply and result.reply.answer
    try:
        return msgspec.convert(rows, list[_Row])
    except msgspec.ValidationError as err:
        raise errors.OpExecError(
            f"node {node}: wanted confd's list of minors, {err}"
        ) from err


def _own_address(paths: Paths) -> str:
    """Return this node's address in the cluster, where confd listens in any case."""
    try:
        known = SimpleStore(paths).node_primary_ips()
    except errors.ConfigurationError:
        known = {}
    return known.get(paths.hostname) or netutils.lookup(paths.hostname, paths)


def _ask(ctx: CommandContext, node: str) -> Result:
    key = files.read_file(ctx.paths.hmac_key)
    port = netutils.service_port(_DAEMON, daemons.DAEMONS[_DAEMON].port or 0, "udp")
    address = _own_address(ctx.paths)
    for magic in _MAGICS:
        client = ConfdClient(key, [address], port=port, magic=magic)
        result = client.ask(confd.CONFD_REQ_NODE_DRBD, node, timeout_s=_ANSWER_S)
        if result.reply is not None:
            return result
    raise errors.OpExecError(
        f"no answer of {_DAEMON} at {address}, UDP port {port}: is it running on this"
        " node, does it listen at this address (option -b), and has it the same key"
        f" ({ctx.paths.hmac_key})?"
    )
