"""Start and stop of daemons: commands, time limits, errors."""

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV, Paths
from ganeti.node.services import Services, environment

PATHS = Paths(hostname="n1.example.com")


@pytest.mark.parametrize(
    ("method", "args", "line"),
    [
        ("start", ("ganeti-noded", "-d"), "daemon-util start ganeti-noded -d"),
        ("stop", ("ganeti-standby",), "daemon-util stop ganeti-standby"),
        ("stop_master", (), "daemon-util stop-master"),
        ("start_all", (), "daemon-util start-all"),
        ("stop_all", (), "daemon-util stop-all"),
        ("reload_sshd", (), "daemon-util reload-ssh-keys"),
    ],
)
def test_each_step_is_one_command_with_a_time_limit(method, args, line):
    process = FakeRunner(daemon_util=(0, "", ""))
    getattr(Services(PATHS, process), method)(*args)
    assert process.lines == [line]
    assert process.commands[0][1]["timeout_s"] == 90
    assert process.commands[0][1]["env"] == environment(PATHS)


def test_a_master_that_starts_has_time_for_elections():
    process = FakeRunner(daemon_util=(0, "", ""))
    services = Services(PATHS, process)
    services.start_master()
    services.start_master("--no-voting", "--yes-do-it")
    assert process.lines == ["daemon-util start-master"] * 2
    plain, extra = (options for _argv, options in process.commands)
    assert plain["timeout_s"] == 300
    assert plain["env"] == environment(PATHS)
    words = {"EXTRA_MASTERD_ARGS": "--no-voting --yes-do-it"}
    assert extra["env"] == environment(PATHS) | words


def test_a_failure_names_node_command_and_output():
    process = FakeRunner(daemon_util=(3, "", "no certificate\n"))
    with pytest.raises(
        errors.OpExecError,
        match=r"node n1.example.com: daemon-util stop-all exited with code 3: no cert",
    ):
        Services(PATHS, process).stop_all()


def test_programs_of_virtual_nodes_know_their_node(tmp_path):
    actual = environment(Paths(str(tmp_path), "n2"))
    assert actual[ROOTDIR_ENV] == str(tmp_path)
    assert actual[HOSTNAME_ENV] == "n2"
    assert set(environment(PATHS)) == {"PATH", "LC_ALL"}


def test_a_daemon_is_there_if_it_is_installed_and_not_disabled(tmp_path):
    paths = Paths(str(tmp_path), "n2")
    services = Services(paths, FakeRunner())
    assert not services.has("ganeti-nosuchd")
    defaults = tmp_path / "etc/default"
    defaults.mkdir(parents=True)
    assert services.has("ganeti-mond")
    (defaults / "ganeti").write_text("DISABLED_DAEMONS=ganeti-mond\n")
    assert not services.has("ganeti-mond")
