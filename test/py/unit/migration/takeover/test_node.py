"""One step on one node: the daemons of the other Ganeti that have to come back."""

import os
import pathlib

import pytest

from fakes.processes import process_named
from ganeti.base import daemon_users, errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.migration.takeover import node, services

NAME = "node1.example.com"


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "_APPEAR_S", 0.0)
    made = Paths(root=str(tmp_path / "node1"), hostname=NAME)
    for path in (made.run_dir, made.lock_dir, made.data("")):
        os.makedirs(path, exist_ok=True)
    pathlib.Path(made.data("ssconf_master_candidates")).write_text(f"{NAME}\n")
    return made


@pytest.fixture
def stopped(paths, tmp_path):
    """A node where a daemon ran before all were stopped."""
    with process_named("/usr/sbin/ganeti-confd") as child:
        pid_file = paths.pid_file("ganeti-confd")
        pathlib.Path(pid_file).write_text(f"{child.pid}\n")
        step(paths, tmp_path, "stop", f"rm -f {pid_file}")
    # Again after an interruption, when nothing runs any more.
    step(paths, tmp_path, "stop", "exit 0")


def step(paths, tmp_path, name, program):
    path = tmp_path / "daemon-util"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    message = {"step": name, "daemon_util": str(path)}
    return node.run_step(paths, SystemRunner(), message)


def test_a_daemon_that_ran_before_must_run_again(paths, tmp_path, stopped) -> None:
    with pytest.raises(errors.OpExecError, match="ganeti-confd does not run"):
        step(paths, tmp_path, "start-old", "exit 0")
    with process_named("/usr/sbin/ganeti-confd") as child:
        start = f"echo {child.pid} > {paths.pid_file('ganeti-confd')}; exit 2"
        report = step(paths, tmp_path, "start-old", start)
    assert report.running == ("ganeti-confd",)


def test_a_node_that_is_no_candidate_any_more_needs_no_confd(
    paths, tmp_path, stopped
) -> None:
    other = "node2.example.com\n"
    pathlib.Path(paths.data("ssconf_master_candidates")).write_text(other)
    assert step(paths, tmp_path, "start-old", "exit 0").running == ()


def test_a_daemon_that_could_not_have_its_user_is_a_problem(
    paths, tmp_path, monkeypatch
) -> None:
    no_user = {"ganeti-confd": "no user gnt-confd"}
    monkeypatch.setattr(
        daemon_users, "obstacle", lambda name, _paths: no_user.get(name, "")
    )
    monkeypatch.setattr(node.Services, "has", lambda _self, _name: True)
    problem = (
        "ganeti-confd would not start: no user gnt-confd; or let it run as root, with"
        ' CONFD_ARGS="--allow-root" in /etc/default/ganeti'
    )
    assert problem in step(paths, tmp_path, "look", "exit 0").problems
    defaults = pathlib.Path(paths.at("/etc/default/ganeti"))
    defaults.parent.mkdir(parents=True)
    defaults.write_text('CONFD_ARGS="-b 192.0.2.1 --allow-root"\n')
    assert problem not in step(paths, tmp_path, "look", "exit 0").problems
    monkeypatch.setattr(node.Services, "has", lambda _self, _name: False)
    defaults.unlink()
    assert problem not in step(paths, tmp_path, "look", "exit 0").problems
