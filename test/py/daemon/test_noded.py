"""The node daemon as a process, with real certificates, on loopback."""

import contextlib
import dataclasses
import os
import queue
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes.vnode import BIN, VirtualNode, own_address
from ganeti.base.constants import versions
from ganeti.protocols import rpc
from ganeti.protocols.http import client, liveness
from ganeti.protocols.rpc import calls

pytestmark = pytest.mark.daemon


@pytest.fixture
def node(tmp_path):
    made = VirtualNode(tmp_path, "n1.tst", own_address("127.2"))
    made.make_cluster()
    yield made
    made.stop(9)


def test_a_node_without_a_list_obeys_the_cluster_certificate_alone(node):
    node.start_noded()
    assert node.ask().payload == versions.PROTOCOL_VERSION
    node.make_client()
    refused = node.ask()
    assert "alert" in refused.fail_msg
    assert not refused.is_lost


def test_only_listed_candidates_are_obeyed(node):
    digest = node.make_client()
    node.write_ssconf(master_candidates_certs=f"u1={digest}\n")
    node.start_noded()
    assert node.ask().payload == versions.PROTOCOL_VERSION
    os.rename(node.paths.client_pem, f"{node.paths.client_pem}.away")
    assert "alert" in node.ask().fail_msg


def test_a_kept_connection_ends_with_the_candidates_role(node):
    digest = node.make_client()
    node.write_ssconf(master_candidates_certs=f"u1={digest}\n")
    node.start_noded()
    caller = node.runner()
    assert not caller.call_node("u1", calls.version()).failed
    node.write_ssconf(master_candidates_certs="u2=" + "AA:" * 19 + "AA\n")
    after = caller.call_node("u1", calls.version())
    caller.close()
    assert after.failed
    assert not after.is_lost


def test_a_stranger_without_certificate_is_refused(node):
    node.start_noded()
    with socket.create_connection((node.address, 1811), 60) as sock:
        sock.sendall(b"POST /version HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]")
        answer = b""
        # Unread data turns the end of the connection into a reset.
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(4096):
                answer += piece
    assert b"200" not in answer


def test_silent_and_talkative_garbage_takes_no_worker(node):
    node.start_noded("--max-clients", "1")
    silent = [socket.create_connection((node.address, 1811), 60) for _ in range(60)]
    for sock in silent[::2]:
        sock.sendall(os.urandom(500))
    assert node.ask().payload == versions.PROTOCOL_VERSION
    for sock in silent:
        sock.close()


def test_a_lower_term_is_refused_even_after_a_crash(node):
    node.start_noded()
    assert not node.ask(term=5).failed
    assert not node.ask(term=5).failed
    node.stop(9)
    node.start_noded()
    late = node.ask(term=4)
    assert late.deposed
    assert "5" in late.fail_msg
    assert not node.ask(term=6).failed
    # Tools that act for no master are not concerned.
    assert not node.ask().failed


def test_failures_have_texts(node):
    node.start_noded()
    assert "wanted 0 arguments" in node.ask("version", 1).fail_msg
    assert "ssconf_master_node" in node.ask("master_node_name").fail_msg


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nonsense", b"[]", 404),
        ("/version", b"{}", 400),
        ("/version", b"[" * 50000, 400),
        ("/version", b"not json", 400),
    ],
)
def test_requests_that_are_no_calls(node, path, body, status):
    node.start_noded()
    with_client = client.Client()
    credentials = client.Credentials(node.paths.server_pem, node.paths.server_pem)
    request = client.Request(
        address=node.address,
        port=1811,
        path=path,
        body=body,
        credentials=credentials,
        timeout_s=60,
    )
    (response,) = with_client.perform([request])
    with_client.close()
    assert response.status == status
    assert b'"explain"' in response.body


