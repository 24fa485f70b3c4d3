"""The call that announces a ticket: what it refuses, and where the console is then."""

import dataclasses

import pytest

from fakes import nodes
from fakes.clocks import FakeClock
from ganeti.base import errors
from ganeti.node.calls import consoles
from ganeti.node.consoles import lines
from ganeti.node.consoles.relay import Consoles
from ganeti.node.consoles.tickets import digest
from ganeti.protocols.console.stream import Opening


class Driver:
    """A hypervisor with one guest, whose console is a program of the node."""

    def __init__(self, *names):
        self.names = names

    def info(self, name):
        return name if name in self.names else None

    def require_own(self, name, uuid):
        if uuid != "u1":
            raise errors.HypervisorError(f"instance {name}: is another one")


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    drivers = {**made.hypervisors, "lxc": Driver("web1")}
    return dataclasses.replace(
        made, hypervisors=drivers, consoles=Consoles(FakeClock())
    )


def announce(node, **more):
    request = {
        "digest": digest("t"),
        "instance": "u1",
        "name": "web1",
        "hypervisor": "lxc",
        "hvparams": {"num_ttys": 0},
        "kind": "serial",
        "session": "",
        "holder": "root",
        "seconds": 30,
    }
    return nodes.call(node, "console_ticket", request | more)


def test_a_console_of_a_program_is_its_command(node, monkeypatch):
    announce(node)
    opening = Opening(ticket="t", instance="u1", kind="serial")
    ticket = node.consoles.tickets.redeem(opening)
    words = ("lxc-console", "-P", f"{node.paths.run_dir}/lxc/instance", "-n", "web1")
    assert ticket.command == (*words, "-t", "0")
    started = []
    monkeypatch.setattr(lines, "start", started.append)
    consoles.open_line(node, ticket)
    assert started == [ticket.command]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"name": "web2"}, "instance web2: not running"),
        ({"instance": "u2"}, "is another one"),
        ({"hypervisor": "vmware"}, "vmware: not offered"),
        ({"hypervisor": "fake"}, "does not support serial consoles through a relay"),
        ({"hypervisor": "kvm"}, "instance web1: not running"),
        ({"kind": "spice"}, "console_ticket: "),
        ({"digest": "x"}, "console_ticket: "),
        ({"digest": digest("t") + "\n"}, "console_ticket: "),
        ({"seconds": 0}, "console_ticket: "),
        ({"seconds": 3600}, "console_ticket: "),
        ({"holder": "x" * 257}, "console_ticket: "),
    ],
)
def test_other_tickets_are_refused(node, more, text):
    with pytest.raises(errors.GenericError, match=text):
        announce(node, **more)


def test_a_node_without_a_relay_says_so(node):
    with pytest.raises(errors.HypervisorError, match="relays no consoles"):
        announce(dataclasses.replace(node, consoles=None))
