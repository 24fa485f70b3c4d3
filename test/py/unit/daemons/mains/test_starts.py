"""Starts of daemons: checks before, arguments of what they open, and their end."""

import os
import threading
import types

import pytest

from fakes import clusters
from fakes import store as fake_store
from fakes.clocks import FakeClock
from fakes.rpc import FakeRunner as FakeNodes
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.daemons import common
from ganeti.daemons.confd import confd_source
from ganeti.daemons.mains import confd, maintd, masterd, mond
from ganeti.daemons.masterd import startup
from ganeti.decisions.quorum import Term
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.http import server as http_server
from ganeti.protocols.rpc import Result
from ganeti.store import choice
from ganeti.store.copies import branches

REAL = Paths(root="", hostname="node1.example.com")


class Site:
    """A node of a cluster of three with its files; node 1 is the master."""

    def __init__(self, folder, number=1, nodes=3):
        self.snapshot = clusters.snapshot(nodes=nodes)
        self.node = self.snapshot.nodes[clusters.node_uuid(number)]
        name = self.node.name
        self.paths = Paths(root=str(folder / name), hostname=name)
        os.makedirs(self.paths.data_dir)
        os.makedirs(f"{self.paths.root}/etc")
        with open(self.paths.at("/etc/hosts"), "w") as out:
            out.write(f"192.0.2.{number} {name}\n")
        with open(self.paths.hmac_key, "w") as out:
            out.write("key\n")
        fake_store.write(self.paths, self.snapshot)
        self.master(self.snapshot.nodes[clusters.node_uuid(1)].name)

    def master(self, name):
        values = {"master_node": f"{name}\n", "primary_ip_family": "2\n"}
        ssconf.write(self.paths, values)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


class Votes:
    """The nodes' votes, in place of the network; the last round stays."""

    def __init__(self, monkeypatch, *rounds):
        self.rounds, self.asked, self.runners = list(rounds), [], []
        monkeypatch.setattr(rpc, "NetworkRunner", self._runner)

    def _runner(self, source, _paths, term):
        assert term is None
        made = FakeNodes(source, {"master_node_name": self._vote})
        made.close = lambda: self.runners.append("closed")
        return made

    def _vote(self, node, _args):
        self.asked.append(node)
        votes = self.rounds[0]
        if len(self.rounds) > 1 and len(self.asked) % 3 == 0:
            self.rounds.pop(0)
        vote = votes.get(node)
        return failure("no answer") if vote is None else vote


N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))
OWN, OTHER = "node1.example.com", "node2.example.com"
EVERYBODY = dict.fromkeys((N1, N2, N3), OWN)


def options(parser, *words):
    return common.parse(parser, list(words))


# The master daemon
def masterd_options(*words):
    return options(masterd.build_parser(), *words)


def check_masterd(site, *words, silent=(), clock=None):
    left = set(silent)
    masterd._check(masterd_options(*words), site.paths, clock or FakeClock(), left)
    return left


def code_of(call, *args, **more):
    with pytest.raises(common.StartError) as caught:
        call(*args, **more)
    return caught.value.code, str(caught.value)


def test_options_of_the_master_daemon():
    plain = masterd_options()
    assert (plain.no_voting, plain.yes_do_it, plain.require_majority) == (False,) * 3
    assert plain.not_answering == frozenset()
    words = ("--no-voting", "--yes-do-it", "--require-majority")
    given = masterd_options(*words, "--not-answering", "a,b")
    assert (given.no_voting, given.yes_do_it, given.require_majority) == (True,) * 3
    assert given.not_answering == {"a", "b"}


def test_a_master_that_most_nodes_name_may_start(site, monkeypatch):
    votes = Votes(monkeypatch, {**EVERYBODY, N3: None})
    assert check_masterd(site) == {N3}
    assert sorted(votes.asked) == [N1, N2, N3]
    assert votes.runners == ["closed"]


def test_nodes_that_were_silent_are_not_asked_if_the_others_decide(site, monkeypatch):
    votes = Votes(monkeypatch, EVERYBODY)
    assert check_masterd(site, silent=[N3]) == {N3}
    assert sorted(votes.asked) == [N1, N2]


