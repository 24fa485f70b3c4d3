"""Main programs of the daemons: what `run` gets, and how the master daemon is put together."""

import importlib
import os
import select
import types

import pytest

from fakes import clusters, commands
from fakes.clocks import FakeClock
from ganeti import store
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.daemons import common, masterd
from ganeti.daemons.confd import confd_source
from ganeti.daemons.confd.answers import Projection
from ganeti.daemons.mains import masterd as main_program
from ganeti.daemons.masterd import startup
from ganeti.decisions.quorum import Term
from ganeti.model.objects import Update
from ganeti.protocols import rpc
from ganeti.store import choice

PATHS = Paths(root="/nonexistent/n1", hostname="n1")


@pytest.mark.parametrize(
    "name", ["noded", "confd", "rapi", "standby", "maintd", "mond"]
)
def test_a_daemon_is_run_with_its_check_and_its_start(monkeypatch, name):
    module = importlib.import_module(f"ganeti.daemons.mains.{name}")
    ran, calls = [], []

    def run(daemon, options, paths):
        ran.append((daemon, options, paths))
        return 7

    def check(options, paths):
        calls.append(("check", options, paths))
        return "servers"

    def start(*args):
        calls.append(("start", *args))

    monkeypatch.setattr(common, "run", run)
    monkeypatch.setattr(common, "own_paths", {f"ganeti-{name}": PATHS}.__getitem__)
    monkeypatch.setattr(module.sys, "argv", [f"ganeti-{name}", "-d"])
    monkeypatch.setattr(module, "check", check)
    if hasattr(module, "start"):
        monkeypatch.setattr(module, "start", start)
    assert module.main() == 7
    ((daemon, options, paths),) = ran
    assert (daemon.name, options.debug, paths) == (f"ganeti-{name}", True, PATHS)
    # Only the node daemon has to go on, and to be heard, when the disk is gone.
    assert daemon.console is (name == "noded")
    daemon.check()
    assert calls == [("check", options, PATHS)]
    if hasattr(module, "start"):
        daemon.start("control")
        assert calls[1] == ("start", options, PATHS, "control")


def test_the_master_daemon_knows_who_was_silent(monkeypatch):
    ran, calls = [], []
    monkeypatch.setattr(main_program.os, "environ", {})
    monkeypatch.setattr(common, "run", lambda *args: ran.append(args) or 5)
    monkeypatch.setattr(
        main_program, "_check", lambda *args: calls.append(("check", *args))
    )
    assert main_program.main(["--not-answering", "a,b"]) == 5
    ((daemon, options, paths),) = ran
    assert (daemon.name, paths.root) == ("ganeti-masterd", "")
    daemon.check()
    ((_name, given, where, time, silent),) = calls
    assert (given, where, silent) == (options, paths, {"a", "b"})
    assert daemon.start.args == (options, paths, time, silent)
    assert daemon.start.func is main_program._start


class Queue:
    note_silence = "note silence"


class Starting:
    """The parts of a master that starts; ``steps`` has what is done with them."""

    def __init__(self, monkeypatch):
        self.steps, self.deps = [], None
        self.term = Term(3, clusters.node_uuid(1))
        self.error = None
        for name in ("_remove_sockets", "_tune_interpreter", "_refresh_known_hosts"):
            monkeypatch.setattr(main_program, name, self._note(name))
        monkeypatch.setattr(main_program, "_leave_out_numbers", lambda *_args: None)
        monkeypatch.setattr(main_program, "_elect", self._elect)
        monkeypatch.setattr(main_program, "_open_store", self._open)
        monkeypatch.setattr(main_program, "open_store", self._open_etcd)
        monkeypatch.setattr(masterd, "MasterDeps", self._deps)
        monkeypatch.setattr(masterd, "build", self._build)

    def _note(self, name):
        return lambda *_args: self.steps.append(name)

    def _elect(self, *args):
        self.steps.append(("elect", args[3]))
        if isinstance(self.error, startup.NotMaster):
            raise self.error
        return startup.Elected(self.term, False)

    def _open(self, _paths, _time, elected, **options):
        self.steps.append(("open", elected.term, options["silent"]))
        return self, self

    def _open_etcd(self, _paths, _time, servers, on_deposed):
        self.steps.append(("open etcd", servers))
        assert callable(on_deposed)
        return self, self

    def _deps(self, **parts):
        self.deps = parts
        address = types.SimpleNamespace(start=lambda: self.steps.append("address"))
        return types.SimpleNamespace(queue=Queue, address=address, **parts)

    def _build(self, _deps):
        self.steps.append("build")
        if self.error is not None:
            raise self.error
        return self

    # The store, the runner and the service
    def snapshot(self):
        return clusters.snapshot(nodes=1)

    def at(self, targets):
        return targets

    def for_listings(self):
        return self

    def abort(self, thread):
        return thread

    def close(self):
        self.steps.append("close")

    def start(self):
        self.steps.append("start")


