"""Migration of guests of Xen: the connection between nodes, and its program."""

import contextlib
import functools
import os
import pathlib
import re
import signal
import socket
import ssl
import sys
import threading
import types

import pytest

import ganeti
from fakes import nodes, ports
from fakes.xen_guests import instance
from ganeti.base import clock, errors, pathutils, process
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.node import hypervisor
from ganeti.node.hypervisor.xen import migration
from ganeti.node.hypervisor.xen.files import Files
from ganeti.tools import channel as channels
from ganeti.tools.xen import xen_migration, xen_relay

LOCAL = "127.0.0.1"
#: Answers what it gets, in capitals, then says so.
RECEIVER = """#!/bin/sh
[ "$*" = migrate-receive ] || exit 9
echo ready
read -r line || exit 3
printf '%s\\n' "$line" | tr a-z A-Z
[ "$line" != stop ] || exit 4
"""


def write_certificates(paths, issuer, serial):
    os.makedirs(paths.data_dir, exist_ok=True)
    files.write_file(paths.server_pem, issuer.certificate_pem)
    own = authority.issue_with_key(issuer, name="n", uuid=None, serial=serial)
    files.write_file(paths.client_pem, own.pem)


@pytest.fixture(scope="module")
def issuer():
    return authority.create()


@pytest.fixture
def target(tmp_path, issuer):
    paths = pathutils.Paths(f"{tmp_path}/n2", "n2")
    write_certificates(paths, issuer, 2)
    return paths


@pytest.fixture
def source(tmp_path, issuer):
    paths = pathutils.Paths(f"{tmp_path}/n1", "n1")
    write_certificates(paths, issuer, 1)
    return paths


class Peer:
    """A target that accepts one connection in a thread."""

    def __init__(self, paths, serve, timeout_s=30):
        self.listener = xen_relay.listen(LOCAL, 0)
        self.port = self.listener.getsockname()[1]
        self.failure = None
        end = channels.of_cluster(paths, is_server=True)

        def work():
            try:
                serve(xen_relay.accept(self.listener, end, timeout_s))
            except errors.GenericError as err:
                self.failure = err

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def end(self):
        self.thread.join()
        self.listener.close()


def connect(paths, port):
    end = channels.of_cluster(paths, is_server=False)
    return xen_relay.connect(LOCAL, port, end)


def test_data_goes_both_ways_until_one_side_ends(source, target):
    here, there = socket.socketpair(), socket.socketpair()
    fds = (there[0].fileno(),) * 2
    peer = Peer(target, lambda channel: xen_relay.relay(channel, *fds))
    channel = connect(source, peer.port)
    fds_here = (here[0].fileno(),) * 2
    sender = threading.Thread(target=xen_relay.relay, args=(channel, *fds_here))
    sender.start()
    # More than any buffer on the way has room for.
    data = bytes(range(256)) * 65536
    writer = threading.Thread(target=here[1].sendall, args=(data,))
    writer.start()
    arrived = bytearray()
    while len(arrived) < len(data):
        arrived += there[1].recv(1 << 20)
    assert bytes(arrived) == data
    there[1].sendall(b"thanks")
    assert here[1].recv(100) == b"thanks"
    here[1].close()
    for thread in (writer, sender):
        thread.join()
    peer.end()
    assert peer.failure is None
    for each in (*here, *there):
        each.close()


def test_a_broken_connection_is_not_an_end(source, target):
    here, there = socket.socketpair()
    peer = Peer(target, lambda c: xen_relay.relay(c, there.fileno(), there.fileno()))
    channel = connect(source, peer.port)
    # Without close_notify.
    os.close(channel.sock.detach())
    peer.end()
    assert "the connection broke" in str(peer.failure)
    here.close()
    there.close()


def test_a_machine_of_another_cluster_is_refused_and_waited_on(
    source, target, tmp_path
):
    foreign = pathutils.Paths(f"{tmp_path}/x1", "x1")
    write_certificates(foreign, authority.create(), 3)
    accepted = []
    peer = Peer(target, accepted.append)
    # It does not trust the target, either; so it does not look.
    end = channels.of_cluster(foreign, is_server=False)
    end.tls.verify_mode = ssl.CERT_NONE
    with (
        contextlib.suppress(errors.HypervisorError),
        xen_relay.connect(LOCAL, peer.port, end) as refused,
    ):
        # With TLS 1.3 it learns of that only when it reads.
        refused.sock.setblocking(True)
        with pytest.raises(OSError, match=r"alert|reset"):
            refused.sock.recv(1)
    channel = connect(source, peer.port)
    peer.end()
    assert len(accepted) == 1
    channel.close()
    accepted[0].close()


