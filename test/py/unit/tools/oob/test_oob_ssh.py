"""``oob-ssh``: its settings, the commands that it types, and unclear answers."""

import pytest

from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.protocols.ssh import client
from ganeti.tools.oob import oob_ssh

GIVEN = {
    "address": "192.0.2.1",
    "user": "ganeti",
    "host-key": "ssh-ed25519 AAAAC3Nza",
    "key-file": "",
    "password": "s3cret",
    "port": "22",
    "on": "power 'up now'",
    "off": "power down",
    "cycle": "power reset",
    "status": "power show",
    "is-on": "state: on",
    "is-off": "state: off",
}
ON, OFF = "State: ON\n", "State: off\n"


class Machine:
    """A controller behind SSH: its state, what was typed, and answers for words."""

    def __init__(self, state=OFF, **answers):
        self.state, self.answers = state, answers
        self.typed, self.limits, self.logins = [], [], []
        self.now = 100.0

    def connect(self, settings):
        self.logins.append(settings["address"])
        return self.type_in

    def type_in(self, words, timeout_s):
        self.typed.append(list(words))
        self.limits.append(timeout_s)
        last = words[-1].split()[0]
        if (answer := self.answers.get(last)) is not None:
            if isinstance(answer, Exception):
                raise answer
            return answer
        if last == "show":
            return result(self.state)
        self.state = OFF if last == "down" else ON
        return result("")

    def sleep(self, seconds):
        self.now += seconds

    def execute(self, command, **changes):
        controller = oob_ssh.Controller(
            GIVEN | changes, self.connect, lambda: self.now, self.sleep
        )
        return controller.execute(command)


def result(stdout, stderr="", code=0, **more):
    return RunResult(("x",), code, None, stdout, stderr, **more)


SHOW, UP, DOWN = ["power", "show"], ["power", "up now"], ["power", "down"]
RESET = ["power", "reset"]


@pytest.mark.parametrize(
    ("command", "state", "changes", "typed", "value"),
    [
        ("power-status", ON, {}, [SHOW], {"powered": True}),
        ("power-status", OFF, {}, [SHOW], {"powered": False}),
        ("health", ON, {}, [SHOW], [["Controller", "OK"]]),
        ("power-on", ON, {}, [SHOW], None),
        ("power-off", OFF, {}, [SHOW], None),
        ("power-on", OFF, {}, [SHOW, UP, SHOW], None),
        ("power-off", ON, {}, [SHOW, DOWN, SHOW], None),
        ("power-cycle", ON, {}, [SHOW, RESET], None),
        (
            *("power-cycle", ON, {"cycle": ""}),
            *([SHOW, SHOW, DOWN, SHOW, SHOW, UP, SHOW], None),
        ),
    ],
)
def test_commands_are_typed_over_one_login(command, state, changes, typed, value):
    machine = Machine(state)
    assert machine.execute(command, **changes) == value
    assert machine.typed == typed
    assert machine.logins == ["192.0.2.1"]
    assert set(machine.limits) == {8.0 if command == "power-status" else 55.0}


@pytest.mark.parametrize(
    ("machine", "command", "text"),
    [
        (
            Machine("who knows\n"),
            "power-status",
            (
                "controller 192.0.2.1: wanted either is-on or is-off in the answer to"
                " status, found none in 'who knows'"
            ),
        ),
        (
            Machine("state: on state: off s3cret"),
            "power-status",
            (
                "controller 192.0.2.1: wanted either is-on or is-off in the answer to"
                " status, found both in 'state: on state: off ***'"
            ),
        ),
        (
            Machine("x" * 4096 + ON),
            "power-status",
            (
                "controller 192.0.2.1: wanted either is-on or is-off in the answer to"
                f" status, found none in '{'x' * 200}'"
            ),
        ),
        (
            Machine(show=result("", code=1)),
            "power-status",
            "controller 192.0.2.1: status: exited with code 1",
        ),
        (
            Machine(show=result("first\nlast s3cret\n", code=1)),
            "power-status",
            "controller 192.0.2.1: status: last ***",
        ),
        (
            Machine(show=result("out\n", "one\ntwo\n", code=1)),
            "power-status",
            "controller 192.0.2.1: status: two",
        ),
        (
            Machine(show=result("", code=None, timed_out=True)),
            "power-status",
            "controller 192.0.2.1: status: does not answer in time",
        ),
        (
            Machine(up=errors.SshError("192.0.2.1: gone with s3cret")),
            "power-on",
            "192.0.2.1: gone with ***",
        ),
        (
            Machine(up=result("")),
            "power-on",
            (
                "controller 192.0.2.1: accepted to power on, but the machine did not"
                " follow within 30 s"
            ),
        ),
        (
            Machine(OFF),
            "power-cycle",
            "controller 192.0.2.1: the machine is off already",
        ),
    ],
)
def test_failures_are_one_line_without_the_password(machine, command, text):
    with pytest.raises(errors.OpExecError) as caught:
        machine.execute(command)
    assert str(caught.value) == text


