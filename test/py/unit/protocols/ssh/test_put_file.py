"""Errors of writing a file over SFTP, whose servers often report only "Failure"."""

import stat
import types

import paramiko
import pytest

from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.protocols.ssh import client

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