def test_a_master_that_lost_the_vote_does_not_start(site, monkeypatch):
    votes = Votes(monkeypatch, {N1: OWN, N2: OTHER, N3: OTHER})
    code, text = code_of(check_masterd, site)
    assert code == 1
    assert "1 of 3 nodes call node1.example.com master" in text
    assert votes.runners == ["closed"]


def test_a_vote_is_repeated_after_pauses(site, monkeypatch):
    votes = Votes(monkeypatch, {N1: OWN}, {N1: OWN}, EVERYBODY)
    clock = FakeClock()
    began = clock.now
    assert check_masterd(site, clock=clock) == set()
    assert clock.now - began == 2 * startup.VOTE_PAUSE_S
    assert len(votes.asked) == 9


def test_without_voting_nobody_is_asked(site, monkeypatch):
    votes = Votes(monkeypatch, {})
    assert check_masterd(site, "--no-voting", silent=[N2]) == {N2}
    assert votes.asked == []


def test_the_only_node_of_a_cluster_is_the_master(tmp_path, monkeypatch):
    votes = Votes(monkeypatch, {})
    assert check_masterd(Site(tmp_path, nodes=1), silent=["x"]) == set()
    assert votes.asked == []


def test_other_nodes_and_unknown_names_have_codes_of_their_own(site, tmp_path):
    site.master(OTHER)
    code, text = code_of(check_masterd, site)
    assert (code, text) == (11, f"the master is {OTHER}, this node is {OWN}")
    site.paths = Paths(root=site.paths.root, hostname="stranger..invalid")
    code, text = code_of(check_masterd, site)
    assert code == 12
    assert "does not resolve" in text


def test_a_configuration_that_names_another_node_or_is_missing(site, tmp_path):
    second = Site(tmp_path, number=2)
    second.master(OTHER)
    code, text = code_of(check_masterd, second)
    assert code == 1
    assert text == f"the configuration names {OWN} as master, not {OTHER}"
    os.unlink(site.paths.store_db)
    code, text = code_of(check_masterd, site)
    assert code == 1
    assert text.startswith("the configuration cannot be used: ")


def test_with_the_store_in_etcd_its_servers_decide(tmp_path, monkeypatch):
    votes = Votes(monkeypatch, {})
    second = Site(tmp_path, number=2)
    second.master(OTHER)
    monkeypatch.setattr(choice, "read", lambda _paths: object())
    assert check_masterd(second, silent=[N1]) == {N1}
    assert votes.asked == []


def test_a_real_node_runs_it_as_root(site, monkeypatch):
    monkeypatch.setattr(common.os, "geteuid", lambda: 1000)
    code, text = code_of(masterd._check, masterd_options(), REAL, FakeClock(), set())
    assert (code, text[:30]) == (1, "runs as user 1000, wanted 0; u")


class Terminal:
    def __init__(self, answer, is_terminal=True):
        self.answer, self.is_terminal = answer, is_terminal

    def isatty(self):
        return self.is_terminal

    def readline(self):
        return self.answer


@pytest.mark.parametrize(
    ("words", "answer", "error"),
    [
        ((), None, None),
        (("--no-voting", "--yes-do-it"), None, None),
        (("--no-voting",), "YES\n", None),
        (("--no-voting",), "yes\n", "not confirmed"),
        (("--no-voting",), "", "not confirmed"),
    ],
)
def test_a_start_without_vote_is_confirmed(monkeypatch, capsys, words, answer, error):
    monkeypatch.setattr(masterd.sys, "stdin", Terminal(answer))
    if error:
        assert code_of(masterd._confirm, masterd_options(*words)) == (1, error)
    else:
        masterd._confirm(masterd_options(*words))
    assert ("Type YES to go on: " in capsys.readouterr().out) == (answer is not None)


def test_without_a_terminal_nobody_can_confirm(monkeypatch):
    monkeypatch.setattr(masterd.sys, "stdin", Terminal("YES\n", is_terminal=False))
    code, text = code_of(masterd._confirm, masterd_options("--no-voting"))
    assert (code, text) == (1, "--no-voting needs --yes-do-it without a terminal")