def test_a_target_of_another_cluster_is_refused(source, tmp_path):
    foreign = pathutils.Paths(f"{tmp_path}/x1", "x1")
    write_certificates(foreign, authority.create(), 3)
    peer = Peer(foreign, lambda channel: channel.close(), timeout_s=5)
    with pytest.raises(errors.HypervisorError, match="certificate verify failed"):
        connect(source, peer.port)
    peer.listener.shutdown(socket.SHUT_RDWR)
    peer.end()


def test_nobody_is_waited_on_for_ever(target):
    listener = xen_relay.listen(LOCAL, 0)
    end = channels.of_cluster(target, is_server=True)
    with pytest.raises(errors.HypervisorError, match="no node of the cluster conn"):
        xen_relay.accept(listener, end, 0.01)
    port = listener.getsockname()[1]
    with pytest.raises(
        errors.HypervisorError, match=f"cannot listen on .* port {port}"
    ):
        xen_relay.listen(LOCAL, port)
    listener.close()
    with pytest.raises(errors.HypervisorError, match=f"cannot connect to .* {port}: "):
        connect(target, port)


def test_clusters_of_earlier_releases_have_one_certificate(tmp_path):
    paths = pathutils.Paths(f"{tmp_path}/n1", "n1")
    os.makedirs(paths.data_dir)
    pair = x509.create_self_signed("ganeti.example.com", validity_s=3600)
    files.write_file(paths.server_pem, pair.pem)
    peer = Peer(paths, lambda channel: channel.close())
    connect(paths, peer.port).close()
    peer.end()
    assert peer.failure is None


def test_damaged_certificates_are_an_error(target):
    pathlib.Path(target.client_pem).write_text("nothing")
    with pytest.raises(errors.X509CertError, match=r"client\.pem: not usable"):
        channels.of_cluster(target, is_server=False)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The directory of a program xl, first in the path; and a runner of the real tool."""
    directory = tmp_path / "bin"
    directory.mkdir()
    xl = directory / "xl"
    xl.write_text(RECEIVER)
    xl.chmod(0o755)
    tool = directory / xen_migration.NAME
    lines = (
        f"#!{sys.executable} -I",
        "import sys",
        f"sys.path.insert(0, {os.path.dirname(ganeti.__path__[0])!r})",
        f"from {xen_migration.__name__} import main",
        "sys.exit(main())",
    )
    tool.write_text("\n".join(lines) + "\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setattr(migration, "SAFE_PATH", os.environ["PATH"])
    monkeypatch.setattr(
        pathutils.Paths, "tools_dir", property(lambda _self: str(directory))
    )
    return types.SimpleNamespace(xl=xl, tool=tool)


@pytest.fixture
def port():
    """A port that nobody uses."""
    return ports.free()


def effects_of(paths):
    return hypervisor.NodeEffects(paths, process.SystemRunner(), clock.SystemClock())


def wait(condition):
    """Look until a condition holds; a test has a time limit of its own."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)


#: As the source it sends a guest, and goes on when the target has answered.
BOTH = """#!/bin/sh
if [ "$1" = migrate ]; then
  [ "$2 $4" = "-s web1" ] || exit 9
  { echo guest; while [ ! -e "$0.end" ]; do :; done; } \\
    | $3 $5 xl migrate-receive \\
    | { read -r a; read -r b; touch "$0.end"; [ "$a $b" = "ready GUEST" ]; }
  exit
fi
"""


def test_a_guest_goes_from_node_to_node(program, source, target, port):
    params = instance(migration_port=port).hvparams
    arriving, leaving = Files(target, "web1"), Files(source, "web1")
    migration.listen(effects_of(target), arriving, params, LOCAL)
    assert migration.is_running(arriving)
    program.xl.write_text(BOTH + RECEIVER)
    migration.send(effects_of(source), leaving, params, LOCAL, live=True)
    wait(lambda: migration.status(leaving).status != "active")
    assert migration.status(leaving).status == "completed"
    wait(lambda: not migration.is_running(arriving))
    log = pathlib.Path(arriving.log).read_text()
    assert "instance web1: has arrived" in log
    wait(lambda: not migration.is_running(leaving))
    migration.forget(leaving)
    assert migration.status(leaving).error == "no migration has been begun"


