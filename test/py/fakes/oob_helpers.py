"""An out-of-band helper as the node daemon runs it, and a machine that it controls.

The machine has the controller of OpenIPMI's simulator.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from fakes import patience, ports
from ganeti.base import pathutils

TOP = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("GANETI_TEST_TOOLS") or TOP / "build" / "bin")
NODE = "node2.tst"
PASSWORD = "s3=cret;x"
LAN = """\
name "sim"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
chassis_control "{switch} 0x20"
user 1 false "" "" user 10 none md2 md5 straight
user 2 true "ganeti" "{password}" admin 10 none md2 md5 straight
"""
#: The power switch of the machine: called with ``get KEY...`` and ``set KEY VALUE``.
SWITCH = """\
#!/bin/sh
shift
verb=$1; shift
case $verb in
  get) for key; do
    case $key in power) echo "power:$(cat {state})" ;; *) echo "$key:0" ;; esac
  done ;;
  set) while [ $# -gt 0 ]; do
    [ "$1" != power ] || {{ echo "$2" >{state}; echo "$2" >>{state}.log; }}
    shift 2
  done ;;
esac
"""
#: Sensor -> its value; the limits are 80, 85 and 90.
SENSORS = {"CPU Temp": 40, "Inlet": 82, "Exhaust": 95}


def sensor(number, name, value):
    """Return commands that make a temperature sensor, and its full record (IPMI 43.1)."""
    text = name.encode()
    body = [
        *(0x20, 0, number, 3, 1, 0x7F, 0x68, 1, 1, 0, 0, 0, 0, 0x3F, 0x3F),
        *(0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0),
        *(90, 85, 80, 5, 10, 15, 0, 0, 0, 0, 0, 0xC0 | len(text), *text),
    ]
    record = " ".join(map(hex, [0, 0, 0x51, 1, len(body), *body]))
    states = " ".join(["000111111000000"] * 4)
    return (
        f"sensor_add 0x20 0 {number} 1 1\n"
        f"sensor_set_threshold 0x20 0 {number} settable 111111 90 85 80 15 10 5\n"
        f"sensor_set_event_support 0x20 0 {number} enable scanning per-state {states}\n"
        f"sensor_set_value 0x20 0 {number} {value} 0\n"
        f"main_sdr_add 0x20 {record}\n"
    )


class Machine:
    """A simulated machine, and the helper that controls it."""

    def __init__(self, top):
        self.port = ports.free(socket.SOCK_DGRAM)
        self.state = top / "power"
        self.state.write_text("1\n")
        switch = top / "switch"
        switch.write_text(SWITCH.format(state=self.state))
        switch.chmod(0o755)
        lan = LAN.format(port=self.port, switch=switch, password=PASSWORD)
        (top / "lan.conf").write_text(lan)
        commands = "mc_setbmc 0x20\nmc_add 0x20 0 has-device-sdrs 0x23 9 8 0x9f 0x1291"
        commands += " 0xf02 persist_sdr\n"
        for number, (name, value) in enumerate(SENSORS.items(), 1):
            commands += sensor(number, name, value)
        (top / "sim.emu").write_text(f"{commands}mc_enable 0x20\n")
        (top / "state").mkdir()
        self.env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "GANETI_ROOTDIR": str(top / "node1.tst"),
            "GANETI_HOSTNAME": "node1.tst",
        }
        paths = pathutils.from_environ(self.env)
        os.makedirs(paths.conf_dir)
        self.conf = pathlib.Path(f"{paths.conf_dir}/oob-ipmi.conf")
        self.write(PASSWORD)
        assert shutil.which("ipmi_sim"), "needs the Debian package openipmi"
        self.process = subprocess.Popen(
            ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "sim.emu", "-s", "state"],
            cwd=top,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def write(self, password):
        self.conf.write_text(
            f"[*]\nuser = ganeti\npassword = {password}\ncipher = 3\n"
            f"[{NODE}]\naddress = 127.0.0.1\nport = {self.port}\n"
        )
        self.conf.chmod(0o600)

    def run(self, command):
        return subprocess.run(
            [BIN / "oob-ipmi", command, NODE],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience.PATIENCE_S,
        )

    def is_on(self):
        done = self.run("power-status")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["powered"]


class Helper:
    """A helper with directories of its own below ``top``."""

    def __init__(self, top, name):
        self.name = name
        self.env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "GANETI_ROOTDIR": str(top / "node1.tst"),
            "GANETI_HOSTNAME": "node1.tst",
        }
        conf_dir = pathutils.from_environ(self.env).conf_dir
        os.makedirs(conf_dir, exist_ok=True)
        self.conf = pathlib.Path(f"{conf_dir}/{name}.conf")

    def write(self, **settings):
        lines = [f"{key} = {value}\n" for key, value in settings.items()]
        self.conf.write_text("".join([f"[{NODE}]\n", *lines]))
        self.conf.chmod(0o600)

    def run(self, command, node=NODE):
        return subprocess.run(
            [BIN / self.name, command, node],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience.PATIENCE_S,
        )

    def switch(self, command):
        """Run a command that prints nothing."""
        done = self.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def value(self, command):
        """Return what a command prints."""
        done = self.run(command)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def is_on(self):
        return self.value("power-status")["powered"]

    def failure(self, command, *secrets):
        """Return the one line of a command that fails, without the helper's name."""
        done = self.run(command)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert not any(secret in line for secret in secrets)
        assert line.startswith(f"{self.name}: ")
        return line.removeprefix(f"{self.name}: ")