class EndNowError(Exception):
    pass


class Inner:
    """A service whose end a test decides; ``steps`` has what was done."""

    def __init__(self, monkeypatch, *, is_over=False, have_ended=True):
        self.steps = []
        self._is_over, self._have_ended = is_over, have_ended
        monkeypatch.setattr(masterd.common, "end_now", self._end)

    def _end(self, code):
        self.steps.append(("end", code))
        raise EndNowError

    def stop(self):
        self.steps.append("stop")
        return self._have_ended

    def close(self):
        self.steps.append("close")

    def is_over(self):
        return self._is_over


def running(inner, clock):
    return masterd._Running(inner, inner, inner, clock)


@pytest.fixture
def limit(monkeypatch):
    """Return the threads that were started; none of them runs."""
    started = []

    class Thread:
        def __init__(self, target, name, daemon):
            self.target, self.daemon = target, daemon

        def start(self):
            assert self.daemon
            started.append(self.target)

    monkeypatch.setattr(masterd.threading, "Thread", Thread)
    return started


def test_a_master_stops_in_order(monkeypatch, limit):
    inner = Inner(monkeypatch)
    service = running(inner, FakeClock())
    service.stop()
    assert inner.steps == ["stop", "close"]
    assert limit == [service._end_late]


def test_a_deposed_master_ends_at_once(monkeypatch, limit):
    inner = Inner(monkeypatch, is_over=True)
    with pytest.raises(EndNowError):
        running(inner, FakeClock()).stop()
    assert inner.steps == [("end", 11)]
    assert limit == []


def test_opcodes_that_go_on_end_with_the_process(monkeypatch, limit):
    inner = Inner(monkeypatch, have_ended=False)
    with pytest.raises(EndNowError):
        running(inner, FakeClock()).stop()
    assert inner.steps == ["stop", ("end", 0)]
    assert len(limit) == 1


def test_a_stop_that_hangs_is_ended(monkeypatch, caplog):
    inner, clock = Inner(monkeypatch), FakeClock()
    began = clock.now
    with pytest.raises(EndNowError):
        running(inner, clock)._end_late()
    assert inner.steps == [("end", 0)]
    assert clock.now - began == 20
    assert "not stopped within 20 s" in caplog.text


class Control:
    def __init__(self):
        self.asked = []
        self.is_asked = threading.Event()

    def ask_end(self, code):
        self.asked.append(code)
        self.is_asked.set()

    def ask_stop(self, code=0):
        self.asked.append(code)