def test_the_messages_of_xl_are_the_reason_of_a_failure(program, source, port):
    program.xl.write_text("#!/bin/sh\necho libxl: no such domain >&2\nexit 2\n")
    guest = Files(source, "web1")
    params = instance(migration_port=port).hvparams
    migration.send(effects_of(source), guest, params, LOCAL, live=True)
    wait(lambda: migration.status(guest).status != "active")
    failed = migration.status(guest)
    assert (failed.status, failed.error) == (
        "failed",
        f"libxl: no such domain; see {guest.log}",
    )


#: As the source, it waits for the end of the pipe that its transport gets.
WAITING = """#!/bin/sh
[ "$1" = migrate ] || exec sleep 1000
life=${3#*--life }
exec cat "/dev/fd/${life%% *}"
"""


def test_a_migration_can_be_ended_on_both_nodes(program, source, target, port):
    program.xl.write_text(WAITING)
    params = instance(migration_port=port).hvparams
    send = functools.partial(migration.send, live=True)
    for paths, begin in ((target, migration.listen), (source, send)):
        guest = Files(paths, "web1")
        begin(effects_of(paths), guest, params, LOCAL)
        assert migration.is_running(guest)
        migration.end(effects_of(paths), guest)
        assert not migration.is_running(guest)
        assert not os.path.exists(guest.migration("result"))


def test_a_port_in_use_is_an_error_at_once(program, target):
    with socket.socket() as sock:
        sock.bind((LOCAL, 0))
        sock.listen()
        used = sock.getsockname()[1]
        params = instance(migration_port=used).hvparams
        text = f"web1: xen-migration receive .*cannot listen on {LOCAL} port {used}"
        with pytest.raises(errors.HypervisorError, match=text):
            migration.listen(effects_of(target), Files(target, "web1"), params, LOCAL)


@pytest.mark.parametrize("text", ["", "x", "[]", '{"code": "0"}', '{"code": 1}'])
def test_only_a_whole_result_is_a_success(source, text):
    guest = Files(source, "web1")
    guest.make_directories()
    pathlib.Path(guest.migration("result")).write_text(text)
    assert migration.status(guest).status == "failed"


def test_the_program_in_the_background_needs_its_files(capsys):
    with pytest.raises(SystemExit) as ended:
        xen_migration.main(["receive", "web1", LOCAL, "8002"])
    assert ended.value.code == 2
    assert (
        "receive: wanted --pid-file, --result and --arrival" in capsys.readouterr().err
    )


def test_a_program_that_does_not_end_is_named(source, monkeypatch):
    monkeypatch.setattr(migration.pidfile, "live_pid", lambda *_args: 7)
    monkeypatch.setattr(migration.os, "kill", lambda *_args: None)
    effects = hypervisor.NodeEffects(source, None, nodes.CountedClock())
    with pytest.raises(errors.HypervisorError, match="process 7, does not end"):
        migration.end(effects, Files(source, "web1"))


HEAD = "Name ID Mem VCPUs State Time(s)"
PAUSED = "web1 3 96 1 --p--- 3.8"
SUSPENDED = "web1 3 96 1 ---ss- 3.8"
RUNNING = "web1 3 96 1 -b---- 3.8"
#: Saves and restores a guest of three megabytes, and notes each call.
STOPPED = """#!/bin/sh
if [ "$1" = list ]; then
  echo "Name ID Mem VCPUs State Time(s)"
  [ ! -e "$0.domain-$GANETI_HOSTNAME" ] || cat "$0.domain-$GANETI_HOSTNAME"
fi
[ "$1" = list ] || echo "$*" | sed 's:/fd/.*:/fd/N:' >> "$0.calls"
case $1 in
  save) [ ! -e "$0.no-save" ] || exit 3
    head -c 3000000 /dev/zero > "$4" || { touch "$0.resumed"; exit 5; } ;;
  restore) [ ! -e "$0.no-restore" ] || exit 4
    size=$(head -c 3000000 "$3" | wc -c)
    [ "$size" = 3000000 ] || exit 9 ;;
esac
"""


