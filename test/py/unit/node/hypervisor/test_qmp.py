"""Sessions with an emulator that is slow to let go of the one before."""

import contextlib
import json
import os
import socket
import threading

import pytest
from qemu.qmp import QMPClient, Runstate

from ganeti.base import errors
from ganeti.node.hypervisor.kvm import qmp

GREETING = {"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}


def send(client, message):
    client.sendall(json.dumps(message).encode() + b"\r\n")


@contextlib.contextmanager
def emulator(path, hang_ups=0, dies_of="", ends_sessions=0):
    """Serve one client after another; hang up on the first ones before greeting.

    The command `dies_of` is answered by hanging up, too, and the first sessions end
    with the answer to their first request.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    served = []

    def serve():
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            served.append(1)
            with client, contextlib.suppress(OSError):
                if len(served) > hang_ups:
                    send(client, GREETING)
                    # Each request arrives by itself: clients wait for the answer.
                    while data := client.recv(65536):
                        asked = json.loads(data)
                        if asked.pop("execute") == dies_of:
                            break
                        send(client, {"return": {}} | asked)
                        if len(served) <= ends_sessions:
                            break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield served
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)
        os.unlink(path)


def test_an_emulator_that_hangs_up_before_its_greeting_is_asked_again(tmp_path):
    path = str(tmp_path / "qmp")
    with emulator(path, hang_ups=2) as served:
        with qmp.Qmp(path, "web1", timeout_s=30) as session:
            assert session.execute("query-status") == {}
        assert len(served) == 3


def test_an_emulator_that_hangs_up_just_after_its_greeting_is_asked_again(
    tmp_path, monkeypatch
):
    establish = QMPClient._establish_session
    path = str(tmp_path / "qmp")

    async def notice_late(client):
        await establish(client)
        if len(served) <= 2:
            while client.runstate == Runstate.RUNNING:
                await client.runstate_changed()

    monkeypatch.setattr(QMPClient, "_establish_session", notice_late)
    with emulator(path, ends_sessions=2) as served:
        with qmp.Qmp(path, "web1", timeout_s=30) as session:
            assert session.execute("query-status") == {}
        assert len(served) == 3


def test_an_emulator_that_always_hangs_up_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(qmp, "_AGAIN_S", (0.01, 0.01, 0.01))
    path = str(tmp_path / "qmp")
    with (
        emulator(path, hang_ups=99) as served,
        pytest.raises(errors.HypervisorError, match="instance web1: connecting"),
        qmp.Qmp(path, "web1", timeout_s=30),
    ):
        pass
    assert len(served) == 4


def test_a_socket_that_is_not_there_is_not_waited_for(tmp_path):
    with (
        pytest.raises(
            errors.HypervisorError,
            match=r"connecting: .*/none does not exist; .*reboot web1",
        ),
        qmp.Qmp(str(tmp_path / "none"), "web1", timeout_s=30),
    ):
        pass


def test_an_emulator_that_dies_of_a_command_is_reported(tmp_path):
    path = str(tmp_path / "qmp")
    with (
        emulator(path, dies_of="migrate"),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
        pytest.raises(
            errors.HypervisorError, match=r"web1: migrate: the emulator closed"
        ),
    ):
        session.execute("migrate")


@contextlib.contextmanager
def talkative(path, answers, events=()):
    """Serve one session: answer by command, send events with the first answer.

    Yields the requests, each with the files that came with it.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    asked, pending = [], list(events)

    def serve():
        client, _address = listener.accept()
        with client:
            send(client, GREETING)
            contents = []
            while True:
                data, fds, _flags, _sender = socket.recv_fds(client, 65536, 4)
                if not data:
                    return
                for fd in fds:
                    with os.fdopen(fd) as stream:
                        contents.append(stream.read())
                if not data.strip():
                    continue  # a file comes with a space, before its command
                request = json.loads(data)
                command = request["execute"]
                asked.append((command, request.get("arguments"), contents))
                contents = []
                answer = answers.get(command, {"return": {}})
                if command != "qmp_capabilities":
                    while pending:
                        send(client, pending.pop(0))
                if answer is not None:
                    send(
                        client, answer | {k: v for k, v in request.items() if k == "id"}
                    )

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        listener.close()
        thread.join(30)
        os.unlink(path)


def test_an_open_file_is_passed_under_its_name(tmp_path):
    path = str(tmp_path / "qmp")
    (tmp_path / "tap").write_text("a tap")
    with talkative(path, {}) as asked, open(tmp_path / "tap") as tap:
        with qmp.Qmp(path, "web1", timeout_s=30) as session:
            session.send_fd(tap.fileno(), "nic-1")
        assert asked[1:] == [("getfd", {"fdname": "nic-1"}, ["a tap"])]
        assert os.fstat(tap.fileno())


def test_an_open_file_has_a_path_in_the_emulator(tmp_path):
    path = str(tmp_path / "qmp")
    (tmp_path / "disk").write_text("a disk")
    answers = {"add-fd": {"return": {"fdset-id": 3, "fd": 12}}}
    with talkative(path, answers) as asked, open(tmp_path / "disk") as disk:
        with qmp.Qmp(path, "web1", timeout_s=30) as session:
            assert session.add_fd(disk.fileno()) == "/dev/fdset/3"
        assert asked[1:] == [("add-fd", None, ["a disk"])]


REFUSAL = {"error": {"class": "GenericError", "desc": "no such device"}}


def test_a_refused_command_is_reported_with_its_reason(tmp_path):
    path = str(tmp_path / "qmp")
    with (
        talkative(path, {"device_del": REFUSAL}) as asked,
        qmp.Qmp(path, "web1", timeout_s=30) as session,
    ):
        with pytest.raises(qmp.QmpCommandError) as caught:
            session.execute("device_del", {"id": "x"})
        assert str(caught.value) == "instance web1: device_del: no such device"
        assert not isinstance(caught.value, qmp.QmpNotFoundError)
    assert asked[1:] == [("device_del", {"id": "x"}, [])]


def test_a_device_that_is_not_there_is_an_error_of_its_own(tmp_path):
    path = str(tmp_path / "qmp")
    missing = {"error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}}
    with (
        talkative(path, {"netdev_del": missing}),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
        pytest.raises(qmp.QmpNotFoundError, match="web1: netdev_del: Device 'x' not"),
    ):
        session.execute("netdev_del", {"id": "x"})


def test_an_emulator_that_does_not_answer_is_given_up(tmp_path):
    path = str(tmp_path / "qmp")
    with (
        talkative(path, {"stop": None}),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
    ):
        session._timeout_s = 0.01
        with pytest.raises(errors.HypervisorError) as caught:
            session.execute("stop")
        session._timeout_s = 30
    expected = f"instance web1: stop: no answer from {path} in 0.01 s"
    assert str(caught.value) == expected


def event(name, **data):
    stamp = {"seconds": 1, "microseconds": 2}
    return {"event": name, "data": data, "timestamp": stamp}


@pytest.mark.parametrize(
    ("data", "limit_s", "expected"),
    [({"device": "disk-2"}, 30, True), ({}, 30, True), ({"device": "x"}, 0.05, False)],
)
def test_an_event_counts_if_it_has_the_data(tmp_path, data, limit_s, expected):
    path = str(tmp_path / "qmp")
    events = [
        event("RESET"),
        event("DEVICE_DELETED", device="disk-1", path="/p"),
        event("DEVICE_DELETED", device="disk-2", path="/p"),
    ]
    with (
        talkative(path, {}, events),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
    ):
        session.execute("query-status")
        assert session.wait_event("DEVICE_DELETED", limit_s, **data) is expected


def test_another_event_with_the_data_does_not_count(tmp_path):
    path = str(tmp_path / "qmp")
    with (
        talkative(path, {}, [event("RESET", device="x")]),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
    ):
        session.execute("query-status")
        assert not session.wait_event("DEVICE_DELETED", 0.05, device="x")


def test_a_flood_of_events_is_not_kept(tmp_path):
    path = str(tmp_path / "qmp")
    large = event("DEVICE_DELETED", device="x", path="p" * 5000)
    flood = [event("DEVICE_DELETED", device=str(n)) for n in range(1200)]
    with (
        talkative(path, {}, [large, *flood]),
        qmp.Qmp(path, "web1", timeout_s=30) as session,
    ):
        session.execute("query-status")
        assert session._events._queue.qsize() == 1000
        assert not session.wait_event("DEVICE_DELETED", 0.05, device="x")