@pytest.mark.parametrize("is_etcd", [False, True])
@pytest.mark.parametrize("error", [None, RuntimeError("disk")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deposed_master_gives_its_address_up_and_ends(
    site, monkeypatch, is_etcd, error
):
    dropped = []

    def drop(snapshot, paths):
        dropped.append((snapshot.cluster.master_ip, paths))
        if error:
            raise error

    monkeypatch.setattr(choice, "is_etcd", lambda _paths: is_etcd)
    monkeypatch.setattr(masterd, "_drop_address", drop)
    clock, control = FakeClock(), Control()
    began = clock.now
    masterd._leaving(site.paths, clock, control)()
    assert control.is_asked.wait(60)
    assert control.asked == [11]
    assert dropped == ([] if is_etcd else [("192.0.2.100", site.paths)])
    assert clock.now - began == pytest.approx(0.2 if is_etcd else 0)


@pytest.mark.parametrize(
    "problem", [None, "fails", errors.RpcError("no"), OSError("x")]
)
def test_the_address_of_a_deposed_master_is_removed(site, monkeypatch, caplog, problem):
    calls = []

    def drop(*args, **more):
        calls.append((args, more))
        if isinstance(problem, Exception):
            raise problem
        return Result("node_deactivate_master_ip", OWN, fail_msg=problem)

    monkeypatch.setattr(masterd.address_removal, "drop", drop)
    masterd._drop_address(site.snapshot, site.paths)
    cluster = site.snapshot.cluster
    wanted = masterd.master_ip.parameters(cluster)
    more = {"is_external": cluster.use_external_mip_script, "timeout_s": 2.0}
    assert calls == [((site.paths, "192.0.2.1", wanted), more)]
    assert ("address could not be removed" in caplog.text) == (problem is not None)


def test_a_stranger_and_a_local_cluster_have_no_address_to_remove(site, monkeypatch):
    def drop(*_args, **_more):
        pytest.fail("called")

    monkeypatch.setattr(masterd.address_removal, "drop", drop)
    masterd._drop_address(site.snapshot, Paths(root="/x/n9", hostname="n9"))
    local = clusters.snapshot(nodes=1, master_ip="127.0.0.1")
    masterd._drop_address(local, site.paths)


class Numbers:
    """The places where numbers are left out; the second attempt succeeds."""

    def __init__(self, error):
        self.error = error
        self.left_out = []

    def leave_out(self, number):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.left_out.append(number)


def test_numbers_are_left_out_when_the_disk_has_room_again(caplog):
    from ganeti.master.config import HigherNumbers
    from ganeti.store.numbers import Numbers as Three

    higher, clock = HigherNumbers(), FakeClock()
    began = clock.now
    opened, config, queue = Numbers(errors.StorageError("full")), *(Numbers(None),) * 2
    deps = types.SimpleNamespace(config=config, queue=queue, clock=clock)
    higher.note(Three(5, 6, 7))
    wait = clock.wait

    def close_later(event, seconds):
        result = wait(event, seconds)
        note = higher.note

        def last(numbers):
            note(numbers)
            higher.close()

        higher.note = last
        return result

    clock.wait = close_later
    masterd._leave_out_numbers(deps, opened, higher)
    assert opened.left_out == [5]
    assert config.left_out == [6, 7]
    assert clock.now - began == 1.0
    assert "numbers are not left out yet: full" in caplog.text


def test_a_deposed_master_leaves_nothing_out():
    from ganeti.master.config import HigherNumbers
    from ganeti.store.numbers import Numbers as Three

    higher, opened = HigherNumbers(), Numbers(errors.TermError("over"))
    higher.note(Three(5, 6, 7))
    deps = types.SimpleNamespace(config=opened, queue=opened, clock=FakeClock())
    masterd._leave_out_numbers(deps, opened, higher)
    assert opened.left_out == []


def test_sockets_of_a_killed_daemon_are_removed(site):
    paths = site.paths
    sockets = (paths.query_socket, paths.master_socket, paths.rapi_socket)
    for path in sockets[1:]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
    masterd._remove_sockets(paths)
    assert not any(map(os.path.exists, sockets))


def test_pings_of_the_master(monkeypatch):
    pings = []
    monkeypatch.setattr(
        masterd.netutils, "tcp_ping", lambda *args, **more: pings.append((args, more))
    )
    masterd._tcp_ping("192.0.2.1", 22, "192.0.2.9")
    masterd._address_answers("192.0.2.1")
    assert pings == [
        (("192.0.2.1", 22), {"source": "192.0.2.9", "live_port_needed": True}),
        (("192.0.2.1", 1811), {}),
    ]


def test_known_hosts_that_cannot_be_written_do_not_stop_the_master(
    site, monkeypatch, caplog
):
    def fail(path, snapshot):
        assert (path, snapshot) == (site.paths.data("known_hosts"), site.snapshot)
        raise OSError("read-only")

    monkeypatch.setattr(masterd.host_keys, "refresh", fail)
    masterd._refresh_known_hosts(site.paths, site.snapshot)
    assert "known_hosts: cannot be written: read-only" in caplog.text


def test_a_wrong_environment_or_confirmation_ends_the_program(monkeypatch, capsys):
    monkeypatch.setattr(masterd.os, "environ", {"GANETI_ROOTDIR": "/x"})
    assert masterd.main([]) == 1
    assert capsys.readouterr().err.startswith("ganeti-masterd: environment")
    monkeypatch.setattr(masterd.os, "environ", {})
    monkeypatch.setattr(masterd.sys, "stdin", Terminal("", is_terminal=False))
    assert masterd.main(["--no-voting"]) == 1
    text = "ganeti-masterd: --no-voting needs --yes-do-it without a terminal\n"
    assert capsys.readouterr().err == text


# Copies of a master that a minority elected
class Opened:
    def __init__(self, snapshot, documents=()):
        self.term = Term(3, N1)
        self.documents = dict(documents)
        self.committed = []
        self._snapshot = snapshot

    def snapshot(self):
        return self._snapshot

    def read(self, table, key):
        return self.documents.get((table, key))

    def commit_soon(self, changes):
        self.committed += changes


DIGEST = "ab" * 16


@pytest.fixture
def ask(site, monkeypatch):
    """Return a function that has node 2 answer, and notes its copy."""

    def note(opened, answer):
        nodes = FakeNodes(lambda: site.snapshot, {"store_status": answer})
        monkeypatch.setattr(rpc, "NetworkRunner", lambda *_args: nodes)
        return masterd.note_minority(opened, site.paths, N2)

    return note


def status(site, **changes):
    cluster = site.snapshot.cluster.uuid
    return {"cluster": cluster, "written": 4, "digest": DIGEST, **changes}


def test_a_newer_copy_is_noted_once(site, ask, caplog):
    opened = Opened(site.snapshot)
    assert ask(opened, status(site)) is False
    (document,) = opened.committed
    assert document == branches.document(N2, DIGEST)
    assert f"the copy of the configuration on {OTHER} is of a master" in caplog.text
    opened.documents[document.table, document.key] = document.data
    assert ask(opened, status(site)) is True
    assert len(opened.committed) == 1


@pytest.mark.parametrize("changes", [{"written": 2}, {"cluster": "x"}, {"digest": "a"}])
def test_a_copy_that_is_not_newer_is_not_noted(site, ask, changes):
    opened = Opened(site.snapshot)
    assert ask(opened, status(site, **changes)) is True
    assert opened.committed == []


def test_a_silent_or_unknown_node_has_no_copy_to_note(site, ask, caplog):
    caplog.set_level("INFO")
    opened = Opened(site.snapshot)
    assert ask(opened, failure("no answer")) is False
    assert f"the copy of {OTHER} was not noted: no answer" in caplog.text
    assert masterd.note_minority(opened, site.paths, "unknown") is False
    assert opened.committed == []


# Maintenance, monitoring, confd
PARSERS = {module.NAME: module for module in (maintd, mond, confd)}


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_ports_and_addresses_are_checked_before_the_start(site, name):
    module = PARSERS[name]
    for words, text in (
        (("-p", "65536"), "--port: wanted 0 to 65535, found 65536"),
        (("-p", "-1"), "--port: wanted 0 to 65535, found -1"),
        (("-b", "eth0"), "--bind: wanted an address, found 'eth0'"),
    ):
        wrong = options(module.build_parser(), *words)
        assert code_of(module.check, wrong, site.paths) == (1, text)
    plain = options(module.build_parser())
    assert (plain.port, plain.bind) == (None, None)


@pytest.mark.parametrize("name", ["ganeti-mond", "ganeti-confd"])
def test_limits_of_ports_are_ports(site, name):
    module = PARSERS[name]
    for port in ("0", "65535"):
        module.check(options(module.build_parser(), "-p", port), site.paths)
    os.unlink(site.paths.hmac_key)
    code, text = code_of(module.check, options(module.build_parser()), site.paths)
    assert code == 1
    assert text.startswith(site.paths.hmac_key)
    assert text.endswith("is this node part of a cluster?")


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_real_node_runs_daemons_as_root(monkeypatch, name):
    module = PARSERS[name]
    monkeypatch.setattr(common.os, "geteuid", lambda: 1000)
    code, text = code_of(module.check, options(module.build_parser()), REAL)
    assert (code, text[:28]) == (1, "runs as user 1000, wanted 0;")


def check_maintd(site, *words):
    maintd.check(options(maintd.build_parser(), *words), site.paths)


def test_maintenance_runs_on_the_master_that_most_nodes_name(site, monkeypatch):
    votes = Votes(monkeypatch, EVERYBODY)
    check_maintd(site, "-p", "65535", "-b", "127.0.0.1")
    assert sorted(votes.asked) == [N1, N2, N3]
    check_maintd(site, "--not-answering", N2, "-p", "0")
    assert sorted(votes.asked[3:]) == [N1, N3]
    assert votes.runners == ["closed"] * 2
    check_maintd(site, "--no-voting", "--yes-do-it")
    assert len(votes.asked) == 5


def test_maintenance_without_a_vote_is_confirmed(site):
    text = "--no-voting: needs --yes-do-it"
    assert code_of(check_maintd, site, "--no-voting") == (1, text)


def test_a_lost_vote_is_no_error_of_maintenance(site, monkeypatch):
    votes = Votes(monkeypatch, {N1: OWN, N2: OTHER, N3: OTHER})
    assert code_of(check_maintd, site)[0] == 11
    assert votes.runners == ["closed"]
    site.master(OTHER)
    assert code_of(check_maintd, site)[0] == 11


def test_maintenance_asks_again_after_a_second(site, monkeypatch):
    Votes(monkeypatch, {N1: OWN}, EVERYBODY)
    clock = FakeClock()
    monkeypatch.setattr(maintd.clock, "SystemClock", lambda: clock)
    began = clock.now
    check_maintd(site)
    assert clock.now - began == 1.0


def test_maintenance_of_one_node_asks_nobody(tmp_path, monkeypatch):
    votes = Votes(monkeypatch, {})
    check_maintd(Site(tmp_path, nodes=1))
    assert votes.asked == []


def test_maintenance_needs_key_and_configuration(site):
    os.unlink(site.paths.store_db)
    code, text = code_of(check_maintd, site)
    assert (code, text[:33]) == (1, "the configuration cannot be used:")
    os.unlink(site.paths.hmac_key)
    code, text = code_of(check_maintd, site)
    assert (code, text[:35]) == (1, "cannot read the key of the cluster:")


class Http:
    """The HTTP servers that daemons make; nothing is served."""

    def __init__(self, monkeypatch):
        self.made, self.stopped = [], []
        monkeypatch.setattr(http_server, "Server", self._make)
        monkeypatch.setattr(
            http_server, "wait_until_stopped", lambda *args: self.stopped.append(args)
        )

    def _make(self, address, app, **more):
        self.made.append((address, app, more))
        return self

    def start_serving(self):
        return 4711


PLAIN = {"context": None, "max_body": 1024}


def test_maintenance_serves_its_status_and_asks_the_master(site, monkeypatch):
    http, made, repaired = Http(monkeypatch), [], []

    class Rounds:
        status = "status"

        def __init__(self, *args, passes=None, is_late=None):
            made.append(args)
            self.passes = passes
            self.is_late = is_late
            self.is_live = threading.Event()
            self.is_stopped = False

        def live(self):
            self.is_live.set()

        def stop(self):
            self.is_stopped = True

    class Client:
        @staticmethod
        def of_node(paths, **limits):
            made.append((paths, limits))
            return Client()

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            made.append("closed")

        def call(self, method, args):
            return (method, args)

    monkeypatch.setattr(maintd, "Maintenance", Rounds)
    monkeypatch.setattr(maintd, "NodeDeaths", Rounds)
    monkeypatch.setattr(
        maintd.instances, "repair", lambda *args: repaired.append(args) or 2
    )
    monkeypatch.setattr(maintd, "Client", Client)
    served = []
    monkeypatch.setattr(
        maintd,
        "Application",
        lambda status, metrics: served.append(metrics) or ("app", status),
    )
    monkeypatch.setattr(
        maintd.maintd_metrics,
        "exposition",
        lambda call, _room: call("QueryMetrics", []),
    )
    monkeypatch.setattr(
        maintd.netutils, "service_port", lambda name, default: (name, default)
    )
    polled = []

    class Poller:
        is_waiting = True

        def __init__(self, key, clock):
            self.how = (key(), clock)

        def poll(self, places):
            polled.append((places, *self.how))

    monkeypatch.setattr(maintd, "Poller", Poller)
    plain = options(maintd.build_parser())
    service = maintd.start(plain, site.paths, Control())
    (call, poll, clock, agent) = made.pop(0)
    (same_call, repair, same_clock) = made.pop()
    assert (same_call, same_clock) == (call, clock)
    assert repair("node3", 7.0) == 2
    assert repaired == [(site.paths, clock, "node3", 7.0)]
    assert agent == ("ganeti-mond", 1815)
    assert served == [("QueryMetrics", [])]
    assert call("Query", [1]) == ("Query", [1])
    limits = {"retries": 0, "connect_timeout_s": 10.0}
    assert made == [(site.paths, limits), "closed"] * 2
    poll({"n": 1})
    assert polled == [({"n": 1}, b"key\n", clock)]
    assert service._maintenance.is_late() is True
    assert service._maintenance.passes is not None
    assert service._deaths.passes is None
    address = ("0.0.0.0", ("ganeti-maintd", 1816))
    assert http.made == [(address, ("app", "status"), PLAIN | {"threads": 4})]
    for rounds in (service._maintenance, service._deaths):
        assert rounds.is_live.wait(60)
    service.stop()
    assert service._maintenance.is_stopped
    assert service._deaths.is_stopped
    assert http.stopped == [(http, 3.0)]
    maintd.start(
        options(maintd.build_parser(), "-p", "0", "-b", "127.0.0.1"),
        site.paths,
        Control(),
    )
    assert http.made[1][0] == ("127.0.0.1", 0)


def test_options_of_confd(capsys):
    plain = options(confd.build_parser())
    assert (plain.hmac, plain.detect_replays) == (None, False)
    given = options(confd.build_parser(), "--hmac", "both", "--detect-replays")
    assert (given.hmac, given.detect_replays) == ("both", True)
    with pytest.raises(SystemExit):
        options(confd.build_parser(), "--hmac", "md5")
    assert set(confd_source.MAGICS) == {"sha1", "both", "sha256"}


def test_confd_binds_to_the_port_of_the_services_file(site, monkeypatch):
    asked, bound = [], []
    monkeypatch.setattr(
        confd.netutils, "service_port", lambda *args: asked.append(args) or 1999
    )
    monkeypatch.setattr(confd.server, "bind", lambda *args: bound.append(args))
    confd.bind(options(confd.build_parser()), site.paths)
    confd.bind(options(confd.build_parser(), "-b", "::1", "-p", "0"), site.paths)
    assert asked == [("ganeti-confd", 1814, "udp")]
    assert bound == [("0.0.0.0", 1999), ("::1", 0)]


def test_confd_answers_until_it_is_stopped(site, monkeypatch):
    handlers, servers = {}, []
    monkeypatch.setattr(confd.signal, "signal", handlers.__setitem__)
    real = confd.server.Server

    def make(*args, **more):
        servers.append((real(*args, **more), more))
        return servers[-1][0]

    monkeypatch.setattr(confd.server, "Server", make)
    words = ("-b", "127.0.0.1", "-p", "0", "--detect-replays", "--hmac", "sha256")
    service = confd.Confd(site.paths, options(confd.build_parser(), *words))
    service.stop()
    assert service.start(Control()) is service
    ((udp, more),) = servers
    assert more == {"detects_replays": True}
    assert service._source._magics == confd_source.MAGICS["sha256"]
    ((number, handler),) = handlers.items()
    assert number == confd.signal.SIGUSR1
    reports = []
    udp.report = lambda: reports.append(1)
    handler(number, None)
    assert reports == [1]
    closed, close = [], service._source.close
    service._source.close = lambda: closed.append(close())
    service.stop()
    assert not service._thread.is_alive()
    assert closed == [None]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "wanted a key of 1 to 4096 bytes, found 0"),
        (b"x" * 4097, "wanted a key of 1 to 4096 bytes, found 4097"),
    ],
)
def test_a_key_of_confd_has_a_size(site, content, text):
    with open(site.paths.hmac_key, "wb") as out:
        out.write(content)
    with pytest.raises(errors.ConfigurationError, match=text):
        confd_source.read_key(site.paths)
    with open(site.paths.hmac_key, "wb") as out:
        out.write(b"x" * 4096)
    assert confd_source.read_key(site.paths) == b"x" * 4096
    os.unlink(site.paths.hmac_key)
    os.mkdir(site.paths.hmac_key)
    with pytest.raises(errors.ConfigurationError, match="Is a directory"):
        confd_source.read_key(site.paths)