@pytest.fixture
def moving(program, source, target, port):
    """A target that waits; what is called to stop a guest and send it there."""
    program.xl.write_text(STOPPED)
    params = instance(migration_port=port).hvparams
    arriving, leaving = Files(target, "web1"), Files(source, "web1")

    def listen():
        migration.listen(effects_of(target), arriving, params, LOCAL)

    listen()

    def move():
        migration.send(effects_of(source), leaving, params, LOCAL, live=False)
        wait(lambda: migration.status(leaving).status != "active")
        wait(lambda: not migration.is_running(leaving))
        wait(lambda: not migration.is_running(arriving))
        return migration.status(leaving)

    calls = program.xl.with_name("xl.calls")
    return types.SimpleNamespace(
        move=move,
        listen=listen,
        calls=lambda: calls.read_text().splitlines(),
        xl=program.xl,
    )


def test_a_stopped_guest_goes_on_at_the_target_when_the_source_has_none(moving):
    assert moving.move().status == "completed"
    calls = moving.calls()
    assert sorted(calls[:2]) == ["restore -p /dev/stdin", "save -p web1 /dev/fd/N"]
    assert calls[2:] == ["destroy web1", "unpause web1"]


@pytest.mark.parametrize("broken", ["no-save", "no-restore"])
def test_a_guest_that_cannot_be_moved_goes_on_where_it_is(moving, broken):
    moving.xl.with_name(f"xl.{broken}").touch()
    moving.xl.with_name("xl.domain-n1").write_text(PAUSED)
    assert moving.move().status == "failed"
    calls = moving.calls()
    assert calls.count("unpause web1") == 1
    assert "destroy web1" not in calls


def test_a_part_of_a_guest_does_not_stay_at_the_target(moving, target):
    moving.xl.with_name("xl.no-restore").touch()
    moving.xl.with_name("xl.domain-n2").write_text(PAUSED)
    assert moving.move().status == "failed"
    assert moving.calls().count("destroy web1") == 1
    assert migration.arrival(Files(target, "web1")) is migration.Arrival.INCOMPLETE


def test_a_guest_waits_at_the_target_until_its_source_has_decided(moving, target):
    seen = moving.xl.with_name("xl.seen")
    arrival = Files(target, "web1").migration("arrival")
    at_destroy = f'case $1 in\n  destroy) cp {arrival} "$0.seen" ;;'
    moving.xl.write_text(STOPPED.replace("case $1 in", at_destroy))
    assert moving.move().status == "completed"
    assert seen.read_text() == "complete"
    assert migration.arrival(Files(target, "web1")) is None


#: Calls of `write_file` that find the disk full: those of the files named here.
FULL = """
from ganeti.base.filesystem import files
really = files.write_file
def write(path, data, **how):
    import errno
    if {fails}:
        raise OSError(errno.ENOSPC, "No space left on device", path)
    really(path, data, **how)
files.write_file = write
"""


#: A file system that has become read-only keeps the results that it has.
UNREMOVABLE = """
remove = files.remove_file
def keep(path):
    import errno, os
    if "result" in path and os.path.exists(path):
        raise OSError(errno.EROFS, "Read-only file system", path)
    remove(path)
files.remove_file = keep
"""


def fill(program, fails):
    """Let writing a file fail on full disks, if this holds for its path and data."""
    text = program.tool.read_text()
    head, last = text.rsplit("sys.exit", 1)
    program.tool.write_text(f"{head}{FULL.format(fails=fails)}sys.exit{last}")


def test_a_target_that_cannot_write_its_state_takes_no_guest(program, target, port):
    fill(program, '"arrival" in path')
    params = instance(migration_port=port).hvparams
    with pytest.raises(
        errors.HypervisorError, match=r"receive exited .*arrival: No space left"
    ):
        migration.listen(effects_of(target), Files(target, "web1"), params, LOCAL)


def test_a_guest_goes_on_if_its_target_cannot_note_that_it_is_complete(
    program, moving, target
):
    fill(program, '"arrival" in path and data == "complete"')
    moving.listen()
    moving.xl.with_name("xl.domain-n1").write_text(PAUSED)
    moving.xl.with_name("xl.domain-n2").write_text(PAUSED)
    assert moving.move().status == "failed"
    calls = moving.calls()
    # One of both is the copy, at the target.
    assert sorted(calls[2:]) == ["destroy web1", "unpause web1"]
    assert (
        "web1.arrival: No space left"
        in pathlib.Path(Files(target, "web1").log).read_text()
    )


