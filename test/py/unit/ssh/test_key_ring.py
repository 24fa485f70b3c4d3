"""Private keys are read once, and again when their file was replaced."""

import concurrent.futures
import dataclasses
import os

import paramiko
import pytest

from ganeti.ssh import client, keys


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


def test_an_identity_keeps_its_ring_in_its_variants():
    identity = client.Identity(user="root", key_files=())
    assert dataclasses.replace(identity, check_host_key=False).ring is identity.ring
    assert client.Identity(user="root", key_files=()).ring is not identity.ring