def test_without_certificate_it_says_so_and_exits(tmp_path):
    node = VirtualNode(tmp_path, "n1.tst", "127.2.0.1")
    done = subprocess.run(
        [BIN / "ganeti-noded", "-f"],
        env=node.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "server.pem: no certificate" in done.stderr


def test_sigterm_ends_it_cleanly(node):
    node.start_noded()
    code, _ = node.stop()
    assert code == 0
    assert not os.path.exists(node.paths.pid_file("ganeti-noded"))


def test_a_call_that_outlives_its_connection_is_lost(node):
    node.start_noded()
    caller = node.runner()
    # With a connection at hand, the request is on its way within the time.
    assert not caller.call_node("u1", calls.version()).failed
    # On a busy machine the time may be over before anything was sent.
    for limit_s in (1.0, 10.0, 100.0):
        late = caller.call("test_delay", ["u1"], [600.0], timeout_s=limit_s)["u1"]
        if late.is_lost:
            break
    caller.close()
    assert late.failed
    assert late.is_lost


def test_urgent_calls_do_not_wait_behind_ordinary_ones(node):
    node.start_noded("--max-clients", "1")
    caller = node.runner()
    waiting = [
        client.Request(
            address=node.address,
            port=1811,
            path="/test_delay",
            body=b"[600.0]",
            credentials=client.Credentials(
                node.paths.server_pem, node.paths.server_pem
            ),
            timeout_s=600,
        )
        for _ in range(5)
    ]
    other = client.Client()
    for request in waiting:
        other.start(request, lambda _response: None)
    assert caller.call_node("u1", calls.version(), timeout_s=60).payload
    other.close()
    caller.close()


def test_a_virtual_power_cycle_leaves_a_request(node):
    node.start_noded()
    assert "Reboot scheduled" in node.ask("node_powercycle", "fake", {}).payload
    assert node.process.poll() is None


def test_leaving_the_cluster_ends_the_daemon(node):
    node.start_noded()
    assert node.ask("node_leave_cluster", False).payload == "Shutdown scheduled"
    node.process.wait(60)
    assert node.process.returncode == 0
    assert os.listdir(node.paths.data_dir) == []


def test_files_of_the_cluster_pass_between_nodes(node):
    node.start_noded()
    source = node.paths.data("hmac.key")
    with open(source, "w") as stream:
        stream.write("k" * 2000)
    arguments = rpc.wire.upload(source, node.paths)
    os.unlink(source)
    assert not node.ask("upload_file", arguments).failed
    with open(source) as stream:
        assert stream.read() == "k" * 2000
    arguments[0] = arguments[0].replace("hmac.key", "server.pem")
    assert "not on the list" in node.ask("upload_file", arguments).fail_msg


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="memory is locked by root only")
def test_the_daemon_is_locked_into_memory(node):
    node.start_noded(lock_memory=True)
    with open(f"/proc/{node.process.pid}/status") as stream:
        sizes = dict(line.split(":", 1) for line in stream)
    locked = int(sizes["VmLck"].split()[0])
    if locked == 0:
        # Neither the capability IPC_LOCK nor the one to raise limits.
        may = int(sizes["CapEff"], 16)
        assert not may >> 14 & 1
        pytest.skip("this machine does not let root lock memory")
    assert locked >= int(sizes["VmRSS"].split()[0]) * 0.9
    assert node.ask().payload == versions.PROTOCOL_VERSION


def test_a_second_signal_ends_it_in_the_middle_of_a_call(node):
    node.start_noded("-d")
    other = client.Client()
    files = client.Credentials(node.paths.server_pem, node.paths.server_pem)
    delay = client.Request(
        address=node.address,
        port=1811,
        path="/test_delay",
        body=b"[600.0]",
        credentials=files,
        timeout_s=700,
    )
    answers = queue.SimpleQueue()
    other.start(delay, answers.put)
    node.wait_for_line("call test_delay")
    node.process.send_signal(signal.SIGTERM)
    node.wait_for_line("stopping")
    code, _ = node.stop()
    assert code == 1
    assert answers.get(timeout=60).is_lost
    other.close()


