"""Sessions with an emulator that is slow to let go of the one before."""

import contextlib
import json
import os
import socket
import threading

import pytest
from qemu.qmp import QMPClient, Runstate

from ganeti import errors
from ganeti.hypervisor.kvm import qmp

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
        pytest.raises(errors.HypervisorError, match="instance web1: connecting"),
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
