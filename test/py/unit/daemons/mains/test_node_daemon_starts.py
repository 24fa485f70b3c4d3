"""Starts of the node daemon and of the standby: what they open, in which order."""

import os
import threading

import pytest

from fakes import nodes
from fakes.clocks import FakeClock
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.tls import x509
from ganeti.daemons import common
from ganeti.daemons.mains import noded, standby
from ganeti.protocols import ssconf
from ganeti.protocols.http import admission, tls
from ganeti.protocols.rpc import procedure
from ganeti.store.etcd import parse

SERVERS = parse("etcd://127.0.0.1:1")


def options(*words):
    return common.parse(noded.build_parser(), list(words))


@pytest.fixture
def paths(tmp_path):
    made = nodes.make_node(tmp_path).paths
    os.makedirs(made.data_dir)
    ssconf.write(made, {"primary_ip_family": "2\n"})
    return made


class Opened:
    """The parts that a start opens, by name; ``steps`` has the order."""

    def __init__(self, monkeypatch):
        self.steps, self.args, self.more = [], (), {}
        for module, name in (
            (noded.backend, "load"),
            (noded.guest_files, "sweep"),
            (noded, "lock_memory"),
            (noded, "_load_late_modules"),
        ):
            monkeypatch.setattr(module, name, self._step(name))
        monkeypatch.setattr(noded.server, "Server", self._serve)
        monkeypatch.setattr(noded.netutils, "service_port", lambda *args: args)

    def _step(self, name):
        return lambda *_args: self.steps.append(name)

    def _serve(self, *args, **more):
        self.steps.append("bind")
        self.args, self.more = args, more
        return self

    def start_serving(self):
        self.steps.append("serve")
        return 4711


class Control:
    def ask_stop(self):
        """Stop; nobody asks."""


def test_a_node_daemon_is_in_memory_before_it_serves(paths, monkeypatch):
    opened = Opened(monkeypatch)
    noded.start(options("--no-ssl", "--max-clients", "3"), paths, Control())
    assert opened.steps == [
        "load",
        "sweep",
        "bind",
        "_load_late_modules",
        "lock_memory",
        "serve",
    ]
    address, app = opened.args
    assert address == ("0.0.0.0", 1811)
    assert isinstance(app, noded.App)
    assert opened.more["context"] is None
    plan = opened.more["threads"]
    ordinary = next(lane for lane in plan.lanes if lane.name == procedure.LANE_ORDINARY)
    assert (ordinary.threads, ordinary.waiting, ordinary.patience_s) == (3, 9, 10.0)


def test_a_node_daemon_that_may_be_paged_out_loads_nothing_early(paths, monkeypatch):
    opened = Opened(monkeypatch)
    words = ("--no-ssl", "--no-mlock", "-b", "127.0.0.1", "-p", "77")
    noded.start(options(*words), paths, Control())
    assert opened.steps == ["load", "sweep", "bind", "serve"]
    assert opened.args[0] == ("127.0.0.1", 77)


def test_with_certificates_only_candidates_may_call(paths, monkeypatch):
    opened = Opened(monkeypatch)
    digest = x509.write_cluster_certificate(paths.server_pem)
    noded.start(options("--no-mlock"), paths, Control())
    assert opened.more["context"] is not None
    guard = opened.args[1]._guard
    assert isinstance(guard, tls.PeerGuard)
    # Without a list of candidates, the certificate of the cluster is the caller's.
    assert guard.allows(digest)
    assert not guard.allows("00:11")


def test_modules_that_are_imported_late_exist():
    noded._load_late_modules()


@pytest.mark.parametrize(
    ("name", "threads", "waiting"),
    [("power", 1, 4), ("urgent", 6, 64), ("store", 3, 16), ("storage", 4, 32)],
)
def test_urgent_lanes_have_threads_of_their_own(name, threads, waiting):
    (lane,) = [lane for lane in noded.lane_plan(20).lanes if lane.name == name]
    assert lane == admission.Lane(name, threads, waiting, 5.0)


@pytest.mark.parametrize(
    ("path", "lane"),
    [
        ("/version", "urgent"),
        ("/node_powercycle", "power"),
        ("/store_apply", "store"),
        ("/vg_list", "storage"),
        ("/instance_start", "ordinary"),
        ("/unknown", "ordinary"),
        ("/", "ordinary"),
    ],
)
def test_the_path_decides_about_the_lane(path, lane):
    plan = noded.lane_plan(20)
    assert plan.lane_of(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode()) == lane
    # A request line that is not whole is an ordinary one.
    assert plan.lane_of(f"POST {path}".encode()) == "ordinary"


