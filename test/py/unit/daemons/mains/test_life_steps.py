"""The steps of a daemon's life in one process: what is written, reported and limited."""

import argparse
import logging
import os
import resource
import signal
import socket
import stat
import struct
import types

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.daemons import common
from ganeti.daemons.mains import noded
from ganeti.protocols import ssconf

NAME = "ganeti-confd"


class Site:
    """A daemon in this process; ``events`` has what happens to it, in order."""

    def __init__(self, folder, monkeypatch):
        self.paths = Paths(root=str(folder / "n1"), hostname="n1")
        self.events = []
        self.options = argparse.Namespace(debug=False, foreground=True, syslog="no")
        self.handler = None
        for name, replacement in (
            ("_set_up_log", lambda *_args: self.handler),
            ("_watch_signals", lambda _control: self.events.append("signals")),
            ("_raise_file_limit", lambda: self.events.append("limit")),
            ("_become_own_user", lambda *_args: self.events.append("user")),
            ("_end_on_request", lambda _control: None),
            ("_notify", self.events.append),
        ):
            monkeypatch.setattr(common, name, replacement)
        self.umask = os.umask(0o022)
        os.umask(self.umask)
        self.start = self._start
        self.check = lambda: self.events.append("check")
        self.code = 0

    def state(self):
        with open(self.paths.state_file(NAME)) as stream:
            return stream.read()

    def _start(self, control):
        self.events.append(f"start {self.state().split()[1]}")
        self.control = control
        control.ask_stop(self.code)
        return types.SimpleNamespace(stop=self._stop)

    def _stop(self):
        self.events.append(f"stop {self.state().split()[1]}")

    def daemon(self):
        return common.Daemon(
            name=NAME,
            check=self.check,
            start=self.start,
            prepare=lambda: self.events.append("prepare"),
        )

    def run(self):
        return common.run(self.daemon(), self.options, self.paths)


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path, monkeypatch)
    yield made
    os.umask(made.umask)


def test_a_daemon_passes_through_its_states(site):
    site.code = 7
    assert site.run() == 7
    assert site.events == [
        "check",
        "limit",
        "signals",
        "prepare",
        "user",
        "start starting",
        "READY=1",
        "STOPPING=1",
        "stop stopping",
    ]
    assert site.state() == f"{os.getpid()} stopping\n"
    assert stat.S_IMODE(os.stat(site.paths.state_file(NAME)).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(site.paths.run_dir).st_mode) == 0o755
    assert not os.path.exists(site.paths.pid_file(NAME))
    # Files of a daemon are its own unless their writer says otherwise.
    assert os.umask(site.umask) == 0o077


def test_the_pid_is_readable_when_the_daemon_starts_and_the_lock_held(site):
    def start(control):
        path = site.paths.pid_file(NAME)
        site.events.append((pidfile.read_pid(path), pidfile.is_locked(path)))
        raise common.StartError("no", 12)

    site.start = start
    assert site.run() == 12
    assert site.events[-1] == (os.getpid(), True)
    assert "STOPPING=1" not in site.events
    assert not pidfile.is_locked(site.paths.pid_file(NAME))


def test_a_second_daemon_does_not_touch_the_state_of_the_first(site):
    os.makedirs(site.paths.run_dir)
    with pidfile.PidFile(site.paths.pid_file(NAME)):
        assert site.run() == 1
    assert site.events == ["check"]


def test_a_daemon_whose_check_fails_writes_nothing(site, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def check():
        raise common.StartError("no certificate", 3)

    site.check = check
    assert site.run() == 3
    assert capsys.readouterr().err == f"{NAME}: no certificate\n"
    assert not os.path.exists(site.paths.run_dir)
    assert site.events == []


def test_a_log_that_cannot_be_written_ends_the_start(site, monkeypatch, capsys):
    def fail(*_args):
        raise PermissionError("no right")

    monkeypatch.setattr(common, "_set_up_log", fail)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert site.run() == 1
    assert capsys.readouterr().err == f"{NAME}: cannot log: no right\n"
    assert site.events == ["check"]


@pytest.mark.parametrize(
    ("error", "debug", "code", "text"),
    [
        (common.StartError("not the master", 11), False, 11, ""),
        (common.StartError("not the master", 11), True, 11, "not the master"),
        (common.StartError("no key"), False, 1, "no key"),
        (ValueError("bug"), False, 1, "ValueError: bug"),
    ],
)
def test_reports_of_a_check(site, error, debug, code, text):
    def check():
        raise error

    site.check = check
    site.options.debug = debug
    reports = []
    reported = common._check(site.daemon(), site.options, lambda *r: reports.append(r))
    assert reported == code
    assert reports == [(code, text)]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (common.StartError("no term", 11), 11, "no term"),
        (errors.GenericError("bad file"), 1, "bad file"),
        (OSError("no port"), 1, "no port"),
        (KeyError("bug"), 1, "KeyError: 'bug'"),
    ],
)
def test_reports_of_a_failed_start(error, code, text, caplog):
    reports = []
    assert common._fail(error, lambda *report: reports.append(report)) == code
    assert reports == [(code, text)]
    assert f"cannot start: {text}" in caplog.text
    assert ("KeyError" in caplog.text) == isinstance(error, KeyError)


