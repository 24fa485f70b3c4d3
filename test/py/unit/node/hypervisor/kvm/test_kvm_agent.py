"""The agent in a guest: what it reports, and file systems that never stay frozen."""

import os
import signal

import pytest

from fakes import guests
from fakes.emulators import GuestAgent
from fakes.patience import PATIENCE_S
from fakes.xen_guests import instance
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.node.hypervisor import registry
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import agent, launch
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import sending

INTERFACES = [
    {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "prefix": 8}]},
    {
        "name": "eth0",
        "hardware-address": "AA:00:00:00:00:01",
        "ip-addresses": [
            {"ip-address": "192.0.2.7", "prefix": 24, "ip-address-type": "ipv4"},
            {"ip-address": "fe80::1%eth0", "prefix": 64},
            {"ip-address": "$(reboot)", "prefix": 1},
            {"ip-address": "192.0.2.8", "prefix": 99},
            "no object",
        ],
    },
    {"name": "wlan\x1b[2J", "hardware-address": "AA:00:00:00:00:02"},
    {"name": "wg0", "hardware-address": 5, "ip-addresses": "none"},
    7,
]
FREEZING = {"guest_fsfreeze_freeze": 2, "guest_fsfreeze_thaw": 2}


@pytest.fixture
def effects():
    with guests.short_directory() as path:
        yield NodeEffects(Paths(path, "n1"), SystemRunner(), SystemClock())


@pytest.fixture
def guest(effects):
    made = Files(effects.paths, "web1")
    made.make_directories()
    return made


def talk(guest, **answers):
    return GuestAgent(guest.control("qga"), **answers)


def test_only_good_addresses_are_passed_on(guest):
    with talk(guest, guest_network_get_interfaces=INTERFACES):
        assert agent.addresses(guest) == [
            ("eth0", "aa:00:00:00:00:01", ["192.0.2.7/24", "fe80::1/64"]),
            ("wg0", "", []),
        ]


def test_numbers_are_bounded(guest):
    many = [{"ip-address": f"192.0.2.{n}", "prefix": 24} for n in range(40)]
    rows = [{"name": f"eth{n}", "ip-addresses": many} for n in range(40)]
    with talk(guest, guest_network_get_interfaces=rows):
        answer = agent.addresses(guest)
    assert (len(answer), len(answer[0][2])) == (32, 32)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"nonsense\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b"[]\n", "refused"),
        (b'{"error": {"desc": "disabled"}}\n', "refused: 'disabled'"),
        (b"x" * 300_000, "more than 262144 bytes"),
        (None, "no answer"),
    ],
)
def test_a_hostile_agent_fails_in_time(guest, monkeypatch, answer, text):
    # Short where nothing comes; on a busy machine an answer may take longer.
    limit_s = 0.2 if answer is None else PATIENCE_S
    monkeypatch.setattr(agent, "ANSWER_S", limit_s)
    with (
        talk(guest, guest_network_get_interfaces=answer),
        agent.Agent(guest.control("qga"), "web1") as session,
        pytest.raises(errors.HypervisorError, match=f"instance web1.*{text}"),
    ):
        session.execute("guest-network-get-interfaces", limit_s)


def test_without_a_channel_the_error_names_the_guest(guest):
    with pytest.raises(errors.HypervisorError, match=r"web1: guest agent: cannot conn"):
        agent.addresses(guest)


def holder(guest):
    with open(agent.marker(guest)) as src:
        return int(src.read())


def test_freezing_and_thawing(effects, guest):
    with talk(guest, **FREEZING) as inside:
        agent.freeze(effects, guest, 60)
        assert inside.frozen
        # It is not among the processes that end with the node daemon.
        assert os.getsid(holder(guest)) == holder(guest)
        with pytest.raises(errors.HypervisorError, match="is frozen already"):
            agent.freeze(effects, guest, 60)
        assert inside.frozen
        assert not agent.thaw_abandoned(guest)
        assert agent.thaw(effects, guest) is True
        assert not inside.frozen
        assert not os.path.exists(agent.marker(guest))
        assert agent.thaw(effects, guest) is False


@pytest.mark.parametrize("limit_s", [-1, 0, 600.1])
def test_no_guest_is_frozen_for_long(effects, guest, limit_s):
    # Its agent is not even asked; there is none.
    with pytest.raises(errors.HypervisorError, match="wanted at most 600 seconds"):
        agent.freeze(effects, guest, limit_s)
    assert not os.path.exists(agent.marker(guest))


def test_the_limit_thaws_without_anybody(effects, guest):
    with talk(guest, **FREEZING) as inside:
        agent.freeze(effects, guest, 0.01)
        inside.wait_for("guest-fsfreeze-thaw")
        assert not inside.frozen


def test_a_guest_whose_holder_was_killed_is_thawed_by_the_next_look(effects, guest):
    with talk(guest, **FREEZING) as inside:
        agent.freeze(effects, guest, 600)
        pid = holder(guest)
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        with os.fdopen(ended):
            import select

            assert select.select([ended], [], [], 60)[0]
        assert inside.frozen
        assert agent.thaw_abandoned(guest)
        assert not inside.frozen
        assert not agent.thaw_abandoned(guest)


def test_a_guest_that_cannot_be_frozen_is_thawed(effects, guest):
    broken = {"guest_fsfreeze_freeze": b'{"error": {"desc": "busy"}}\n'}
    with talk(guest, **FREEZING | broken) as inside:
        with pytest.raises(errors.HypervisorError, match="refused: 'busy'"):
            agent.freeze(effects, guest, 60)
        assert inside.commands[-1] == "guest-fsfreeze-thaw"
        assert not os.path.exists(agent.marker(guest))


def test_the_marker_goes_with_the_guest(effects, guest):
    with open(agent.marker(guest), "w") as out:
        out.write("1")
    launch.remove_remains(effects, guest)
    assert not os.path.exists(agent.marker(guest))


def test_without_an_agent_nothing_is_thawed_and_nobody_waits(effects, guest):
    """An export waited two minutes, and each later one found the guest frozen."""
    for _attempt in range(2):
        with pytest.raises(errors.HypervisorError, match="guest agent: cannot connect"):
            with_silent_channel(effects, guest)
        assert not os.path.exists(agent.marker(guest))


def with_silent_channel(effects, guest):
    """Freeze a guest on whose channel nobody listens."""
    import socket

    path = guest.control("qga")
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(path)
        try:
            agent.freeze(effects, guest, 1)
        finally:
            os.unlink(path)


def test_the_mark_of_a_killed_holder_prevents_no_freezing(effects, guest):
    with open(agent.marker(guest), "w") as out:
        out.write("0")
    with talk(guest, **FREEZING) as inside:
        agent.freeze(effects, guest, 60)
        assert inside.frozen
        assert agent.thaw(effects, guest)


def test_a_frozen_guest_is_thawed_before_it_leaves(effects, guest, monkeypatch):
    driver = registry.drivers(effects)["kvm"]
    monkeypatch.setattr(Files, "alive_pid", lambda _self: os.getpid())
    begun = []
    monkeypatch.setattr(
        sending, "begin", lambda *_args, **_options: begun.append(inside.frozen)
    )
    with talk(guest, **FREEZING) as inside:
        agent.freeze(effects, guest, 60)
        driver.migrate(
            instance().replace(name="web1"),
            "192.0.2.2",
            live=True,
        )
        assert not agent.thaw(effects, guest)
    assert begun == [False]