def test_hung_calls_leave_threads_to_urgent_ones(node):
    node.start_noded("--max-clients", "2")
    with contextlib.closing(node.runner()) as caller, ThreadPoolExecutor(12) as pool:
        # Two calls run, six wait, and the others are asked to come again.
        hung = [
            pool.submit(caller.call_node, "u1", calls.test_delay(600.0), timeout_s=30)
            for _ in range(12)
        ]
        node.wait_for_line("lane ordinary: busy")
        assert (
            caller.call_node("u1", calls.version()).payload == versions.PROTOCOL_VERSION
        )
        assert not caller.call_node("u1", calls.store_status()).failed
        reset = caller.call_node("u1", calls.node_powercycle("fake", {}))
        assert "Reboot scheduled" in reset.payload
        refused = caller.call_node("u1", calls.os_diagnose(), timeout_s=0.5)
        assert "busy" in refused.fail_msg
        node.process.kill()
        assert all(call.result(60).failed for call in hung)


def test_the_programs_of_a_call_end_with_its_job(node, tmp_path):
    node.start_noded()
    hooks = node.paths.at("/etc/ganeti/hooks/instance-start-pre.d")
    os.makedirs(hooks)
    started = tmp_path / "started"
    os.mkfifo(started)
    for name in ("1long", "2next"):
        path = os.path.join(hooks, name)
        with open(path, "w") as stream:
            stream.write(f"#!/bin/sh\necho $$ > {started}\nsleep 600\n")
        os.chmod(path, 0o755)
    actual = queue.SimpleQueue()
    with contextlib.closing(node.runner()) as caller:
        worker = threading.Thread(
            target=lambda: actual.put(
                caller.call_node(
                    "u1", calls.hooks_runner("instance-start", "pre", {"GANETI_X": "1"})
                )
            )
        )
        worker.start()
        pid = int(started.read_text())
        caller.abort(worker)
        result = actual.get(timeout=60)
        assert not result.failed, result.fail_msg
        # The second hook was ended, too.
        assert [row[1] for row in result.payload] == [1, 1]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        # The worker may run programs again.
        os.unlink(os.path.join(hooks, "1long"))
        with open(os.path.join(hooks, "2next"), "w") as stream:
            stream.write("#!/bin/sh\ntrue\n")
        after = caller.call_node(
            "u1", calls.hooks_runner("instance-start", "pre", {"GANETI_X": "1"})
        )
        assert [row[1] for row in after.payload] == [2]


def test_a_call_that_cannot_end_is_given_up(node, monkeypatch):
    monkeypatch.setattr(rpc.runner, "_ABORT_GRACE_S", 0.1)
    node.start_noded("--debug")
    actual = queue.SimpleQueue()
    with contextlib.closing(node.runner()) as caller:
        worker = threading.Thread(
            target=lambda: actual.put(caller.call_node("u1", calls.test_delay(600.0)))
        )
        worker.start()
        node.wait_for_line("call test_delay")
        caller.abort(worker)
        result = actual.get(timeout=60)
        assert "ended on request" in result.fail_msg
        assert result.is_lost


def test_a_call_that_was_given_up_while_the_node_was_frozen_does_not_act(
    node, monkeypatch
):
    node.start_noded("--debug")
    with contextlib.closing(node.runner()) as caller:
        # The connection is kept and fresh, so the request reaches the frozen node.
        assert not caller.call_node("u1", calls.version()).failed
        node.process.send_signal(signal.SIGSTOP)
        # The signal may take effect later than a call that is sent now.
        os.waitid(os.P_PID, node.process.pid, os.WSTOPPED)
        with monkeypatch.context() as limits:
            make_impatient(limits)
            lost = caller.call_node("u1", calls.node_powercycle("fake", {}))
        assert lost.is_lost
        node.process.send_signal(signal.SIGCONT)
        # With the usual limits: the node may be slow on a machine with other work.
        assert not caller.call_node("u1", calls.version()).failed
        node.wait_for_line("the caller has gone")
    assert not os.path.exists(node.paths.at("/power-cycle"))


def make_impatient(limits):
    """Have calls given up soon, but after the request was sent, also if that is slow."""
    limits.setitem(rpc.runner._SILENCE_S, "normal", 2.0)
    limits.setattr(rpc.runner, "_PROBE_ACT_AFTER_S", 2.0)
    limits.setattr(client.transfers, "probe", quick_probe(client.transfers.probe))
    limits.setattr(liveness, "PROBE_EVERY_S", 0.1)


def quick_probe(probe):
    def shorter(request):
        return probe(dataclasses.replace(request, connect_timeout_s=0.2))

    return shorter