@pytest.fixture
def starting(monkeypatch):
    monkeypatch.setattr(choice, "read", lambda _paths: None)
    return Starting(monkeypatch)


def begin(starting, silent=()):
    options = types.SimpleNamespace()
    control = types.SimpleNamespace(ask_end=print)
    return main_program._start(options, PATHS, FakeClock(), set(silent), control)


def test_the_master_is_elected_opens_the_store_and_serves(starting, monkeypatch):
    service = begin(starting, ["x"])
    assert isinstance(service, main_program._Running)
    assert starting.steps == [
        "_remove_sockets",
        ("elect", frozenset({"x"})),
        ("open", starting.term, frozenset({"x"})),
        "build",
        "_tune_interpreter",
        "_refresh_known_hosts",
        "start",
        "address",
    ]
    deps = starting.deps
    assert set(deps) == {
        *("store", "rpc", "clock", "paths", "lookup_host", "tcp_ping"),
        *("address_answers", "rpc_at", "abort_call", "on_deposed", "listing_rpc"),
    }
    assert deps["store"] is deps["rpc"] is starting
    assert (deps["rpc_at"], deps["abort_call"]) == (starting.at, starting.abort)
    assert deps["tcp_ping"] is main_program._tcp_ping
    assert deps["address_answers"] is main_program._address_answers
    assert deps["paths"] is PATHS
    looked = []
    monkeypatch.setattr(
        main_program.netutils, "lookup_host", lambda *a, **m: looked.append((a, m))
    )
    assert deps["lookup_host"].keywords == {"paths": PATHS}
    # Who waits for a frozen node learns it from the queue.
    assert starting.on_silence == "note silence"


def test_with_the_store_in_etcd_nobody_votes(starting, monkeypatch):
    monkeypatch.setattr(choice, "read", lambda _paths: "servers")
    begin(starting)
    assert starting.steps[1] == ("open etcd", "servers")


def test_a_node_that_is_not_elected_does_not_start(starting):
    starting.error = startup.NotMaster(startup.Refusal.NOT_MASTER, "node2 is")
    with pytest.raises(common.StartError, match="node2 is") as caught:
        begin(starting)
    assert caught.value.code == 11
    assert "build" not in starting.steps


def test_a_service_that_cannot_be_built_leaves_nothing_open(starting):
    starting.error = OSError("socket")
    with pytest.raises(OSError, match="socket"):
        begin(starting)
    assert starting.steps[-2:] == ["close", "close"]
    assert "start" not in starting.steps


