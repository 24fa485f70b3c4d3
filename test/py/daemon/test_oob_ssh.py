"""``oob-ssh`` against a real sshd, and its settings."""

import getpass
import os
import signal
import subprocess

import paramiko
import pytest

from fakes import patience, ports, ssh_server
from fakes.oob_helpers import Helper
from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.tools.oob import oob_ssh

pytestmark = pytest.mark.daemon
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {top}/host
AuthorizedKeysFile {top}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
"""
#: The power switch: on, off, cycle, state.
SWITCH = """\
#!/bin/sh
echo "$1" >>{top}/log
case $1 in
  on|off) echo "$1" >{top}/power ;;
  state) echo "Power is $(cat {top}/power)" ;;
  hang) sleep 600 ;;
  flood) exec cat /dev/zero ;;
  *) echo "first" >&2; echo "no such command" >&2; exit 3 ;;
esac
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return the directory of an SSH server, and its port."""
    top = tmp_path_factory.mktemp("ssh")
    for name in ("host", "other", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / name]
        subprocess.run(words, check=True, timeout=patience.PATIENCE_S)
    port = ports.free()
    (top / "sshd.conf").write_text(CONFIG.format(port=port, top=top))
    switch = top / "switch"
    switch.write_text(SWITCH.format(top=top))
    switch.chmod(0o755)
    (top / "power").write_text("on\n")
    if os.geteuid() == 0:  # sshd wants it then
        os.makedirs("/run/sshd", exist_ok=True)
    with (top / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", top / "sshd.conf"],
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    text = "Server listening on 127.0.0.1"
    patience.until(
        "sshd listens", lambda: text in (top / "sshd.log").read_text(errors="replace")
    )
    yield top, port
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def good(server):
    top, port = server
    (top / "log").write_text("")
    kind, key, *_ = (top / "host.pub").read_text().split()
    return {
        "address": "127.0.0.1",
        "port": port,
        "user": getpass.getuser(),
        "key-file": top / "user",
        "host-key": f"{kind} {key}",
        "on": f"{top}/switch on",
        "off": f"{top}/switch off",
        "status": f"{top}/switch state",
        "is-on": "is on",
        "is-off": "is off",
    }


@pytest.fixture
def helper(tmp_path, good):
    made = Helper(tmp_path, "oob-ssh")
    made.write(**good)
    return made


@pytest.mark.sampled
def test_the_power_follows(server, helper):
    helper.switch("power-on")
    (server[0] / "log").write_text("")
    for command, is_on in (
        *(("power-off", False), ("power-off", False)),
        *(("power-on", True), ("power-on", True), ("power-cycle", True)),
    ):
        helper.switch(command)
        assert helper.is_on() is is_on
    orders = (server[0] / "log").read_text().split()
    assert [word for word in orders if word != "state"] == ["off", "on", "off", "on"]
    assert helper.value("health") == [["Controller", "OK"]]


def test_a_machine_that_is_off_is_not_cycled(helper):
    helper.switch("power-off")
    assert "the machine is off already" in helper.failure("power-cycle")
    assert not helper.is_on()
    helper.switch("power-on")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"status": "{top}/switch odd"}, "status: no such command"),
        ({"status": "{top}/switch hang"}, "does not answer in time"),
        ({"status": "{top}/switch flood"}, ""),
        ({"is-on": "none"}, "found none in 'Power is on'"),
        ({"is-off": "power"}, "found both in 'Power is on'"),
        ({"user": "nobody-here"}, "no key was accepted"),
        ({"key-file": "/nowhere"}, "no key was accepted"),
    ],
)
def test_wrong_answers_and_settings_are_one_line(server, helper, good, changes, text):
    changes = {key: value.format(top=server[0]) for key, value in changes.items()}
    helper.write(**good | changes)
    assert text in helper.failure("power-status")


def test_another_machine_is_refused(server, helper, good):
    kind, key, *_ = (server[0] / "other.pub").read_text().split()
    helper.write(**good | {"host-key": f"{kind} {key}"})
    line = helper.failure("power-status")
    assert "wanted the key of the setting host-key, found ssh-ed25519 SHA256:" in line
    assert (server[0] / "log").read_text() == ""


def test_a_password_is_for_the_pinned_machine_alone(tmp_path):
    host_key = paramiko.ECDSAKey.generate()
    account = ssh_server.Account(
        password="s3=cret;x", commands={"state": (0, b"ON", b"")}
    )
    settings = {
        "address": "127.0.0.1",
        "user": "ganeti",
        "password": "s3=cret;x",
        "host-key": f"{host_key.get_name()} {host_key.get_base64()}",
        "on": "on",
        "off": "off",
        "status": "state",
        "is-on": "on",
        "is-off": "off",
    }
    helper = Helper(tmp_path, "oob-ssh")
    with ssh_server.Server(host_key, account) as server:
        helper.write(**settings, port=server.port)
        assert helper.is_on()
        assert account.logins == [("password", "ganeti", True)]
        helper.write(**settings | {"password": "wr0ng"}, port=server.port)
        assert "nor the password" in helper.failure("power-status", "wr0ng")
    del account.logins[:]
    with ssh_server.Server(paramiko.ECDSAKey.generate(), account) as server:
        helper.write(**settings, port=server.port)
        assert "wanted the key" in helper.failure("power-status", "s3=cret;x")
        assert account.logins == []


# Without a server
FULL = {key: value or "" for key, value in oob_ssh.KEYS.items()} | {
    "address": "192.0.2.1",
    "user": "ganeti",
    "host-key": "ssh-ed25519 AAAA",
    "password": "s3cret",
    "on": "power on",
    "off": "power off",
    "cycle": "power reset",
    "status": "power status",
    "is-on": "is on",
    "is-off": "is off",
}


def execute(command, *answers, **changes):
    """Return the words that were typed."""
    typed, left = [], list(answers)

    def connect(_settings):
        def type_in(words, _timeout_s):
            typed.append(" ".join(words))
            return RunResult(tuple(words), 0, None, left.pop(0), "")

        return type_in

    made = oob_ssh.Controller(FULL | changes, connect, lambda: 0.0, lambda _: None)
    made.execute(command)
    return typed


def test_a_cycle_has_a_command_of_its_own():
    assert execute("power-cycle", "is on", "") == ["power status", "power reset"]


@pytest.mark.parametrize("answer", ["", "is on\nis off", "x" * 5000 + "is on"])
def test_unclear_answers_are_errors(answer):
    with pytest.raises(errors.OpExecError, match="wanted either is-on or is-off"):
        execute("power-status", answer)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("address", "-oProxyCommand=x", "invalid address"),
        ("user", "-x", "invalid user"),
        ("host-key", "AAAA", "invalid host-key"),
        ("key-file", "relative", "invalid key-file"),
        ("port", "x", "invalid port"),
        ("password", "", "wanted the setting key-file or password"),
        ("status", "'", "invalid status"),
        ("is-on", "(", "invalid is-on"),
    ],
)
def test_settings_have_their_forms(name, value, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        execute("power-status", **{name: value})
