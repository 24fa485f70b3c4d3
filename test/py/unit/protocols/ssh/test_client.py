"""The SSH client: files, keys, servers that drop it, input that is left unread."""

import concurrent.futures
import dataclasses
import os
import pathlib
import socket
import stat
import subprocess
import threading
import types

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa

from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.protocols.ssh import client, keys

PATH = "/etc/resolv.conf"


class Stream:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def chmod(self, mode):
        pass

    def write(self, data):
        pass


class Sftp:
    """A server on which the new file cannot be moved to its path."""

    def __init__(self, mode):
        self.mode = mode
        self.files = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def open(self, path, _mode):
        self.files.add(path)
        return Stream()

    def posix_rename(self, _old, _new):
        raise OSError("Failure")

    def remove(self, path):
        self.files.remove(path)

    def lstat(self, _path):
        if self.mode is None:
            raise FileNotFoundError
        return types.SimpleNamespace(st_mode=self.mode)


def put_file(sftp, mountpoint_code):
    ran = []
    shell = object.__new__(client.Client)
    shell.host = "node2"
    shell._client = types.SimpleNamespace(open_sftp=lambda: sftp)

    def run(argv):
        ran.append(argv)
        return RunResult(tuple(argv), mountpoint_code, None, "", "")

    shell.run = run
    with pytest.raises(errors.SshError) as error:
        shell.put_file(PATH, "text", mode=0o644)
    assert sftp.files == set()
    return str(error.value), ran


@pytest.mark.parametrize(
    ("mode", "mountpoint_code", "reason"),
    [
        (stat.S_IFDIR | 0o755, 1, "is a directory"),
        (stat.S_IFREG | 0o644, 0, "is a mount point, which cannot be replaced"),
        (stat.S_IFREG | 0o644, 1, "Failure"),
        (None, 1, "Failure"),
    ],
)
def test_the_error_names_node_file_and_reason(mode, mountpoint_code, reason):
    text, ran = put_file(Sftp(mode), mountpoint_code)
    assert text == f"node2: {PATH} cannot be written: {reason}"
    assert ran in ([], [["mountpoint", "-q", PATH]])


def test_a_server_without_sftp_is_named_with_the_setting_that_offers_it():
    def refuse():
        raise paramiko.SSHException("Channel closed.")

    shell = object.__new__(client.Client)
    shell.host = "node2"
    shell._client = types.SimpleNamespace(open_sftp=refuse)
    with pytest.raises(errors.SshError) as error:
        shell.put_file(PATH, "text", mode=0o644)
    assert str(error.value) == (
        f"node2: {PATH} cannot be written: its SSH server must offer SFTP (Subsystem"
        " sftp in sshd_config), but refused it: Channel closed."
    )


# Private keys are read once, and again when their file was replaced.


@pytest.fixture
def reads(monkeypatch):
    """Count what is read from disk."""
    seen, read = [], paramiko.PKey.from_path
    monkeypatch.setattr(
        paramiko.PKey, "from_path", lambda path: seen.append(path) or read(path)
    )
    return seen


def save(path):
    keys.save(keys.generate("ed25519", 0, "root@a.test"), path)


def test_a_key_is_read_once_for_all_threads(tmp_path, reads):
    path = str(tmp_path / "id_ed25519")
    save(path)
    ring = client.KeyRing()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(ring.key, [path] * 20))
    assert len(set(map(id, actual))) == 1
    assert reads == [path]


def test_a_key_that_was_replaced_is_read_again(tmp_path, reads):
    path = str(tmp_path / "id_ed25519")
    save(path)
    ring = client.KeyRing()
    before = ring.key(path)
    save(path)
    after = ring.key(path)
    assert before.asbytes() != after.asbytes()
    assert len(reads) == 2
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        ring.key(path)


@pytest.fixture(params=["", "-m PEM"], ids=["openssh", "pem"])
def rsa_path(request, tmp_path):
    """Return the path of an RSA key of `ssh-keygen`, in one of its two forms."""
    path = str(tmp_path / "id_rsa")
    made = ["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", path]
    subprocess.run([*made, *request.param.split()], check=True)
    return path


