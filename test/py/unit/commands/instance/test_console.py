"""Consoles over SSH: this process becomes ssh."""

import os
import shutil

import pytest

from fakes import client_cluster, commands


class Replaced(BaseException):
    """The process would now be another program, with these arguments."""


@pytest.fixture
def program(monkeypatch):
    def become(path, argv):
        raise Replaced(path, argv)

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def connected(environ=None, *, tty=True):
    with pytest.raises(Replaced) as caught:
        commands.run(
            "gnt-instance console web1",
            client_cluster.master(),
            environ=environ,
            stdin=commands.Tty() if tty else "",
        )
    return caught.value.args


def virtual(tmp_path, **files):
    """Return the environment of a virtual node with files in its data directory."""
    data = tmp_path / "n1/var/lib/ganeti"
    data.mkdir(parents=True)
    for name, text in files.items():
        (data / name).write_text(text)
    return {"GANETI_ROOTDIR": str(tmp_path / "n1"), "GANETI_HOSTNAME": "n1"}


@pytest.mark.usefixtures("program")
def test_the_process_becomes_ssh_on_the_node():
    path, argv = connected()
    assert path == "/usr/bin/ssh"
    assert argv[0] == "ssh"
    assert argv[-5:] == ["-4", "-t", "-t", "operator@n1.tst", "socat - 'unix:a b'"]
    assert "-oHostKeyAlias=c.tst" in argv
    assert "-oStrictHostKeyChecking=yes" in argv


@pytest.mark.usefixtures("program")
def test_without_a_terminal_the_end_of_the_input_ends_the_console():
    """A remote terminal would pass it to the guest as a key."""
    _path, argv = connected(tty=False)
    assert argv[:2] == ["ssh", "-T"]
    assert "-t" not in argv


@pytest.mark.usefixtures("program")
def test_a_node_with_a_recorded_key_is_known_by_its_name(tmp_path):
    lines = "n1.tst,192.0.2.1 ssh-ed25519 AAAA\n"
    environ = virtual(tmp_path, known_hosts=lines, ssconf_primary_ip_family="10\n")
    _path, argv = connected(environ)
    assert "-oHostKeyAlias=n1.tst" in argv
    assert "-6" in argv


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "dsa"])
def test_a_virtual_node_has_a_key_of_its_own(tmp_path, kind):
    environ = virtual(tmp_path)
    folder = tmp_path / "n1/root/.ssh"
    folder.mkdir(parents=True)
    (folder / f"id_{kind}").touch()
    _path, argv = connected(environ)
    assert f"-oIdentityFile={folder}/id_{kind}" in argv


def test_a_machine_without_ssh_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    done = commands.run("gnt-instance console web1", client_cluster.master())
    assert done.code == 1
    assert "console: cannot find the program ssh" in done.err
