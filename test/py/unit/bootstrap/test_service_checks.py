"""The check of units and cron: by a real shell, with a stand-in for systemctl."""

import subprocess

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import service_checks

REAL = Paths(hostname="node1.example.com")
UNITS = (
    "ganeti.target",
    "ganeti.service",
    "ganeti-noded.service",
    "ganeti-confd.service",
    "ganeti-mond.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
    "ganeti-rapi.service",
)
CRON, LOGROTATE = "/etc/cron.d/ganeti", "/etc/logrotate.d/ganeti"
END = "end of the check"


def answers(missing="", code=0, end=END, **states):
    default = states.pop("default", "enabled")
    by_name = {
        name.replace("__", ".").replace("_", "-"): s for name, s in states.items()
    }
    lines = "".join(f"{unit} {by_name.get(unit, default)}\n" for unit in UNITS)
    lost = f"{missing} missing\n" if missing else ""
    return FakeRunner(sh=(code, f"{lost}{lines}{end}\n", ""))


def test_enabled_units_and_present_files_need_no_warning():
    assert service_checks.warnings(REAL, answers()) == []


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("disabled", "disabled"),
        ("masked", "masked"),
        ("", "not installed"),
        ("not-found", "not installed"),
        ("\x1b[31mred", "not installed"),
    ],
)
def test_units_that_do_not_start_are_named(state, shown):
    (line,) = service_checks.warnings(REAL, answers(ganeti_noded__service=state))
    assert f": ganeti-noded.service is {shown}; run there: systemctl" in line
    assert "on this machine" in line


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_counts(unit):
    state = {unit.replace(".", "__").replace("-", "_"): "disabled"}
    (line,) = service_checks.warnings(REAL, answers(**state))
    assert f": {unit} is disabled; run there" in line


@pytest.mark.parametrize(
    ("path", "effect", "example"),
    [
        (CRON, "cron does not restart daemons", "ganeti.cron"),
        (LOGROTATE, "logrotate does not rotate the logs", "ganeti.logrotate"),
    ],
)
def test_a_missing_file_is_named_with_the_machine(path, effect, example):
    runner = answers(missing=path)
    (line,) = service_checks.warnings(REAL, runner, host="node2.example.com")
    assert effect in line
    assert f"on node2.example.com: {path} is missing; copy" in line
    assert line.endswith(f"/examples/{example} there")


def test_output_of_something_else_is_ignored():
    lines = f"evil.service enabled\nnonsense\n\n/etc/passwd missing\n{END}\n"
    assert service_checks.warnings(REAL, FakeRunner(sh=(0, lines, ""))) == []


class NoShell:
    """A machine on which no program starts."""

    def run(self, argv, **_options):
        raise errors.CommandError(f"{argv[0]}: not found")


@pytest.mark.parametrize(
    ("shell", "reason"),
    [
        (NoShell(), "sh: not found"),
        (answers(code=1), "the check exited with code 1"),
        (answers(end=""), "the check printed no end"),
    ],
)
def test_a_check_that_could_not_look_is_reported(shell, reason):
    (line,) = service_checks.warnings(REAL, shell, host="node2.example.com")
    assert line.startswith("Warning: it was not checked whether daemons start on node2")
    assert f"{CRON} and {LOGROTATE}: {reason};" in line


def test_virtual_nodes_are_not_checked(tmp_path):
    runner = answers(missing=CRON)
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    assert service_checks.warnings(paths, runner) == []
    assert runner.commands == []


SYSTEMCTL = '[ "$1" = is-enabled ] && echo disabled; exit 1'


@pytest.mark.parametrize(
    ("running", "systemctl", "present", "code", "expected"),
    [
        (True, SYSTEMCTL, True, 0, {f"{u} disabled" for u in UNITS} | {END}),
        (False, SYSTEMCTL, True, 0, {END}),
        (False, "", False, 0, {"CRON missing", "LOGROTATE missing", END}),
        (True, "", True, 1, set()),
    ],
)
def test_the_script_looks_at_units_and_files(
    tmp_path, running, systemctl, present, code, expected
):
    for name in ("CRON", "LOGROTATE") if present else ():
        (tmp_path / name).touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    if systemctl:
        (programs / "systemctl").write_text(f"#!/bin/sh\n{systemctl}\n")
        (programs / "systemctl").chmod(0o755)
    if running:
        (tmp_path / "running").mkdir()
    script = service_checks._SCRIPT.replace(
        "/run/systemd/system", str(tmp_path / "running")
    )
    script = script.replace(CRON, "CRON").replace(LOGROTATE, "LOGROTATE")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": str(programs)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, set(done.stdout.splitlines())) == (code, expected)