def test_addresses_of_nodes_are_read_again_after_a_while(paths, caplog):
    clock = FakeClock()
    values = {
        "node_primary_ips": "n1 192.0.2.1\n",
        "node_secondary_ips": "n1 10.0.0.1\n",
    }
    ssconf.write(paths, values)
    known = noded._KnownAddresses(paths, clock)
    assert known.has("192.0.2.1")
    assert known.has("10.0.0.1")
    assert not known.has("192.0.2.2")
    ssconf.write(paths, {"node_primary_ips": "n2 192.0.2.2\n"})
    clock.now += 9.9
    assert not known.has("192.0.2.2")
    clock.now += 0.1
    assert known.has("192.0.2.2")
    assert not known.has("192.0.2.1")
    # Addresses that cannot be read stay as they were.
    ssconf.write(paths, {"node_primary_ips": "odd\n"})
    clock.now += 10
    assert known.has("192.0.2.2")


class Http:
    def __init__(self):
        self.asked = []


@pytest.mark.parametrize("has_ended", [True, False])
def test_running_calls_have_some_time_to_end(monkeypatch, caplog, has_ended):
    asked = []
    monkeypatch.setattr(
        noded.server,
        "wait_until_stopped",
        lambda *args: asked.append(args) or has_ended,
    )
    http, viewers = Http(), noded.Consoles(FakeClock())
    viewers.relay.start()
    noded.Noded(http, viewers).stop()
    assert asked == [(http, 25.0)]
    # The viewers have gone, too.
    assert not viewers.relay.run_soon(lambda: None)
    assert ("calls are still running" in caplog.text) is not has_ended


def test_a_real_node_runs_it_as_root_and_a_bad_certificate_is_named(paths, monkeypatch):
    monkeypatch.setattr(common.os, "geteuid", lambda: 1000)
    with pytest.raises(common.StartError, match="runs as user 1000, wanted 0"):
        noded.check(options("--no-ssl"), Paths(root="", hostname="n1"))
    with open(paths.server_pem, "w") as out:
        out.write("no certificate")
    with pytest.raises(common.StartError, match=r"server\.pem"):
        noded.check(options(), paths)


# The standby
class Mirror:
    def __init__(self):
        self.steps = []

    def run(self, end):
        end.wait()
        self.steps.append("ended")

    def close(self):
        self.steps.append("closed")
        raise errors.StorageError("disk")


class Candidacy:
    """The leadership is free twice, then the daemon ends."""

    def __init__(self, error=None):
        self.error = error
        self.left = 2
        self.is_closed = False
        self.args = None

    def __call__(self, *args):
        self.args = args
        return self

    def wait(self, _end):
        if self.error is not None:
            raise self.error
        self.left -= 1
        return self.left >= 0

    def close(self):
        self.is_closed = True


def make_standby(paths, clock):
    return standby.Standby(paths, SERVERS, clock, FakeRunner())


def test_a_standby_follows_campaigns_and_tidies_until_it_is_stopped(paths, monkeypatch):
    mirror, made = Mirror(), make_standby(paths, SystemClock())
    opened = []
    monkeypatch.setattr(
        standby, "open_mirror", lambda *args: opened.append(args) or mirror
    )
    started = []
    for name in ("_campaign", "_tidy"):
        monkeypatch.setattr(
            made, name, lambda name=name: started.append(name) or made._end.wait()
        )
    control, closed = Control(), []
    monkeypatch.setattr(made._gateway, "close", lambda: closed.append(1))
    assert made.start(control) is made
    assert opened == [(SERVERS, paths.store_db, made._clock)]
    assert made._control is control
    assert [thread.name for thread in made._threads] == ["mirror", "candidacy", "tidy"]
    assert all(thread.daemon for thread in made._threads)
    made.stop()
    assert not any(thread.is_alive() for thread in made._threads)
    assert mirror.steps == ["ended", "closed"]
    assert sorted(started) == ["_campaign", "_tidy"]
    assert closed == [1]


def test_a_standby_takes_over_whenever_nobody_leads(paths, monkeypatch):
    clock = FakeClock()
    candidacy, made = Candidacy(), make_standby(paths, clock)
    monkeypatch.setattr(standby, "Candidacy", candidacy)
    monkeypatch.setattr(made, "_try", lambda: 7.0)
    began = clock.now
    made._campaign()
    assert clock.now - began == 14.0
    assert candidacy.args == (SERVERS, "", clock)
    assert candidacy.is_closed


def test_a_store_that_cannot_be_used_ends_the_campaign(paths, monkeypatch, caplog):
    candidacy = Candidacy(errors.ConfigurationError("moved to a file"))
    monkeypatch.setattr(standby, "Candidacy", candidacy)
    make_standby(paths, FakeClock())._campaign()
    assert candidacy.is_closed
    assert "this node cannot take over: moved to a file" in caplog.text


def test_without_a_mirror_there_is_nothing_to_follow(paths):
    made = make_standby(paths, FakeClock())
    thread = threading.Thread(target=made._follow)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
