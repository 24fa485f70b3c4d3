"""Tickets for consoles: once, in time, and for one thing alone."""

import pytest

from fakes.clocks import FakeClock
from ganeti.node.consoles import tickets
from ganeti.protocols.console.stream import Opening

UUID = "5ac0a0ea-0000-4000-8000-000000000001"


def ticket(secret="s3cret", **more):
    values = {
        "digest": tickets.digest(secret),
        "instance": UUID,
        "name": "web1",
        "hypervisor": "kvm",
        "kind": "serial",
        "session": "a",
        "holder": "alice",
    }
    return tickets.Ticket(**values | more)


def opening(secret="s3cret", **more):
    values = {"ticket": secret, "instance": UUID, "kind": "serial", "session": "a"}
    return Opening(**values | more)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def known(clock):
    made = tickets.Tickets(clock)
    made.announce(ticket(), 30.0)
    return made


def test_a_ticket_is_valid_once(known):
    assert known.redeem(opening()) == ticket()
    with pytest.raises(tickets.TicketError, match="was used before"):
        known.redeem(opening())


@pytest.mark.parametrize(("late_s", "is_valid"), [(29.9, True), (30.0, False)])
def test_a_ticket_ends_by_the_clock_of_the_node(known, clock, late_s, is_valid):
    clock.now += late_s
    if is_valid:
        assert known.redeem(opening()).name == "web1"
        return
    with pytest.raises(tickets.TicketError, match=r"serial console .* has expired"):
        known.redeem(opening())


@pytest.mark.parametrize(
    "other", [{"instance": UUID[:-1] + "2"}, {"kind": "vnc"}, {"session": ""}]
)
def test_a_wrong_use_is_refused_and_consumes_the_ticket(known, other):
    (member,) = other
    with pytest.raises(tickets.TicketError, match=f"for another {member}"):
        known.redeem(opening(**other))
    with pytest.raises(tickets.TicketError, match="was used before"):
        known.redeem(opening())


@pytest.mark.parametrize("secret", ["", "s3cre", "s3cret ", "\udcff", "x" * 128])
def test_a_forged_ticket_is_unknown_and_costs_nobody_his(known, secret):
    with pytest.raises(tickets.TicketError, match="unknown"):
        known.redeem(opening(secret))
    assert known.redeem(opening()) == ticket()


def test_a_ticket_is_forgotten_in_the_end(known, clock):
    clock.now += 331
    known.announce(ticket("other"), 30.0)
    with pytest.raises(tickets.TicketError, match="unknown"):
        known.redeem(opening())


def test_waiting_tickets_are_bounded_and_used_ones_are_no_obstacle(clock):
    known = tickets.Tickets(clock)
    for number in range(tickets.MOST_WAITING):
        known.announce(ticket(f"waits {number}"), 30.0)
    with pytest.raises(tickets.TicketError, match="at most 256"):
        known.announce(ticket("one more"), 30.0)
    assert known.redeem(opening("waits 0"))
    known.announce(ticket("one more"), 30.0)
    for number in range(2 * tickets.MOST):
        clock.now += 31
        known.announce(ticket(f"later {number}"), 30.0)
        assert known.redeem(opening(f"later {number}"))