def test_a_terminal_shows_what_no_log_has(monkeypatch, capsys, site):
    report = common._report_in_foreground(site.daemon())
    report(0, "")
    assert site.events == ["READY=1"]
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    report(1, "it is in the log")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    report(1, "")
    report(1, "no log yet")
    assert capsys.readouterr().err == f"{NAME}: no log yet\n"


def reported(data):
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return common._await_report(NAME, reader)


def test_the_command_returns_the_code_and_the_text_of_the_daemon(capsys):
    pack = struct.Struct("!iI").pack
    assert reported(pack(0, 0)) == 0
    assert capsys.readouterr().err == ""
    assert reported(pack(11, 3) + "nö and more".encode()) == 11
    assert capsys.readouterr().err == f"{NAME}: nö\n"
    for short in (b"", pack(0, 0)[:-1]):
        assert reported(short) == 1
        text = f"{NAME}: ended before it was ready, see its log\n"
        assert capsys.readouterr().err == text


def test_events_come_in_order_with_their_codes():
    control = common.Control()
    control.ask_reopen()
    control.ask_stop()
    control.ask_stop(5)
    control.ask_end(6)
    control.take_signal(15)
    taken = [control.next_event() for _ in range(5)]
    assert taken == [
        ("reopen", 0),
        ("stop", 0),
        ("stop", 5),
        ("end", 6),
        ("signal", 15),
    ]


def test_a_full_pipe_of_wake_ups_loses_no_event():
    control = common.Control()
    for _ in range(70_000):
        control.ask_reopen()
    control.ask_stop(9)
    events = {control.next_event() for _ in range(70_001)}
    assert events == {("reopen", 0), ("stop", 9)}


class Handler:
    """A log file that is opened again; the first attempt fails."""

    def __init__(self):
        self.attempts = 0

    def reopen(self):
        self.attempts += 1
        if self.attempts == 1:
            raise OSError("no directory")


@pytest.mark.parametrize(("event", "code"), [("take_signal", 0), ("ask_stop", 15)])
def test_the_log_is_opened_again_until_the_daemon_stops(event, code, caplog):
    control, handler = common.Control(), Handler()
    control.ask_reopen()
    control.ask_reopen()
    getattr(control, event)(15)
    assert common._serve(control, handler) == code
    assert handler.attempts == 2
    assert "cannot reopen the log file" in caplog.text
    control.ask_reopen()
    control.ask_stop(3)
    assert common._serve(control, None) == 3


class EndNowError(Exception):
    pass


def test_a_request_to_end_is_met_while_serving_and_while_stopping(monkeypatch):
    def end(code):
        raise EndNowError(code)

    monkeypatch.setattr(common, "end_now", end)
    control = common.Control()
    control.ask_end(4)
    with pytest.raises(EndNowError, match="4"):
        common._serve(control, None)
    control.ask_stop(1)
    control.ask_reopen()
    control.ask_end(5)
    with pytest.raises(EndNowError, match="5"):
        common._end_on_request(control)


def test_the_end_is_reported_and_waits_for_nobody(monkeypatch):
    steps = []
    monkeypatch.setattr(common, "_notify", steps.append)
    monkeypatch.setattr(common.logging, "shutdown", lambda: steps.append("logs"))
    monkeypatch.setattr(common.os, "_exit", steps.append)
    common.end_now(11)
    assert steps == ["STOPPING=1", "logs", 11]


