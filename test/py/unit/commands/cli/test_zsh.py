"""The completion script in zsh, which reads it through bashcompinit."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from fakes import commands
from ganeti.commands.cli.help import manual

TIMEOUT_S = 90.0


class Shell:
    """An interactive zsh on a pseudo terminal."""

    def __init__(self, directory):
        self._master, slave = pty.openpty()
        environ = {"PATH": f"{directory}:/usr/bin:/bin", "HOME": str(directory)}
        environ |= {"TERM": "dumb", "COLUMNS": "200", "LINES": "50"}
        self._process = subprocess.Popen(
            ["zsh", "-f", "-i"],
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=directory,
            start_new_session=True,
        )
        os.close(slave)

    def send(self, text):
        os.write(self._master, text.encode())

    def wait_for(self, pattern):
        """Return what came until a pattern was seen."""
        seen, deadline = "", time.monotonic() + TIMEOUT_S
        while not re.search(pattern, seen):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {seen!r}")
            seen += os.read(self._master, 65536).decode(errors="replace")
        return seen

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def shell(tmp_path):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = tmp_path / "completion"
    script.write_text(manual.bash_completion([commands.program("gnt-instance")]))
    listed = tmp_path / "gnt-instance"
    listed.write_text("#!/bin/sh\necho web1.tst\necho web2.tst\n")
    listed.chmod(0o755)
    actual = Shell(tmp_path)
    actual.send("autoload -U +X compinit && compinit -u -D\n")
    actual.send("autoload -U +X bashcompinit && bashcompinit\n")
    actual.send(". ./completion; echo rea''dy\n")
    actual.wait_for("ready")
    yield actual
    actual.close()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("gnt-instance shutd\t", "gnt-instance shutdown"),
        ("gnt-instance startup --force-m\t", "--force-multiple"),
        ("gnt-instance info web2\t", "web2.tst"),
        ("gnt-instance info web\t", r"web1\.tst\s+web2\.tst"),
    ],
)
def test_tab_completes_commands_options_and_names(shell, typed, wanted):
    shell.send(typed)
    shell.wait_for(wanted)
