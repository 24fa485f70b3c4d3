"""Procedure that announces the ticket of a console, and the way to that console."""

from typing import Annotated, Any

import msgspec

from ganeti.base import errors
from ganeti.model.objects import consoles
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.consoles import lines
from ganeti.node.consoles.tickets import Ticket
from ganeti.node.hypervisor import Hypervisor
from ganeti.protocols.console import stream
from ganeti.protocols.ssh import account

_Text = Annotated[str, msgspec.Meta(max_length=256)]


class ConsoleTicket(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket that the master has issued; see `Ticket` for its members.

    Attributes:
        hvparams: filled hypervisor parameters of the instance.
        seconds: for which the ticket is valid.
    """

    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    instance: _Text
    name: _Text
    hypervisor: _Text
    hvparams: dict[str, Any]
    kind: stream.Kind
    session: stream.Session
    holder: _Text
    seconds: Annotated[float, msgspec.Meta(gt=0, le=300)]


@procedure("console_ticket")
def console_ticket(node: LocalNode, request: ConsoleTicket) -> None:
    """Announce a ticket, which one viewer may present to this node.

    Raises:
        HypervisorError: the guest does not run here, or has no such console.
        TicketError: too many tickets wait for their viewers.
    """
    if node.consoles is None:
        raise errors.HypervisorError("this node relays no consoles")
    driver = node.hypervisor(request.hypervisor)
    command = _command(node, request)
    if command:
        _require_running(driver, request.name)
    else:
        driver.console_place(request.name, request.kind)
    driver.require_own(request.name, request.instance)
    ticket = Ticket(
        digest=request.digest,
        instance=request.instance,
        name=request.name,
        hypervisor=request.hypervisor,
        kind=request.kind,
        session=request.session,
        holder=request.holder,
        command=command,
    )
    node.consoles.tickets.announce(ticket, request.seconds)


def _command(node: LocalNode, request: ConsoleTicket) -> tuple[str, ...]:
    """Return the command of a serial console that is no socket, else nothing."""
    if request.kind != "serial":
        return ()
    host = account.console_host(node.paths, node.paths.hostname, "", 0)
    return consoles.command_of(request.hypervisor, request.name, request.hvparams, host)


def _require_running(driver: Hypervisor, name: str) -> None:
    if driver.info(name) is None:
        raise errors.HypervisorError(f"instance {name}: not running")


def open_line(node: LocalNode, ticket: Ticket) -> lines.Line:
    """Open a console; the guest may have stopped since its ticket was announced.

    Raises:
        HypervisorError: it does not run, or has no such console.
    """
    if ticket.command:
        # Whether the guest runs is the business of the program: to ask takes too long.
        return lines.start(ticket.command)
    driver = node.hypervisor(ticket.hypervisor)
    return lines.connect(driver.console_place(ticket.name, ticket.kind))
