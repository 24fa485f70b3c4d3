"""``oob-ipmi``: its file of accounts, its calls of ipmitool, and unclear answers."""

import itertools
import os

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors, pathutils
from ganeti.base.process import RunResult
from ganeti.tools.oob import oob_common, oob_ipmi

GOOD = """
# accounts
[*]
user = ganeti
password = s3=cr#t; yes

[node1.tst]
address = 192.0.2.1

[node2.tst]
address = bmc2.tst
password = other
port = 6230
cipher = 17
"""


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Return a function that writes the file and returns its path."""
    root = tmp_path / "node1.tst"
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.tst")
    path = f"{pathutils.from_environ(os.environ).conf_dir}/oob-ipmi.conf"
    os.makedirs(os.path.dirname(path))

    def write(text, mode=0o600):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(path, mode)
        return path

    return write


def settings(path, node):
    sections = oob_common.read(path, is_virtual=True)
    return oob_common.settings(path, sections, node, oob_ipmi.KEYS)


def test_settings_of_a_node_win_over_those_of_all(conf):
    path = conf(GOOD)
    first, second = settings(path, "node1.tst"), settings(path, "node2.tst")
    assert first["password"] == "s3=cr#t; yes"
    assert (first["address"], first["port"], first["cipher"]) == (
        "192.0.2.1",
        "623",
        "",
    )
    assert (second["password"], second["port"]) == ("other", "6230")


def test_comments_are_lines_with_a_hash_and_values_keep_theirs(conf):
    text = (
        "# one\n[*]\nuser = a; b\n  # two\npassword = x = y : z\n[DEFAULT]\nuser = d\n"
    )
    assert oob_common.read(conf(text), is_virtual=True) == {
        "*": {"user": "a; b", "password": "x = y : z"},
        "DEFAULT": {"user": "d"},
    }
    with pytest.raises(errors.ConfigurationError, match="line 2 is not"):
        oob_common.read(conf("[*]\n; no comment\n"), is_virtual=True)
    with pytest.raises(errors.ConfigurationError, match=r"is not UTF-8 text$"):
        path = conf("")
        with open(path, "wb") as stream:
            stream.write(b"[*]\nuser = \xff\n")
        oob_common.read(path, is_virtual=True)
    with pytest.raises(errors.ConfigurationError, match="has more than 4194304 bytes"):
        oob_common.read(conf("#" * (4 * 1024 * 1024 + 1)), is_virtual=True)
    assert oob_common.read(conf("#" * (4 * 1024 * 1024)), is_virtual=True) == {}


def test_the_owner_is_root_or_the_user_of_virtual_nodes(conf, monkeypatch):
    path = conf(GOOD)
    monkeypatch.setattr(oob_common.os, "geteuid", lambda: 1234)
    if os.getuid() == 0:
        assert oob_common.read(path, is_virtual=False)["*"]["user"] == "ganeti"
        with pytest.raises(errors.ConfigurationError, match=r"and owner 0$"):
            oob_common.read(path, is_virtual=True)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o666, 0o601])
def test_a_file_that_others_can_use_is_refused(conf, mode):
    with pytest.raises(errors.ConfigurationError, match=f"found mode {mode:04o}"):
        settings(conf(GOOD, mode), "node1.tst")


def test_a_real_node_wants_the_file_of_root(conf, monkeypatch):
    path = conf(GOOD)
    if os.geteuid():
        with pytest.raises(errors.ConfigurationError, match="wanted mode 0600"):
            oob_common.read(path, is_virtual=False)
    real = os.fstat

    def of_other(number):
        values = list(real(number))
        values[4] = 1234
        return os.stat_result(values)

    monkeypatch.setattr(oob_common.os, "fstat", of_other)
    for is_virtual in (True, False):
        with pytest.raises(errors.ConfigurationError, match="and owner 1234"):
            oob_common.read(path, is_virtual=is_virtual)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("s3cret\n", "line 1 is not"),
        ("[*]\nuser = x\nthe s3cret alone\n", "line 3 is not"),
        ("[*]\nuser = x\n[*]\npassword = s3cret\n", "line 3 is not"),
        ("[*]\npassword = s3cret\npassword = s3cret\n", "line 3 is not"),
        ("[*]\npassword = s3cret\npasword = s3cret\n", "unknown setting 'pasword'"),
        ("[*]\nuser = x\npassword = s3cret\n", "missing setting 'address'"),
        ("", "missing setting 'address'"),
    ],
)
def test_wrong_files_are_described_without_their_secrets(conf, capsys, text, problem):
    conf(text)
    assert oob_ipmi.main(["power-status", "node1.tst"]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("oob-ipmi: ")
    assert problem in err
    assert "s3cret" not in err


def test_other_things_than_files_are_refused(conf, tmp_path):
    path = conf(GOOD)
    with pytest.raises(errors.ConfigurationError, match="No such file"):
        oob_common.read(f"{path}.gone", is_virtual=True)
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo, 0o600)
    with pytest.raises(errors.ConfigurationError, match="wanted a regular file"):
        oob_common.read(fifo, is_virtual=True)


# The controller
GIVEN = {
    "address": "192.0.2.1",
    "user": "ganeti",
    "password": "s3cret",
    "port": "623",
    "interface": "lanplus",
    "privilege": "ADMINISTRATOR",
    "cipher": "",
}


class Bmc:
    """A controller behind a fake ipmitool; states are its answers in turn."""

    def __init__(
        self, *states, sensors="", power=(0, "Chassis Power Control: x\n", "")
    ):
        self.states = itertools.chain(states, itertools.repeat(states[-1]))
        self.sensors = sensors
        self.power = power
        self.runner = FakeRunner(ipmitool=self.answer)
        self.now = 0.0

    def answer(self, argv):
        words = argv[argv.index("-R") + 2 :]
        if words == ("-c", "sdr", "list"):
            return 0, self.sensors, ""
        if words == ("chassis", "power", "status"):
            state = next(self.states)
            return state if isinstance(state, tuple) else (0, state, "")
        return self.power

    def sleep(self, seconds):
        self.now += seconds

    def execute(self, command, **changes):
        controller = oob_ipmi.Controller(
            GIVEN | changes, self.runner, lambda: self.now, self.sleep
        )
        return controller.execute(command)

    @property
    def orders(self):
        argvs = [argv for argv, _ in self.runner.commands]
        return [" ".join(argv[argv.index("-R") + 2 :]) for argv in argvs]


ON, OFF = "Chassis Power is on\n", "Chassis Power is off\n"


def test_the_password_is_in_the_environment_and_nowhere_else():
    bmc = Bmc(ON)
    assert bmc.execute("power-status") == {"powered": True}
    ((argv, options),) = bmc.runner.commands
    assert "s3cret" not in " ".join(argv)
    assert options["env"]["IPMI_PASSWORD"] == "s3cret"
    assert set(options["env"]) == {"PATH", "LC_ALL", "IPMI_PASSWORD"}


@pytest.mark.parametrize(
    ("command", "states", "orders"),
    [
        ("power-on", (ON,), []),
        ("power-off", (OFF,), []),
        ("power-on", (OFF, OFF, ON), ["chassis power on"]),
        ("power-off", (ON, ON, OFF), ["chassis power off"]),
        ("power-cycle", (ON,), ["chassis power cycle"]),
    ],
)
def test_a_machine_is_switched_once_and_followed(command, states, orders):
    bmc = Bmc(*states)
    assert bmc.execute(command) is None
    assert [order for order in bmc.orders if "status" not in order] == orders


@pytest.mark.parametrize(
    ("bmc", "command", "text"),
    [
        (Bmc("maybe\n"), "power-status", "unclear power state"),
        (Bmc("Chassis Power is on\nmore"), "power-status", "unclear power state"),
        (Bmc(ON), "power-off", "the machine did not follow within 30 s"),
        (Bmc(OFF), "power-cycle", "is off already"),
        (Bmc(OFF, power=(1, "", "one\nrefused\n")), "power-on", "192.0.2.1: refused"),
        (Bmc((1, "", "with s3cret\n")), "power-status", r"with \*\*\*$"),
        (Bmc((1, "", "")), "power-status", "exited with code 1"),
    ],
)
def test_failures_are_one_line(bmc, command, text):
    with pytest.raises(errors.OpExecError, match=text) as caught:
        bmc.execute(command)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_controller_that_is_silent_does_not_answer():
    class Silent(FakeRunner):
        def run_bounded(self, argv, **options):
            assert options["timeout_s"] < 9
            return RunResult(tuple(argv), None, 9, "", "", timed_out=True)

    controller = oob_ipmi.Controller(GIVEN, Silent(), lambda: 0.0, lambda _: None)
    with pytest.raises(errors.OpExecError, match=r"192.0.2.1: does not answer"):
        controller.execute("power-status")


def test_sensors_have_the_documented_states():
    lines = [
        "CPU Temp,40,degrees C,ok",
        "Inlet,82,degrees C,nc",
        "Fan, left,0,RPM,cr",
        "Exhaust,95,degrees C,nr",
        "Empty slot,,,ns",
        "Intrusion,0x01,discrete,strange",
        "a line of something else",
        ",1,V,ok",
        f"{'x' * 300},1,V,ok",
    ]
    assert Bmc(ON, sensors="\n".join(lines)).execute("health") == [
        ["CPU Temp", "OK"],
        ["Inlet", "WARNING"],
        ["Fan, left", "CRITICAL"],
        ["Exhaust", "CRITICAL"],
        ["Intrusion", "UNKNOWN"],
        ["x" * 200, "OK"],
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address", "-Eevil"),
        ("address", ""),
        ("address", "a b"),
        ("user", "-x"),
        ("user", ""),
        ("port", "0"),
        ("port", "-1"),
        ("interface", "open"),
        ("privilege", "ROOT"),
        ("cipher", "x"),
        ("password", ""),
        ("password", "x" * 21),
    ],
)
def test_settings_have_their_forms(name, value):
    with pytest.raises(errors.ConfigurationError, match=f"invalid {name}"):
        Bmc(ON).execute("power-status", **{name: value})