class Signals:
    """The handlers that a process sets."""

    def __init__(self, monkeypatch):
        self.handlers = {}
        self.wakeup = None
        monkeypatch.setattr(common.signal, "signal", self.handlers.__setitem__)
        monkeypatch.setattr(common.signal, "set_wakeup_fd", self._set)

    def _set(self, descriptor, *, warn_on_full_buffer):
        self.wakeup = (descriptor, warn_on_full_buffer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_process(monkeypatch, number):
    signals, exits = Signals(monkeypatch), []
    monkeypatch.setattr(common.os, "_exit", exits.append)
    control = common.Control()
    common._watch_signals(control)
    assert signals.wakeup == (control.wakeup_fd, False)
    assert set(signals.handlers) == {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signals.handlers[signal.SIGHUP](1, None)
    signals.handlers[number](number, None)
    assert control.next_event() == ("reopen", 0)
    assert control.next_event() == ("signal", number)
    for again in (signal.SIGTERM, signal.SIGINT):
        signals.handlers[again](again, None)
    assert exits == [1, 1]


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 4096, (4096, 4096)),
        (1024, 1_000_000, (65536, 1_000_000)),
        (1024, resource.RLIM_INFINITY, (65536, resource.RLIM_INFINITY)),
        (65536, 1_000_000, None),
        (100_000, resource.RLIM_INFINITY, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
        (4096, 4096, None),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_permitted(
    monkeypatch, soft, hard, expected
):
    limits = []

    def note(kind, pair):
        assert kind == resource.RLIMIT_NOFILE
        limits.append(pair)

    monkeypatch.setattr(common.resource, "getrlimit", lambda _kind: (soft, hard))
    monkeypatch.setattr(common.resource, "setrlimit", note)
    common._raise_file_limit()
    assert limits == ([] if expected is None else [expected])


def test_systemd_is_notified_at_its_address(monkeypatch, caplog):
    address = f"ganeti-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{address}")
        sock.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{address}")
        common._notify("READY=1")
        assert sock.recv(100) == b"READY=1"
    common._notify("READY=1")
    assert "cannot notify systemd" in caplog.text
    caplog.clear()
    monkeypatch.delenv("NOTIFY_SOCKET")
    common._notify("READY=1")
    assert caplog.text == ""


def test_the_log_is_set_up_as_the_options_say(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        common.log, "set_up", lambda *args, **more: calls.append((args, more))
    )
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    options = argparse.Namespace(debug=True, foreground=False, syslog="only")
    for name, console in (("ganeti-noded", True), ("ganeti-cleaner", False)):
        daemon = common.Daemon(name=name, check=None, start=None, console=console)
        common._set_up_log(daemon, options, paths)
    more = {"debug": True, "terminal": False, "syslog": "only"}
    assert calls == [
        (
            ("ganeti-noded", f"{paths.log_dir}/node-daemon.log"),
            more | {"console": True},
        ),
        (("ganeti-cleaner", None), more | {"console": False}),
    ]
    assert stat.S_IMODE(os.stat(paths.log_dir).st_mode) == 0o750


class Users:
    """The users of a machine, and what a process does with them."""

    def __init__(self, monkeypatch):
        self.user = types.SimpleNamespace(name="gnt-confd", uid=901, gid=902)
        self.unreadable = ""
        self.steps = []
        users = common.daemon_users
        monkeypatch.setattr(users, "name_of", {NAME: "gnt-confd"}.get)
        monkeypatch.setattr(users, "identity", self.identity)
        monkeypatch.setattr(users, "unreadable_program", lambda: self.unreadable)
        monkeypatch.setattr(users, "further_groups", lambda *_args: [77])
        monkeypatch.setattr(users, "assume", lambda *args: self.steps.append(args))
        monkeypatch.setattr(common.os, "chown", lambda *args: self.steps.append(args))
        monkeypatch.setattr(common.os, "geteuid", lambda: 0)

    def identity(self, name, paths):
        is_root = common.os.geteuid() == 0
        return self.user if name == NAME and is_root and not paths.is_virtual else None


@pytest.fixture
def users(monkeypatch, tmp_path):
    handler = logging.FileHandler(tmp_path / "conf-daemon.log")
    monkeypatch.setattr(
        logging.getLogger(), "handlers", [handler, logging.NullHandler()]
    )
    made = Users(monkeypatch)
    made.log = handler.baseFilename
    yield made
    handler.close()


REAL = Paths(root="", hostname="n1")


def become(name=NAME, paths=REAL, *words):
    daemon = common.Daemon(name=name, check=None, start=None)
    options = common.parse(common.parser(name), words)
    common._become_own_user(daemon, options, paths)


def test_a_daemon_gives_its_log_to_its_user_and_becomes_it(users):
    become()
    assert users.steps == [(users.log, 901, 902), (users.user, [77])]


def test_a_daemon_stays_as_it_is_without_a_reason_to_change(users, monkeypatch):
    become("ganeti-noded")
    become(paths=Paths(root="/x/n1", hostname="n1"))
    monkeypatch.setattr(common.os, "geteuid", lambda: 1000)
    become()
    assert users.steps == []


def test_a_daemon_that_cannot_have_its_user_starts_only_if_that_is_allowed(
    users, caplog
):
    users.unreadable = "/root/python"
    for text in (
        "user gnt-confd may not read /root/python, which ganeti-confd needs",
        "this machine has no user gnt-confd; the command useradd --system",
    ):
        with pytest.raises(common.StartError) as caught:
            become()
        assert f"cannot run as its own user: {text}" in str(caught.value)
        assert str(caught.value).endswith("; with --allow-root it runs as root")
        become(NAME, REAL, "--allow-root")
        assert f"running as root, as --allow-root says: {text}" in caplog.text
        users.user = None
    assert users.steps == []


@pytest.mark.parametrize(("family", "address"), [("2", "0.0.0.0"), ("10", "::")])
def test_the_address_to_bind_to(tmp_path, monkeypatch, family, address):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {"primary_ip_family": f"{family}\n"})
    asked = []
    monkeypatch.setattr(
        common.netutils,
        "interface_address",
        lambda *args: asked.append(args) or "192.0.2.9",
    )
    options = argparse.Namespace(bind=None, interface=None)
    assert common.bind_address(options, paths) == address
    options.interface = "br0"
    assert common.bind_address(options, paths) == "192.0.2.9"
    assert [(name, int(kind)) for name, kind in asked] == [("br0", int(family))]
    options.bind = "192.0.2.7"
    assert common.bind_address(options, paths) == "192.0.2.7"