# The store of a new term
class Engine:
    def __init__(self, steps, snapshot):
        self.steps, self._snapshot = steps, snapshot
        self.term, self.error = None, None

    def snapshot(self):
        return self._snapshot

    latest = snapshot

    def note_refusal(self):
        """Note a refusal of the term."""

    def read(self, _table, _key):
        return None

    def commit(self, changes):
        if self.error:
            raise self.error
        self.steps.append([(change.table, change.key) for change in changes])

    def close(self):
        self.steps.append("close")


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("error", [None, errors.StorageError("no majority")])
def test_the_first_commit_of_a_term_names_it(monkeypatch, is_forced, error):
    start = clusters.snapshot(nodes=2)
    name = start.nodes[clusters.node_uuid(1)].name
    paths = Paths(root=f"/nonexistent/{name}", hostname=name)
    steps, opened = [], []
    term = Term(3, clusters.node_uuid(1))

    def open_master(path, **options):
        made = Engine(steps, start)
        made.term, made.error = options["term"], error
        opened.append((made, path, options))
        return made

    class Runner:
        def __init__(self, source, _paths, given):
            assert given == term
            steps.append("runner")

        def close(self):
            steps.append("close runner")

    monkeypatch.setattr(store, "open_master", open_master)
    monkeypatch.setattr(rpc, "NetworkRunner", Runner)
    higher = types.SimpleNamespace(note="note")

    def call():
        return main_program._open_store(
            paths,
            FakeClock(),
            startup.Elected(term, is_forced),
            silent=frozenset({"x"}),
            higher=higher,
            on_deposed=print,
        )

    if error:
        with pytest.raises(errors.StorageError):
            call()
        assert steps == ["runner", "close", "close runner"]
        return
    engine, runner = call()
    ((made, path, options),) = opened
    assert engine is made
    assert path == paths.store_db
    assert (options["node"], options["term"]) == (term.owner, term)
    given = options["settings"]
    assert (given.accept_loss, given.silent) == (is_forced, {"x"})
    assert (given.on_higher, given.on_deposed) == ("note", print)
    assert given.is_lenient() is False
    assert runner.on_refusal == made.note_refusal
    more = [("meta", "serial"), ("meta", "config")] if is_forced else []
    assert steps == ["runner", [("meta", "term"), *more]]


# The source of confd
@pytest.fixture
def source(tmp_path):
    paths = Paths(root=str(tmp_path / "node1"), hostname="node1")
    os.makedirs(paths.data_dir)
    with open(paths.hmac_key, "w") as out:
        out.write("first")
    made = confd_source.StoreSource(paths, FakeClock())
    yield made, paths
    made.close()


def is_readable(source):
    return bool(select.select([source], [], [], 0)[0])


def write(path):
    with open(path, "w"):
        pass


def test_looks_become_rarer_until_something_happens(source):
    made, paths = source
    assert made.next_look_s() == 0
    intervals = []
    for _ in range(20):
        made.update(Projection())
        intervals.append(made.next_look_s())
        made._clock.now += intervals[-1]
        assert made.next_look_s() == 0
    assert intervals[:6] == [1, 1, 2, 4, 8, 16]
    assert intervals[-1] == confd_source._SAFETY_S
    write(f"{paths.store_db}-wal")
    made.update(Projection())
    assert made.next_look_s() == 1


def test_requests_look_rarely_if_nothing_happens(source):
    made, paths = source
    assert made.is_due()
    made._clock.now += 10
    made.update(Projection())
    assert not made.is_due()
    made._clock.now += 0.49
    assert not made.is_due()
    made._clock.now += 0.01
    assert made.is_due()
    made.update(Projection())
    assert not made.is_due()
    for path in (f"{paths.store_db}-wal", paths.hmac_key):
        write(path)
        assert made.is_due()
        made.update(Projection())
    # The commit may become visible at any time.
    assert made.is_due()
    made._clock.now += 1
    made.update(Projection())
    assert not made.is_due()


def test_without_requests_a_notification_begins_an_interval(source):
    made, paths = source
    made.update(Projection())
    made._clock.now += 1000
    made.update(Projection())
    assert (is_readable(made), made.next_look_s()) == (False, confd_source._SAFETY_S)
    write(f"{paths.store_db}-wal")
    assert is_readable(made)
    made.notice()
    assert (is_readable(made), made.next_look_s()) == (False, 1)
    made._clock.now += 0.75
    write(f"{paths.store_db}-wal")
    # A request looks before that, which does not make the interval longer.
    assert (is_readable(made), made.is_due(), made.next_look_s()) == (False, True, 0.25)
    made.update(Projection())
    assert made.next_look_s() == 0.25
    made._clock.now += 0.25
    write(f"{paths.store_db}-wal")
    assert (is_readable(made), made.next_look_s()) == (False, 0)
    made.update(Projection())
    assert (is_readable(made), made.next_look_s()) == (False, 1)
    write(f"{paths.store_db}-wal")
    assert is_readable(made)


