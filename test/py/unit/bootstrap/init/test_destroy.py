"""Destruction of a cluster: the order of the steps, and failures that do not stop it."""

import os

import pytest

from fakes.processes import FakeRunner
from fakes.rpc import FakeRunner as FakeNodes
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.bootstrap.init import initialise
from ganeti.master import address_removal as cluster_address
from ganeti.model.objects import Snapshot
from ganeti.protocols import rpc, ssconf
from ganeti.store import choice

NODE = "n1.example.com"


class Machine:
    """The last node of a cluster; ``steps`` has what is done there, in order."""

    def __init__(self, folder, monkeypatch):
        self.paths = Paths(str(folder / "n1"), NODE)
        os.makedirs(self.paths.data_dir)
        ssconf.write(self.paths, {"node_primary_ips": f"{NODE} 192.0.2.1\n"})
        with open(self.paths.store_db, "w") as out:
            out.write("x")
        self.steps, self.targets, self.lines = [], [], []
        self.process = FakeRunner(daemon_util=self._daemon_util)
        self.codes = {}
        self.nodes = FakeNodes(
            Snapshot,
            {"node_leave_cluster": self._leave, "node_deactivate_master_ip": None},
        )
        self.leaving = None
        monkeypatch.setattr(rpc, "StaticRunner", self._runner)
        monkeypatch.setattr(rpc, "node_port", lambda: 1999)

    def _daemon_util(self, argv):
        self.steps.append(" ".join(argv[1:]))
        return (self.codes.get(argv[1], 0), "", "it hangs")

    def _runner(self, targets, paths):
        assert paths == self.paths
        self.targets += targets
        return self.nodes

    def _leave(self, _node, _args):
        self.steps.append("leave")
        assert os.path.exists(self.paths.store_db)
        return self.leaving

    def destroy(self):
        initialise.finalize_destroy(
            self.paths, self.process, feedback=self.lines.append
        )


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def test_the_files_go_last(machine):
    machine.destroy()
    assert machine.steps == ["stop-master", "leave", "stop-all"]
    assert not os.path.exists(machine.paths.store_db)
    assert machine.targets == [rpc.Target(NODE, NODE, "192.0.2.1", 1811)]
    assert machine.nodes.called("node_leave_cluster") == [(NODE, (True,))]
    assert machine.lines == []


def test_a_master_that_does_not_stop_keeps_the_cluster(machine):
    machine.codes["stop-master"] = 1
    with pytest.raises(errors.OpExecError, match=r"stop-master .*it hangs"):
        machine.destroy()
    assert machine.steps == ["stop-master"]
    assert os.path.exists(machine.paths.store_db)


def test_later_failures_are_warnings(machine):
    machine.codes["stop-all"] = 1
    machine.leaving = failure("no space")
    machine.destroy()
    first, second = machine.lines
    assert first == (
        f"Warning: cannot leave the cluster cleanly: node {NODE}: no space"
    )
    assert second.startswith(f"Warning: node {NODE}: daemon-util stop-all ")
    assert not os.path.exists(machine.paths.store_db)


def test_a_node_without_ssconf_files_is_cleaned_up_without_its_daemon(machine):
    ssconf.write(machine.paths, {"node_primary_ips": "other 192.0.2.2\n"})
    machine.destroy()
    assert machine.steps == ["stop-master", "stop-all"]
    assert not os.path.exists(machine.paths.store_db)


@pytest.mark.parametrize("problem", [None, errors.StorageError("no etcd")])
def test_a_store_in_etcd_is_removed_after_its_writers_have_ended(
    machine, monkeypatch, problem
):
    servers = object()

    def remove(which):
        assert which is servers
        machine.steps.append("remove the store")
        if problem:
            raise problem

    monkeypatch.setattr(choice, "read", lambda paths: servers)
    monkeypatch.setattr(initialise, "remove_store", remove)
    machine.destroy()
    assert machine.steps == [
        "stop ganeti-standby",
        "stop-master",
        "remove the store",
        "leave",
        "stop-all",
    ]
    assert machine.lines == (["Warning: no etcd"] if problem else [])


def test_the_steps_are_listed_in_the_order_of_their_execution(machine, monkeypatch):
    steps = initialise.destruction_steps(machine.paths)
    assert [step.split()[0] for step in steps] == ["stop", "let", "stop", "remove"]
    assert steps[-1].endswith("the configuration last")
    assert machine.paths.data_dir in steps[-1]
    monkeypatch.setattr(choice, "is_etcd", lambda paths: True)
    assert (
        initialise.destruction_steps(machine.paths)[1] == "remove the store from etcd"
    )


def test_the_address_of_the_cluster_is_removed_without_a_term(machine):
    answer = cluster_address.drop(
        machine.paths, "192.0.2.7", {"ip": "192.0.2.100"}, is_external=True
    )
    assert not answer.failed
    assert machine.targets == [rpc.Target(NODE, NODE, "192.0.2.7", 1999)]
    wanted = [(NODE, ({"ip": "192.0.2.100"}, True))]
    assert machine.nodes.called("node_deactivate_master_ip") == wanted
    assert machine.nodes.limits == {"node_deactivate_master_ip": {20.0}}
    cluster_address.drop(
        machine.paths, "192.0.2.7", {}, is_external=False, timeout_s=3.0
    )
    assert machine.nodes.limits == {"node_deactivate_master_ip": {20.0, 3.0}}