@pytest.mark.parametrize("is_in_place", [True, False])
def test_a_guest_goes_on_if_its_source_cannot_write_its_decision(
    program, moving, source, is_in_place
):
    decision = '"result" in path and \'"code": 0\' in data'
    writes = "really(path, data, **how) is None and " if is_in_place else ""
    fill(program, f"{decision} and {writes}True")
    moving.xl.with_name("xl.domain-n1").write_text(PAUSED)
    moved = moving.move()
    assert moved.status == "failed"
    assert re.search(r"web1\.result: No space left", moved.error)
    calls = moving.calls()
    assert (calls.count("unpause web1"), calls.count("destroy web1")) == (1, 0)


def test_a_decision_that_cannot_be_taken_back_stays(program, moving):
    """Whoever reads it lets the guest go on at the target, so it may not do so here."""
    decision = '"result" in path and \'"code": 0\' in data'
    fill(program, f"{decision} and really(path, data, **how) is None")
    text = program.tool.read_text()
    head, last = text.rsplit("sys.exit", 1)
    program.tool.write_text(f"{head}{UNREMOVABLE}sys.exit{last}")
    moving.listen()
    assert moving.move().status == "completed"
    calls = moving.calls()
    assert (calls.count("unpause web1"), calls.count("destroy web1")) == (1, 1)


def test_a_decision_stays_though_no_word_can_be_written_about_it(program, moving):
    """A full log must not make a failure of it: the target has the guest."""
    text = program.tool.read_text()
    broken = "sys.stdout = open('/dev/full', 'w')\nsys.exit"
    program.tool.write_text(text.replace("sys.exit", broken))
    moving.xl.write_text(
        STOPPED.replace("case $1 in", "case $1 in\n  destroy) exit 6 ;;")
    )
    moving.listen()
    assert moving.move().status == "completed"


def test_a_source_killed_after_its_decision_has_given_the_guest_up(
    moving, source, target
):
    leaving = Files(source, "web1")
    at_destroy = f"case $1 in\n  destroy) kill -9 $(cat {leaving.migration('pid')}) ;;"
    moving.xl.write_text(STOPPED.replace("case $1 in", at_destroy))
    assert moving.move().status == "completed"
    # The node daemons let it go on.
    assert migration.arrival(Files(target, "web1")) is migration.Arrival.COMPLETE
    assert "unpause web1" not in moving.calls()


#: Is resumed as xl does it: when nobody reads the state of the guest any more.
KILLED = (
    STOPPED
    + """
if [ "$1" = save ]; then
  if [ -e "$0.suspended" ]; then
    head -c 3000000 /dev/zero > "$4" || echo "$RUNNING" > "$0.domain-n1"
  else
    touch "$0.suspended"
    echo "$SUSPENDED" > "$0.domain-n1"
    kill -9 $$
  fi
fi
"""
).replace("  save) ", "  never) ")


def test_a_guest_whose_xl_was_killed_is_resumed(moving, monkeypatch):
    moving.xl.write_text(
        KILLED.replace("$RUNNING", RUNNING).replace("$SUSPENDED", SUSPENDED)
    )
    status = moving.move()
    assert (status.status, "exited with code -9" in status.error) == ("failed", True)
    assert moving.xl.with_name("xl.domain-n1").read_text().strip() == RUNNING
    assert moving.calls().count("save -p web1 /dev/fd/N") == 2
    assert "destroy web1" not in moving.calls()


def test_two_nodes_go_on_although_they_are_asked_to_end_after_the_decision(
    moving, source, target
):
    gate = moving.xl.with_name("xl.gate")
    os.mkfifo(gate)
    at_destroy = 'case $1 in\n  destroy) read -r _ < "$0.gate" ;;'
    moving.xl.write_text(STOPPED.replace("case $1 in", at_destroy))
    # Without it, this process would open the gate before anybody waits there.
    thread = threading.Thread(target=moving.move)
    thread.start()
    wait(lambda: moving.xl.with_name("xl.calls").exists())
    wait(lambda: "destroy web1" in moving.calls())
    for paths in (target, source):
        pid = migration.pidfile.live_pid(
            Files(paths, "web1").migration("pid"), migration.PROGRAM
        )
        os.kill(pid, signal.SIGTERM)
    gate.write_text("go\n")
    thread.join()
    assert moving.calls()[2:] == ["destroy web1", "unpause web1"]
    assert migration.status(Files(source, "web1")).status == "completed"