def test_a_store_that_is_removed_is_noticed_by_requests(source):
    made, paths = source
    db = store.open_master(paths.store_db, replicate=None, clock=FakeClock())
    db.commit([Update("cluster", "", clusters.cluster())])
    db.close()
    projection = Projection()
    made._clock.now += 1000
    assert made.update(projection)
    made._clock.now += 1000
    made.update(projection)
    assert not made.is_due()
    os.unlink(paths.store_db)
    assert made.is_due()
    assert made.update(projection)
    assert not projection.is_enabled


def test_a_node_without_a_configuration_is_disabled_and_comes_back(source, caplog):
    caplog.set_level("INFO")
    made, paths = source
    projection = Projection()
    assert made.update(projection) is False
    assert not projection.is_enabled
    assert "disabled, this node has no configuration" in caplog.text
    db = store.open_master(paths.store_db, replicate=None, clock=FakeClock())
    assert made.update(projection) is False
    assert "the copy is still empty" in caplog.text
    db.commit([Update("cluster", "", clusters.cluster())])
    assert made.update(projection) is True
    assert projection.is_enabled
    db.close()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(f"{paths.store_db}{suffix}"):
            os.unlink(f"{paths.store_db}{suffix}")
    # Its answers were right until now: that they end is a change.
    assert made.update(projection) is True
    assert made.update(projection) is False


def test_a_disk_that_fails_leaves_the_answers_as_they_were(source, monkeypatch, caplog):
    caplog.set_level("INFO")
    made, _paths = source

    def fail(_projection):
        raise errors.StorageError("no disk")

    monkeypatch.setattr(made, "_follow", fail)
    for _again in range(2):
        assert made.update(Projection()) is False
    assert caplog.text.count("cannot read the store, which stays as it was") == 1


def test_a_new_key_is_used_and_a_damaged_one_is_not(source, caplog):
    made, paths = source
    first = made.signers()
    made.update(Projection())
    assert made.signers() is first
    with open(paths.hmac_key, "w"):
        pass
    made.update(Projection())
    assert made.signers() is first
    assert "the key stays as it was: " in caplog.text
    with open(paths.hmac_key, "w") as out:
        out.write("second")
    made.update(Projection())
    assert made.signers() is not first
    assert made._key == b"second"


@pytest.mark.parametrize("word", ["no", "yes", "only"])
def test_syslog_has_three_words(word):
    assert common.parse(common.parser("x"), ["--syslog", word]).syslog == word


# A wrong environment is one message of each program, and no damaged configuration.

WRONG = [
    ({"GANETI_ROOTDIR": "/tmp/x"}, "must be set together"),
    (
        {"GANETI_ROOTDIR": "/tmp/x", "GANETI_HOSTNAME": "n1"},
        "wanted an absolute path that ends in 'n1', the value of GANETI_HOSTNAME",
    ),
]


@pytest.mark.parametrize(("environ", "text"), WRONG)
@pytest.mark.parametrize("name", ["noded", "confd", "rapi", "standby", "masterd"])
def test_daemons_end_with_a_message(name, environ, text, monkeypatch, capsys):
    monkeypatch.setattr("os.environ", environ)
    monkeypatch.setattr("sys.argv", [f"ganeti-{name}"])
    main = importlib.import_module(f"ganeti.daemons.mains.{name}").main
    try:
        shown = f"{main()} {capsys.readouterr().err}"
    except SystemExit as end:
        shown = f"1 {end.code}"
    assert shown.startswith(f"1 ganeti-{name}: environment")
    assert text in shown
    assert "('" not in shown


@pytest.mark.parametrize(("environ", "text"), WRONG)
def test_commands_end_with_a_message(environ, text):
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert done.code == 1
    assert "error type: environment_error, error details:\nenvironment" in done.err
    assert text in done.err