def test_the_factors_of_a_key_are_not_tested(rsa_path, reads):
    key = client.KeyRing().key(rsa_path)
    assert reads == []
    expected = paramiko.PKey.from_path(rsa_path)
    assert key == expected
    assert client.key_line(key) == client.key_line(expected)
    signature = key.sign_ssh_data(b"text", "rsa-sha2-512")
    assert expected.verify_ssh_sig(b"text", paramiko.Message(signature.asbytes()))


def test_a_certificate_beside_a_key_is_read(rsa_path):
    sign = ["ssh-keygen", "-q", "-s", rsa_path, "-I", "root", f"{rsa_path}.pub"]
    subprocess.run(sign, check=True)
    key = client.KeyRing().key(rsa_path)
    assert key.public_blob.key_type == "ssh-rsa-cert-v01@openssh.com"


def test_a_key_with_a_passphrase_is_refused(tmp_path):
    path = str(tmp_path / "id_rsa")
    argv = ["ssh-keygen", "-q", "-t", "rsa", "-N", "secret", "-f", path]
    subprocess.run(argv, check=True)
    with pytest.raises(errors.SshError, match="id_rsa: has a passphrase"):
        client.KeyRing().key(path)


def test_a_damaged_key_is_refused(rsa_path):
    damaged = pathlib.Path(rsa_path).read_bytes()[:400]
    pathlib.Path(rsa_path).write_bytes(damaged)
    with pytest.raises(errors.SshError, match="id_rsa: damaged, or no private key"):
        client.KeyRing().key(rsa_path)


def test_a_key_of_an_unknown_kind_is_refused(tmp_path):
    text = dsa.generate_private_key(1024).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "id_rsa"
    path.write_bytes(text)
    with pytest.raises(errors.SshError, match="id_rsa: damaged, or no private key"):
        client.KeyRing().key(str(path))


def test_an_identity_keeps_its_ring_in_its_variants():
    identity = client.Identity(user="root", key_files=())
    assert dataclasses.replace(identity, check_host_key=False).ring is identity.ring
    assert client.Identity(user="root", key_files=()).ring is not identity.ring


# A server that drops callers before its greeting is called again, a limited number of times.


def test_a_dropped_connection_is_tried_again_and_then_named(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_PAUSE_S", 0.0)
    met = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drop():
            while len(met) < client.CONNECT_ATTEMPTS:
                sock, _peer = server.accept()
                met.append(sock)
                sock.close()

        thread = threading.Thread(target=drop)
        thread.start()
        with pytest.raises(errors.SshError, match="no SSH connection"):
            client.Client(
                "127.0.0.1",
                server.getsockname()[1],
                client.Identity(user="root", key_files=()),
            )
        thread.join()
    assert len(met) == client.CONNECT_ATTEMPTS


def test_a_silent_server_is_asked_once(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        identity = client.Identity(user="root", key_files=())
        with pytest.raises(errors.SshError, match="frozen or overloaded"):
            client.Client("127.0.0.1", port, identity)
        server.settimeout(1)
        server.accept()[0].close()
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


# Commands that end before they have read their input.


class Ended:
    """A channel that the server has closed before anything was written."""

    def __init__(self, exit_status):
        self.exit_status = exit_status
        self.errors = [b"env: no such file\n"]

    def sendall(self, data):
        raise OSError("Socket is closed")

    def shutdown_write(self):
        """Do nothing: it is closed."""

    def close(self):
        """Do nothing: it is closed."""

    def recv(self, size):
        return b""

    def recv_stderr(self, size):
        return self.errors.pop() if self.errors else b""

    def recv_exit_status(self):
        return self.exit_status


def test_the_exit_code_and_the_error_of_the_command_count():
    result = client._converse(Ended(127), ("absent",), "input", None)
    assert result.code == 127
    assert result.stderr == "env: no such file\n"


def test_a_lost_connection_is_one():
    with pytest.raises(OSError, match="Socket is closed"):
        client._converse(Ended(-1), ("absent",), "input", None)
