"""An out-of-band helper as the node daemon runs it, with a file of secrets."""

import json
import os
import pathlib
import subprocess

from fakes import patience
from ganeti.base import pathutils

TOP = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("GANETI_TEST_TOOLS") or TOP / "build" / "bin")
NODE = "node2.tst"


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