def test_no_guest_stops_for_a_target_of_an_earlier_release(
    program, source, target, monkeypatch
):
    program.xl.write_text(STOPPED)
    monkeypatch.setattr(xen_relay, "STOPPED", "another")
    peer = Peer(target, lambda channel: channel.close())
    guest = Files(source, "web1")
    params = instance(migration_port=peer.port).hvparams
    migration.send(effects_of(source), guest, params, LOCAL, live=False)
    peer.end()
    wait(lambda: not migration.is_running(guest))
    assert "has an earlier release" in migration.status(guest).error
    assert not program.xl.with_name("xl.calls").exists()


#: Its guest has left when it hears that its connection has ended.
LATE = """#!/bin/sh
echo begun
life=${3#*--life }
exec cat "/dev/fd/${life%% *}"
"""


def test_a_guest_that_has_left_at_the_last_moment_is_a_success(program, source, port):
    program.xl.write_text(LATE)
    guest = Files(source, "web1")
    params = instance(migration_port=port).hvparams
    migration.send(effects_of(source), guest, params, LOCAL, live=True)
    wait(lambda: "begun" in pathlib.Path(guest.log).read_text())
    pid = migration.pidfile.live_pid(guest.migration("pid"), migration.PROGRAM)
    os.kill(pid, signal.SIGTERM)
    wait(lambda: not migration.is_running(guest))
    assert migration.status(guest).status == "completed"


def test_a_node_without_xl_is_the_reason_of_a_failure(program, source, port):
    program.xl.unlink()
    guest = Files(source, "web1")
    params = instance(migration_port=port).hvparams
    migration.send(effects_of(source), guest, params, LOCAL, live=True)
    wait(lambda: not migration.is_running(guest))
    assert "xl: cannot be run" in migration.status(guest).error


def test_a_program_that_ends_during_the_question_has_its_result(source, monkeypatch):
    guest = Files(source, "web1")
    guest.make_directories()

    def ended(_guest):
        pathlib.Path(guest.migration("result")).write_text('{"code": 0}')
        return False

    monkeypatch.setattr(migration, "is_running", ended)
    assert migration.status(guest).status == "completed"


def test_a_program_that_was_killed_is_the_reason_of_a_failure(program, source, port):
    # Its xl ends with it.
    program.xl.write_text(WAITING)
    guest = Files(source, "web1")
    params = instance(migration_port=port).hvparams
    migration.send(effects_of(source), guest, params, LOCAL, live=True)
    pid = migration.pidfile.live_pid(guest.migration("pid"), migration.PROGRAM)
    os.kill(pid, signal.SIGKILL)
    wait(lambda: not migration.is_running(guest))
    assert migration.status(guest).error == (
        f"xen-migration was killed; see {guest.log}"
    )


def test_a_program_without_its_pid_file_has_not_started(program, source, port):
    guest = Files(source, "web1")
    guest.make_directories()
    # Whoever asked for the state before the file was there would see no migration.
    os.mkdir(guest.migration("pid"))
    params = instance(migration_port=port).hvparams
    with pytest.raises(
        errors.HypervisorError, match=r"web1: xen-migration migrate .*pid: .*directory"
    ):
        migration.send(effects_of(source), guest, params, LOCAL, live=True)


#: As the source, it lets the guest go on when its connection has ended.
HANGING = """#!/bin/sh
[ "$1" = migrate ] || exec cat
trap 'touch "$0.killed"; exit 1' TERM
mkfifo "$0.data"
exec 7<> "$0.data"
$3 $5 x < "$0.data"
touch "$0.resumed"
"""


def test_xl_lets_the_guest_go_on_when_its_migration_is_ended(
    program, source, target, port
):
    program.xl.write_text(HANGING)
    params = instance(migration_port=port).hvparams
    arriving, leaving = Files(target, "web1"), Files(source, "web1")
    migration.listen(effects_of(target), arriving, params, LOCAL)
    migration.send(effects_of(source), leaving, params, LOCAL, live=True)
    wait(lambda: "web1: arrives" in pathlib.Path(arriving.log).read_text())
    migration.end(effects_of(source), leaving)
    assert program.xl.with_name("xl.resumed").exists()
    assert not program.xl.with_name("xl.killed").exists()
    wait(lambda: not migration.is_running(arriving))