def mond_of(site, *words):
    return mond.Mond(site.paths, options(mond.build_parser(), *words))


def test_monitoring_uses_the_other_signature_after_silence(site, monkeypatch):
    service, asked = mond_of(site), []
    monkeypatch.setattr(mond, "ConfdClient", lambda *args, **more: (args, more))
    monkeypatch.setattr(
        mond.netutils, "service_port", lambda *args: asked.append(args) or 1998
    )
    service._helper = types.SimpleNamespace(ask=lambda task: {"key": "k\xe9\n"}[task])
    ssconf.write(site.paths, {"master_candidates_ips": "192.0.2.1\n192.0.2.2\n"})
    (key, peers), more = service._connect()
    assert (key, list(peers)) == (b"k\xe9\n", ["192.0.2.1", "192.0.2.2"])
    assert more == {"port": 1998, "magic": mond.wire.MAGIC_SHA1}
    assert asked == [("ganeti-confd", 1814, "udp")]
    answers = [False, False, True]
    kept = types.SimpleNamespace(heartbeats=("sharedfile",))
    follower = types.SimpleNamespace(refresh=lambda: answers.pop(0), present=kept)
    followed, magics = [], []
    service._heart = types.SimpleNamespace(follow=followed.append)
    for pause in (5.0, 5.0, float(mond._MOND_CONFIG_TIME_INTERVAL)):
        assert service._refresh(follower) == pause
        magics.append(service._magic)
    sha1, sha256 = mond.wire.MAGIC_SHA1, mond.wire.MAGIC_SHA256
    assert magics == [sha256, sha1, sha1]
    assert followed == [("sharedfile",)] * 3


