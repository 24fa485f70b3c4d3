"""Completion of command lines in bash and fish; zsh has a file of its own."""

import importlib.util
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from fakes import commands
from ganeti.commands.cli.help import completion
from ganeti.commands.htools import option_table

MAKE = Path(__file__).parents[5] / "autotools" / "make-completion"
#: Stands for each list command of the cluster.
LISTED = """#!/bin/sh
case "$1" in
  list-fields) echo name:Text:Name:x; echo os:Text:OS:x ;;
  *) echo web1.tst; echo web2.tst ;;
esac
"""


def script(shell):
    """Return the script as it is installed."""
    loader = SourceFileLoader("make_completion", str(MAKE))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module.script(shell)


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    directory = tmp_path_factory.mktemp("completion")
    for name in ("gnt-instance", "gnt-node", "gnt-backup", "gnt-group"):
        (directory / name).write_text(LISTED)
        (directory / name).chmod(0o755)
    source = f"PATH={directory}:$PATH\n{script('bash')}"

    def complete(line, before=""):
        words = [*shlex.split(line), ""] if line.endswith(" ") else shlex.split(line)
        function = f"_{words[0].replace('-', '_')}"
        ask = (
            f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}; {function}"
        )
        done = subprocess.run(
            ["bash"],
            input=f'{source}\n{before}\n{ask}; echo "${{COMPREPLY[*]}}"\n',
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return complete


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("gnt-instance sta", ["start", "startup"]),
        ("gnt-instance startup --force-m", ["--force-multiple"]),
        ("gnt-instance info web2", ["web2.tst"]),
        ("gnt-instance migrate -n we", ["web1.tst", "web2.tst"]),
        # bash cuts words at "=" and ":", and replaces the last piece.
        ("gnt-instance migrate --target-node = web1", ["web1.tst"]),
        ("gnt-instance startup -B me", ["memory="]),
        ("gnt-instance startup -B memory = 1,vc", ["1,vcpus="]),
        ("gnt-instance startup -B auto_balance = t", ["true"]),
        ("gnt-cluster modify -H kvm : ac", ["acpi=true", "acpi=false"]),
        ("gnt-cluster modify -H kvm : acpi = f", ["false"]),
        ("gnt-instance list -o na", ["name"]),
        ("gnt-instance list -o name,o", ["name,os"]),
        ("gnt-instance reboot --type s", ["soft"]),
        ("gnt-node modify --drained ", ["yes", "no"]),
        ("gnt-node volumes -o ph", ["phys"]),
        ("gnt-backup remove web1", ["web1.tst"]),
        ("gnt-group evacuate --to web1", ["web1.tst"]),
        ("hbal --prin", ["--print-commands", "--print-instances", "--print-nodes"]),
        ("hbal --priority = l", ["low"]),
        ("hbal -O web2", ["web2.tst"]),
    ],
)
def test_commands_options_and_values_are_completed(bash, line, wanted):
    assert bash(line) == wanted


def test_names_are_never_evaluated_and_only_plain_words_offered(bash, tmp_path):
    mark = tmp_path / "evaluated"
    names = (
        f"x$(touch {mark})",
        f"x`touch {mark}`",
        "x;reboot",
        "x y",
        "x*",
        "x-1.tst",
    )
    program = tmp_path / "gnt-group"
    program.write_text("#!/bin/sh\ncat <<'EOF'\n" + "\n".join(names) + "\nEOF\n")
    program.chmod(0o755)
    before = f"PATH={tmp_path}:$PATH"
    for line in ("gnt-group info x", "gnt-group info ", "gnt-node add -g x"):
        assert bash(line, before) == ["x-1.tst"]
    assert bash("hbal -G x", before) == ["x-1.tst"]
    assert not mark.exists()


def test_fish_knows_each_option_of_each_program():
    lines = script("fish").splitlines()
    for name, keys in option_table.PROGRAMS.items():
        rows = [row for row in lines if row.startswith(f"complete -c {name} ")]
        given = {word for row in rows for word in row.split()}
        for option in option_table.options_of(keys.split()):
            assert {word.lstrip("-") for word in option.names} <= given
    words = "complete -c gnt-instance -f -n '__fish_seen_subcommand_from startup start'"
    assert (
        f"{words} -a '(gnt-instance list --no-headers -o name 2> /dev/null)'" in lines
    )
    assert any(
        row.startswith(f"{words} -s B -l backend-parameters -x") for row in lines
    )


def test_fish_reads_its_script():
    subprocess.run(["fish", "-n"], input=script("fish"), text=True, check=True)


# The completion script in zsh, which reads it through bashcompinit.

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
    script.write_text(completion.bash([commands.program("gnt-instance")], {}))
    listed = tmp_path / "gnt-instance"
    listed.write_text(
        "#!/bin/sh\nprintf '%s\\n' web1.tst web2.tst 'web$(touch mark)' 'web;x'\n"
    )
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
        ("gnt-instance startup -B memory=1,vc\t", "memory=1,vcpus="),
        ("gnt-instance reboot --type=so\t", "--type=soft"),
        # Names that a shell would evaluate are left out.
        ("gnt-instance info web\t", r"web1\.tst\s+web2\.tst\s"),
    ],
)
def test_tab_completes_commands_options_and_names(shell, tmp_path, typed, wanted):
    shell.send(typed)
    assert "web;x" not in shell.wait_for(wanted)
    assert not (tmp_path / "mark").exists()
