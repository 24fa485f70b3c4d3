"""Consoles over SSH, and what happens where SSH does not work."""

import os
import shutil
import socket
import subprocess

import pytest

from fakes import client_cluster, commands
from ganeti.base import errors
from ganeti.commands.instance import relayed as relayed_console


def test_a_connection_without_an_owner_is_not_the_one_of_root():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        viewer = socket.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        with accepted:
            assert relayed_console._is_own(accepted, address)
            viewer.close()
            assert not relayed_console._is_own(accepted, address)


class Replaced(BaseException):
    """The process would now be another program, with these arguments."""


@pytest.fixture
def program(monkeypatch):
    def become(path, argv):
        raise Replaced(path, argv)

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(subprocess, "Popen", lambda argv: become(argv[0], argv))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def connected(environ=None, *, tty=True, option=""):
    with pytest.raises(Replaced) as caught:
        commands.run(
            f"gnt-instance console {option} web1",
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
@pytest.mark.parametrize(("option", "word"), [("", "/usr/bin/ssh"), ("--ssh", "ssh")])
def test_ssh_has_the_terminal(option, word):
    path, argv = connected(option=option)
    assert path == "/usr/bin/ssh"
    assert argv[0] == word
    assert argv[-5:] == ["-4", "-t", "-t", "operator@n1.tst", "socat - 'unix:a b'"]
    assert "-oHostKeyAlias=c.tst" in argv
    assert "-oStrictHostKeyChecking=yes" in argv


@pytest.mark.usefixtures("program")
def test_without_a_terminal_the_end_of_the_input_ends_the_console():
    """A remote terminal would pass it to the guest as a key."""
    _path, argv = connected(tty=False)
    assert argv[:2] == ["/usr/bin/ssh", "-T"]
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


@pytest.fixture
def relayed(monkeypatch):
    """The master issues no tickets; returns the requests."""
    asked = []

    def refuse(_self, *args):
        asked.append(args)
        raise errors.OpExecError("node n1: cannot relay")

    monkeypatch.setattr(
        client_cluster.FakeMaster, "_OpenConsole", refuse, raising=False
    )
    return asked


def run(words, **more):
    line = f"gnt-instance console {words} web1"
    return commands.run(line, client_cluster.master(), **more)


def test_a_machine_without_ssh_uses_the_node_daemon(monkeypatch, relayed):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    done = run("")
    assert done.code == 1
    assert "no program ssh; connecting through the node daemon" in done.err
    assert "cannot relay" in done.err
    assert relayed == [("web1.tst", "serial")]
    done = run("--ssh")
    assert done.code == 1
    assert "console: cannot find the program ssh" in done.err
    assert len(relayed) == 1


@pytest.mark.parametrize(
    ("ends", "code", "says_so"),
    [
        *(("exit 0", 0, False), ("exit 1", 1, False), ("exit 255", 255, True)),
        ("kill -TERM $$", 143, False),
    ],
)
def test_only_an_ssh_that_does_not_work_is_replaced(
    monkeypatch, tmp_path, relayed, ends, code, says_so
):
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{ends}\n")
    ssh.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(ssh))
    # A part of what a script sends may have arrived already.
    assert run("").code == code
    assert relayed == []
    done = run("", stdin=commands.Tty())
    text = "SSH to n1.tst does not work; connecting through the node daemon"
    assert (text in done.err) == bool(relayed) == says_so
    assert done.code == (1 if says_so else code)


@pytest.mark.parametrize("option", ["--relay", "--watch", "--take-over"])
def test_options_of_the_relay_use_no_ssh(relayed, option):
    run(option)
    assert relayed == [("web1", "serial")]
    done = run(f"--ssh {option}")
    assert done.code == 1
    assert "--ssh excludes --relay, --watch and --take-over" in done.err
    done = run(f"--show-cmd {option}")
    assert done.code == 1
    assert "--relay, --watch and --take-over have no command to show" in done.err
    assert len(relayed) == 1