def test_monitoring_ends_with_its_helper(site, caplog):
    service, control = mond_of(site), Control()
    service._on_loss(control)
    assert control.asked == [1]
    assert "a process of this daemon has ended" in caplog.text
    service.stop()
    service._on_loss(control)
    assert control.asked == [1]


def test_work_that_fails_is_repeated_later(site, monkeypatch, caplog):
    service, waits = mond_of(site), []
    is_done = threading.Event()
    results = [7.0, ValueError("bug"), 9.0]

    class Stopping:
        def wait(self, seconds):
            waits.append(seconds)
            if len(waits) > 3:
                is_done.set()
                return True
            return False

    def work():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    service._is_stopping = Stopping()
    service._repeat("samples", work)
    assert is_done.wait(60)
    assert waits == [0.0, 7.0, float(mond._MOND_CONFIG_TIME_INTERVAL), 9.0]
    assert "samples" in caplog.text


def test_where_monitoring_listens(site, monkeypatch):
    monkeypatch.setattr(mond.netutils, "service_port", lambda *args: args)
    plain = mond_of(site)
    assert (plain._address(), plain._port()) == ("0.0.0.0", ("ganeti-mond", 1815))
    given = mond_of(site, "-b", "::1", "-p", "0")
    assert (given._address(), given._port()) == ("::1", 0)


def test_monitoring_serves_what_its_helper_gathers(site, monkeypatch):
    http, repeated, started = Http(monkeypatch), [], []
    service = mond_of(site, "-p", "0", "-b", "127.0.0.1")
    monkeypatch.setattr(mond.helper, "start", lambda paths: started.append(paths) or 5)

    class Helper:
        def __init__(self, sock, on_end):
            assert sock == 5
            self.on_end, self.is_closed = on_end, False

        def ask(self, task):
            return "key"

        def close(self):
            self.is_closed = True

    monkeypatch.setattr(mond.helper, "Helper", Helper)
    monkeypatch.setattr(
        service, "_repeat", lambda name, work: repeated.append((name, work))
    )
    service.prepare()
    assert started == [site.paths]
    control = Control()
    assert service.start(control) is service
    ((address, app, more),) = http.made
    assert address == ("127.0.0.1", 0)
    assert more == PLAIN | {"threads": 6}
    assert [name for name, _work in repeated] == ["settings", "samples"]
    service._helper.on_end()
    assert control.asked == [1]
    service.stop()
    assert http.stopped == [(http, 3.0)]
    assert service._helper.is_closed
    assert app is not None
