"""Damaged files and hostile peers: one clear error, and daemons that serve others."""

import fcntl
import pathlib
import random
import socket
import subprocess

import pytest

from fakes.vnode import BIN, TOP, VirtualNode, own_address
from ganeti.base.constants import versions
from ganeti.protocols.rpc import calls

pytestmark = pytest.mark.daemon


@pytest.fixture
def node(tmp_path):
    made = VirtualNode(tmp_path, "n1.tst", own_address("127.3"))
    made.make_cluster()
    yield made
    made.stop(9)


def run_noded(node):
    """Run a node daemon that cannot start; return the finished process."""
    return subprocess.run(
        [BIN / "ganeti-noded", "-f", "--no-mlock", "-b", node.address],
        env=node.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "missing", "directory"])
def test_a_damaged_certificate_is_named(node, damage):
    path = pathlib.Path(node.paths.server_pem)
    data = path.read_bytes()
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage != "missing":
        middle = len(data) // 2
        flipped = data[:middle] + b"!!!!" + data[middle + 4 :]
        path.write_bytes(
            {"empty": b"", "cut": data[:middle], "flipped": flipped}[damage]
        )
    done = run_noded(node)
    assert done.returncode == 1
    assert "server.pem" in done.stderr
    assert "Traceback" not in done.stderr


def test_strangers_bytes_on_the_port_harm_nobody(node):
    node.start_noded()
    chance = random.Random(4711)
    for _round in range(60):
        with socket.create_connection((node.address, 1811), 60) as sock:
            sock.settimeout(0.05)
            hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
            start = chance.choice([b"", hello, b"POST / HTTP/1.1\r\n\r\n"])
            try:
                sock.sendall(start + chance.randbytes(chance.randrange(2000)))
                sock.recv(4096)
            except OSError:
                continue
    assert node.ask().payload == versions.PROTOCOL_VERSION
    log = pathlib.Path(node.paths.log_dir, "node-daemon.log")
    if log.exists():
        assert "Traceback" not in log.read_text()


def test_a_certificate_damaged_under_a_running_daemon_breaks_only_new_masters(node):
    node.start_noded()
    path = pathlib.Path(node.paths.server_pem)
    data = path.read_bytes()
    path.write_bytes(b"garbage")
    refused = node.ask()
    assert refused.failed
    assert "Traceback" not in refused.fail_msg
    path.write_bytes(data)
    assert node.ask().payload == versions.PROTOCOL_VERSION


@pytest.mark.parametrize("text", ["", "no-equals-sign", "\xff\xfe", "u1=zz\n" * 1000])
def test_a_damaged_list_of_candidates_locks_the_node_but_does_not_end_it(node, text):
    digest = node.make_client()
    node.write_ssconf(master_candidates_certs=f"u1={digest}\n")
    node.start_noded()
    assert not node.ask().failed
    path = pathlib.Path(node.paths.data_dir, "ssconf_master_candidates_certs")
    path.write_bytes(text.encode("latin-1"))
    node.ask()
    node.write_ssconf(master_candidates_certs=f"u1={digest}\n")
    assert not node.ask().failed


def test_a_full_disk_for_logs_stops_no_call(node):
    log = pathlib.Path(node.paths.log_dir, "node-daemon.log")
    log.symlink_to("/dev/full")
    node.start_noded("-d")
    for _round in range(5):
        assert node.ask().payload == versions.PROTOCOL_VERSION


def test_an_unwritable_log_file_is_named(node):
    log = pathlib.Path(node.paths.log_dir, "node-daemon.log")
    log.mkdir()
    done = run_noded(node)
    assert done.returncode == 1
    assert "node-daemon.log" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_quickstart_is_one_clear_error():
    lock = TOP / "build" / ".quickstart.lock"
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(
            [TOP / "tools" / "quickstart"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "another quickstart is running in this tree" in done.stderr


def test_a_call_after_a_restart_of_the_node_daemon_is_not_lost(node):
    node.start_noded()
    caller = node.runner()
    try:
        for _round in range(4):
            assert not caller.call_node("u1", calls.version()).failed
            node.stop(9)
            node.start_noded()
            assert (
                caller.call_node("u1", calls.version()).payload
                == versions.PROTOCOL_VERSION
            )
    finally:
        caller.close()
