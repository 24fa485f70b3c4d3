"""Daemons of the other Ganeti, cron and the units of systemd."""

import os
import pathlib

import pytest

from fakes.processes import process_named
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult, SystemRunner
from ganeti.migration.takeover import services


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "node1"), hostname="node1")
    os.makedirs(made.run_dir)
    os.makedirs(made.at("/etc/cron.d"))
    pathlib.Path(made.at(services.CRON)).write_text("old\n")
    return made


@pytest.fixture
def daemon(paths):
    """A process that looks like a daemon of the other Ganeti."""
    with process_named("/usr/sbin/ganeti-luxid") as child:
        pathlib.Path(paths.pid_file("ganeti-luxid")).write_text(f"{child.pid}\n")
        yield child


def util(tmp_path, text):
    path = tmp_path / "daemon-util"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_cron_is_set_aside_and_comes_back(paths, tmp_path) -> None:
    program = util(tmp_path, f'echo "$1" >> {tmp_path}/calls')
    for _ in range(2):  # again after an interruption
        services.stop_old(paths, SystemRunner(), program)
        assert os.listdir(paths.at("/etc/cron.d")) == ["ganeti.before-take-over"]
    assert (tmp_path / "calls").read_text() == "stop-all\nstop-all\n"
    for _ in range(2):
        services.restore_cron(paths)
        assert pathlib.Path(paths.at(services.CRON)).read_text() == "old\n"


def test_a_daemon_that_does_not_end_is_named(paths, tmp_path, daemon) -> None:
    assert services.running(paths) == ["ganeti-luxid"]
    with pytest.raises(errors.OpExecError, match="ganeti-luxid did not end"):
        services.stop_old(paths, SystemRunner(), util(tmp_path, "exit 0"))
    daemon.kill()
    daemon.wait()
    assert services.running(paths) == []
    services.stop_old(paths, SystemRunner(), util(tmp_path, "exit 0"))


def test_each_daemon_of_each_release_is_found(paths) -> None:
    """Those of Ganeti 2 and 3, some of which no longer exist."""
    wanted = ["noded", "confd", "wconfd", "luxid", "masterd", "rapi", "mond", "kvmd"]
    names = [f"ganeti-{name}" for name in (*wanted, "metad")]
    with process_named(" ".join(names)) as child:
        for name in names:
            pathlib.Path(paths.pid_file(name)).write_text(f"{child.pid}\n")
        assert services.running(paths) == names


def test_a_failing_daemon_util_is_named(paths, tmp_path) -> None:
    program = util(tmp_path, "echo no such thing; exit 3")
    with pytest.raises(
        errors.OpExecError, match=r"stop-all exited with code 3: no such"
    ):
        services.stop_old(paths, SystemRunner(), program)


def test_what_runs_decides_about_the_start_of_the_other_daemons(
    paths, tmp_path, daemon
) -> None:
    program = util(tmp_path, f'echo "$1" >> {tmp_path}/calls; exit 2')
    services.start_old(paths, SystemRunner(), program, ["ganeti-luxid", "ganeti-kvmd"])
    assert (tmp_path / "calls").read_text() == "start-all\n" * 3
    with pytest.raises(errors.OpExecError, match="start-all exited with code 2"):
        services.start_old(paths, SystemRunner(), program, [])


def test_a_start_that_an_earlier_one_has_disturbed_is_repeated(
    paths, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(services, "_APPEAR_S", 0.0)
    mark, pid_file = tmp_path / "mark", paths.pid_file("ganeti-noded")
    with process_named("/usr/sbin/ganeti-noded") as child:
        program = util(
            tmp_path,
            f"test -e {mark} || {{ touch {mark}; exit 2; }}\n"
            f"echo {child.pid} > {pid_file}",
        )
        services.start_old(paths, SystemRunner(), program, ["ganeti-noded"])
        assert services.running(paths) == ["ganeti-noded"]


def test_a_daemon_that_does_not_start_is_named(
    paths, tmp_path, monkeypatch, daemon
) -> None:
    monkeypatch.setattr(services, "_APPEAR_S", 0.0)
    program = util(tmp_path, "echo cannot bind; echo exit code 2")
    with pytest.raises(errors.OpExecError) as raised:
        services.start_old(
            paths, SystemRunner(), program, ["ganeti-noded", "ganeti-luxid"]
        )
    text = str(raised.value)
    assert text.startswith("ganeti-noded does not run, and ran before the take-over;")
    assert text.endswith("start-all exited with code 0: cannot bind exit code 2")


class Systemctl:
    """Records calls; systemd knows the units of Ganeti or not."""

    def __init__(self, *, knows):
        self.calls = []
        self._knows = knows

    def run(self, argv, **_options):
        self.calls.append(argv[1])
        code = 0 if self._knows or argv[1] != "cat" else 1
        return RunResult(tuple(argv), code, None, "", "")


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """Directories of systemd, and an installation with two units."""
    own = tmp_path / "prefix" / "lib" / "systemd" / "system"
    for directory in (own, tmp_path / "etc", tmp_path / "run"):
        directory.mkdir(parents=True)
    for name in ("ganeti.target", "ganeti-noded.service"):
        (own / name).write_text(f"[Unit]\nDescription={name}\n")
    monkeypatch.setattr(services, "_UNITS", str(tmp_path / "etc"))
    monkeypatch.setattr(services, "_SYSTEMD", str(tmp_path / "run"))
    monkeypatch.setattr(services._buildconf, "PREFIX", str(tmp_path / "prefix"))
    return tmp_path / "etc"


def test_our_units_take_precedence_and_can_be_removed(systemd) -> None:
    control = Systemctl(knows=True)
    for _ in range(2):
        names = services.install_units(Paths(), control)
        assert control.calls == ["cat", "daemon-reload"]
        control.calls.clear()
    assert (systemd / "ganeti.target").read_text().startswith("# Written by take-over")
    assert os.readlink(systemd / "ganeti-luxid.service") == "/dev/null"
    assert not (systemd / "ganeti-noded.service").is_symlink()
    services.remove_units(control, names)
    assert os.listdir(systemd) == []
    services.remove_units(control, [])
    assert control.calls == ["daemon-reload"]


def test_without_units_of_ganeti_systemd_is_left_alone(systemd) -> None:
    assert services.install_units(Paths(), Systemctl(knows=False)) == []
    assert os.listdir(systemd) == []
