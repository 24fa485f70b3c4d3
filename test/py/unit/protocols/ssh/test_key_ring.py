"""Private keys are read once, and again when their file was replaced."""

import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa

from ganeti.base import errors
from ganeti.protocols.ssh import client, keys


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
