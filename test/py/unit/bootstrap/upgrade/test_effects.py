"""Requests of an upgrade to the master daemon, and steps as processes of a release."""

import os
import types

import pytest

from fakes.luxi_master import Connection
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.upgrade import access, steps
from ganeti.protocols import luxi


@pytest.fixture
def connection(monkeypatch):
    made = Connection()
    monkeypatch.setattr(luxi.Client, "of_node", classmethod(lambda _cls, _paths: made))
    return made


@pytest.fixture
def master(connection):
    return steps.Master(Paths("/v/n1", "n1"))


@pytest.mark.parametrize("is_drained", [True, False])
def test_the_queue_is_drained_and_opened(connection, master, is_drained):
    master.set_drain(is_drained)
    assert connection.master.calls == [("SetDrainFlag", [is_drained])]


@pytest.mark.parametrize("until", [1_700_000_600.0, None])
def test_the_watchers_are_paused_until_a_time(connection, master, until):
    master.set_pause(until)
    assert connection.master.calls == [("SetWatcherPause", [until])]


def test_jobs_that_have_not_ended_are_open(connection, master):
    states = ["success", "running", "error", "queued", "canceled", "waiting"]
    connection.master.objects["job"] = [
        {"id": 20 - number, "status": status} for number, status in enumerate(states)
    ]
    connection.call = lambda method, args: (
        connection.master.calls.append((method, args))
        or [[row["id"], row["status"]] for row in connection.master.objects["job"]]
    )
    assert master.open_jobs() == [15, 17, 19]
    assert connection.master.calls == [("QueryJobs", [None, ["id", "status"]])]


def test_files_are_distributed_although_the_queue_is_drained(connection, master):
    lines = []
    connection.master.messages["OP_CLUSTER_REDIST_CONF"] = ["sending"]
    master.redistribute(lines.append)
    ((method, ((op,),)),) = connection.master.calls
    assert method == "SubmitJobToDrainedQueue"
    assert op["OP_ID"] == "OP_CLUSTER_REDIST_CONF"
    assert lines == ["sending"]


def test_the_cluster_is_verified(connection, master):
    connection.master.results["OP_CLUSTER_VERIFY"] = {"jobs": []}
    assert master.verify(print) is True
    connection.master.results["OP_CLUSTER_VERIFY"] = {"jobs": [[False, "refused"]]}
    with pytest.raises(errors.OpExecError, match="cannot be verified: refused"):
        master.verify(print)


NEW = "3.1.2"


@pytest.fixture
def place(tmp_path):
    """A machine with one release, and a runner of its programs."""
    layout = releases.Layout("/versions", "/sbin", "/bin", str(tmp_path))
    paths = Paths(str(tmp_path / "n1.tst"), "n1.tst")
    runner = FakeRunner()
    made = types.SimpleNamespace(layout=layout, runner=runner, root=tmp_path)
    made.node = access.ThisNode(paths, runner, layout)
    return made


def install(place, version):
    os.makedirs(f"{place.root}{place.layout.directory(version)}/tools")


def program():
    return access.node_module.PLACE.rpartition("/")[2].replace("-", "_")


def test_a_release_that_is_missing_is_not_run(place):
    install(place, "3.1.1")
    with pytest.raises(errors.OpPrereqError) as caught:
        place.node.run(NEW, "stop")
    assert "n1.tst" in str(caught.value)
    assert NEW in str(caught.value)
    assert place.runner.commands == []


def test_a_step_is_a_process_of_the_release(place, monkeypatch):
    install(place, NEW)
    monkeypatch.setattr(access.releases, "installed", lambda _layout: [NEW])
    answer = f'{{"release": "{NEW}", "in_use": "3.1.1", "store": 4}}'
    place.runner.answers[program().replace("_", "-")] = (0, answer, "")
    report = place.node.run(NEW, "convert", 4)
    assert (report.release, report.in_use, report.store) == (NEW, "3.1.1", 4)
    ((argv, options),) = place.runner.commands
    assert argv == (place.layout.program(NEW, access.node_module.PLACE),)
    assert options["timeout_s"] == 400.0
    assert options["stdin"] == access._message("convert", 4)
    assert options["env"] == access.environment(place.node._paths)