def test_the_state_is_searched_in_the_first_4096_characters():
    assert Machine("x" * 4087 + ON).execute("power-status") == {"powered": True}


def test_a_command_ends_when_its_time_is_over():
    machine = Machine(OFF)

    def slow(words, timeout_s):
        machine.now += 27.0
        return Machine.type_in(machine, words, timeout_s)

    machine.type_in = slow
    with pytest.raises(errors.OpExecError, match=r"192\.0\.2\.1: does not answer in"):
        machine.execute("power-off", **{"is-off": "never", "is-on": "state"})
    assert machine.limits == [55.0, 28.0, 1.0]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("address", "", "invalid address ''"),
        ("address", "-oProxy", "invalid address '-oProxy'"),
        ("user", "-x", "invalid user '-x'"),
        ("user", "a b", "invalid user 'a b'"),
        ("host-key", "ssh-ed25519", "invalid host-key 'ssh-ed25519'"),
        ("host-key", "dsa AAAA", "invalid host-key 'dsa AAAA'"),
        ("key-file", "id_rsa", "invalid key-file 'id_rsa'"),
        ("port", "0", "invalid port '0'"),
        ("port", "123456", "invalid port '123456'"),
        ("password", "", "wanted the setting key-file or password"),
        ("on", "it's", "invalid on: No closing quotation"),
        ("status", 'a "b', "invalid status: No closing quotation"),
        ("is-on", "(", "invalid is-on: regular expression '(': missing ): ("),
        ("is-off", "[", "invalid is-off: regular expression '[': missing ]: ["),
    ],
)
def test_settings_have_their_forms(name, value, text):
    machine = Machine()
    with pytest.raises(errors.ConfigurationError) as caught:
        machine.execute("power-status", **{name: value})
    assert str(caught.value).startswith(text)
    assert machine.logins == []


def test_a_key_file_replaces_the_password():
    given = {"key-file": "/etc/ganeti/oob-key", "password": ""}
    assert Machine(ON).execute("power-status", **given) == {"powered": True}


def test_nodes_need_these_settings_and_have_these_defaults():
    needed = {name for name, value in oob_ssh.KEYS.items() if value is None}
    assert needed == {
        *("address", "user", "host-key", "on", "off", "status", "is-on", "is-off"),
    }
    assert {k: v for k, v in oob_ssh.KEYS.items() if v is not None} == {
        "key-file": "",
        "password": "",
        "port": "22",
        "cycle": "",
    }


class Login:
    """In the place of `ssh.client.Client`: keeps its arguments and commands."""

    made = None

    def __init__(self, address, port, identity):
        Login.made = self
        self.place, self.identity, self.ran = (address, port), identity, []

    def run(self, words, *, timeout_s):
        self.ran.append((words, timeout_s))
        return result("done")


@pytest.mark.parametrize(
    ("changes", "key_files", "password"),
    [
        ({}, (), "s3cret"),
        ({"key-file": "/k", "password": ""}, ("/k",), None),
    ],
)
def test_a_login_has_the_settings_and_the_pinned_key(
    monkeypatch, changes, key_files, password
):
    monkeypatch.setattr(client, "Client", Login)
    type_in = oob_ssh.connect(GIVEN | changes | {"port": "2222"})
    assert type_in(["a"], 3.0).stdout == "done"
    login, identity = Login.made, Login.made.identity
    assert login.place == ("192.0.2.1", 2222)
    assert login.ran == [(["a"], 3.0)]
    assert (identity.user, identity.key_files) == ("ganeti", key_files)
    assert identity.pinned == ("ssh-ed25519 AAAAC3Nza",)
    given = identity.ask_password and identity.ask_password("ganeti@192.0.2.1")
    assert given == password
    with pytest.raises(
        errors.SshError,
        match=r"^controller 192\.0\.2\.1: wanted the key of the setting host-key, found"
        r" ssh-rsa SHA256:x; if the controller has a new one, correct it$",
    ):
        identity.ask_host_key("192.0.2.1", "ssh-rsa", "SHA256:x")
