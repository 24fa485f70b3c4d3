"""The check of units and cron: by a real shell, with a stand-in for systemctl."""

import subprocess

import pytest

from fakes.processes import FakeRunner
from ganeti.bootstrap import service_checks
from ganeti.pathutils import Paths

REAL = Paths(hostname="node1.example.com")
UNITS = (
    "ganeti.target",
    "ganeti-noded.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
)


def answers(cron="", **states):
    default = states.pop("default", "enabled")
    by_name = {
        name.replace("__", ".").replace("_", "-"): s for name, s in states.items()
    }
    lines = "".join(f"{unit} {by_name.get(unit, default)}\n" for unit in UNITS)
    return FakeRunner(sh=(0, f"{cron}{lines}", ""))


def test_enabled_units_and_cron_need_no_warning():
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


def test_a_missing_cron_file_is_named_with_the_machine():
    runner = answers(cron="cron-file missing\n")
    (line,) = service_checks.warnings(REAL, runner, host="node2.example.com")
    assert "on node2.example.com: /etc/cron.d/ganeti is missing" in line


def test_output_of_something_else_is_ignored():
    runner = FakeRunner(sh=(0, "evil.service enabled\nnonsense\n\n", ""))
    assert service_checks.warnings(REAL, runner) == []


def test_virtual_nodes_are_not_checked(tmp_path):
    runner = answers(cron="cron-file missing\n")
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    assert service_checks.warnings(paths, runner) == []
    assert runner.commands == []


def test_the_script_asks_systemctl_where_systemd_runs(tmp_path):
    (tmp_path / "systemctl").write_text(
        '#!/bin/sh\n[ "$1" = is-enabled ] && echo disabled; exit 1\n'
    )
    (tmp_path / "systemctl").chmod(0o755)
    (tmp_path / "running").mkdir()
    script = service_checks._SCRIPT
    for place, expected in (
        ("running", {f"{u} disabled" for u in UNITS}),
        ("no", set()),
    ):
        here = script.replace("/run/systemd/system", str(tmp_path / place))
        here = here.replace("/etc/cron.d/ganeti", str(tmp_path))
        done = subprocess.run(
            ["sh", "-c", here],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert set(done.stdout.splitlines()) == expected