def test_options_that_all_daemons_have(capsys):
    plain = common.parse(common.parser(NAME), [])
    assert vars(plain) == {
        "foreground": False,
        "debug": False,
        "no_user_checks": False,
        "allow_root": False,
        "syslog": "no",
        "words": [],
    }
    short = common.parse(common.parser(NAME), ["-f", "-d", "--syslog", "only"])
    assert (short.foreground, short.debug, short.syslog) == (True, True, "only")
    network = vars(common.parse(common.parser("ganeti-rapi", network=True), []))
    assert network == {
        **vars(plain),
        "port": 5080,
        "bind": None,
        "interface": None,
        "no_ssl": False,
        "ssl_key": None,
        "ssl_cert": None,
        "max_clients": 20,
    }
    words = [
        "-p",
        "1",
        "-b",
        "192.0.2.1",
        "-K",
        "k",
        "-C",
        "c",
        "--no-ssl",
        "--max-clients",
        "3",
    ]
    options = common.parse(common.parser("ganeti-rapi", network=True), words)
    assert (options.port, options.bind, options.ssl_key) == (1, "192.0.2.1", "k")
    assert (options.ssl_cert, options.no_ssl, options.max_clients) == ("c", True, 3)
    with pytest.raises(SystemExit) as caught:
        common.parse(common.parser(NAME), ["-V"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"{NAME} (ganeti) 3.")


def test_a_wrong_user_is_named():
    options = argparse.Namespace(no_user_checks=False)
    with pytest.raises(common.StartError) as caught:
        common.check_user(options, os.geteuid() + 1)
    assert caught.value.code == 1
    assert str(caught.value) == (
        f"runs as user {os.geteuid()}, wanted {os.geteuid() + 1}; use"
        " --no-user-checks to run nevertheless"
    )


# Memory
@pytest.fixture
def limits(monkeypatch):
    """Return what is asked of the kernel; ``answers`` are the failures."""
    made = types.SimpleNamespace(asked=[], answers={}, capabilities="0")

    def ask(name, *args):
        made.asked.append((name, *args))
        if name in made.answers:
            raise made.answers[name]

    monkeypatch.setattr(noded.resource, "setrlimit", lambda *args: ask("limit", *args))
    monkeypatch.setattr(noded.memory, "lock", lambda: ask("lock"))
    monkeypatch.setattr(noded.memory, "status", lambda: {"CapEff": made.capabilities})
    return made


def test_memory_is_locked_without_a_limit(limits):
    assert noded.lock_memory() is True
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert limits.asked == [("limit", resource.RLIMIT_MEMLOCK, unlimited), ("lock",)]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ("4000", True),
        ("ffffffff", True),
        ("bfff", False),
        ("8000", False),
        ("x", False),
    ],
)
def test_a_finite_limit_counts_unless_a_capability_lifts_it(
    limits, caplog, capabilities, expected
):
    limits.answers["limit"] = ValueError("not allowed")
    limits.capabilities = capabilities
    assert noded.lock_memory() is expected
    assert (("lock",) in limits.asked) is expected
    assert ("the limit of locked memory" in caplog.text) is not expected


@pytest.mark.parametrize("error", [OSError("no proc"), KeyError("CapEff")])
def test_capabilities_that_cannot_be_read_lift_nothing(limits, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(noded.memory, "status", fail)
    limits.answers["limit"] = OSError("no")
    assert noded.lock_memory() is False


def test_memory_that_cannot_be_locked_is_a_warning(limits, caplog):
    limits.answers["lock"] = OSError("too much")
    assert noded.lock_memory() is False
    assert "memory is not locked: too much" in caplog.text
