"""Values that virtual clusters compute without any process."""

import os
import signal
import subprocess
import sys

import pytest

from fakes import patience
from ganeti import _buildconf
from ganeti.base import errors
from ganeti.devel.vcluster import agent, lifecycle, node_directories, processes
from ganeti.devel.vcluster import layout as lay
from ganeti.node.calls import power


def plan(directory, count=3, **more):
    settings = {"isolated": False, "network": "127.9", "bindir": "/opt/bin"} | more
    return lay.plan(str(directory), count=count, **settings)


def test_every_node_has_an_address_of_its_own(tmp_path):
    layout = plan(tmp_path, 600)
    addresses = {node.address for node in layout.nodes} | {layout.cluster_address}
    assert len(addresses) == 601
    for address in addresses:
        assert address.startswith("127.9.")
        assert all(0 <= int(part) <= 254 for part in address.split("."))


def test_a_root_ends_in_the_host_name(tmp_path):
    for node in plan(tmp_path).nodes:
        assert os.path.basename(node.root) == node.name


def test_nodes_are_found_by_short_and_full_names(tmp_path):
    layout = plan(tmp_path, prefix="box")
    assert layout.node("box2") is layout.node("box2.vc.test")
    with pytest.raises(
        errors.OpPrereqError, match=r"node9: .* its nodes are box1, box2"
    ):
        layout.node("node9")


@pytest.mark.parametrize("count", [0, -1, 1001])
def test_impossible_numbers_of_nodes_are_refused(tmp_path, count):
    with pytest.raises(errors.OpPrereqError, match="number of nodes"):
        plan(tmp_path, count)


def test_a_description_is_read_back_as_it_was(tmp_path):
    layout = plan(tmp_path)
    layout.save()
    assert lay.Layout.load(str(tmp_path)) == layout
    with pytest.raises(errors.OpPrereqError, match="no virtual cluster here"):
        lay.Layout.load(str(tmp_path / "none"))


def test_programs_of_a_simple_node_know_its_root_those_of_isolated_do_not(tmp_path):
    simple, isolated = plan(tmp_path), plan(tmp_path, isolated=True)
    node = simple.nodes[1]
    assert simple.environment(node)["GANETI_ROOTDIR"] == node.root
    assert "GANETI_ROOTDIR" not in isolated.environment(node)
    places = {_buildconf.SBINDIR, _buildconf.BINDIR}
    assert places < set(simple.environment(node)["PATH"].split(":"))
    assert simple.paths(node).root == node.root
    assert isolated.paths(node).root == ""
    assert (simple.ssh_port, isolated.ssh_port) == (2022, 22)


def test_sshd_listens_on_the_nodes_address_alone(tmp_path):
    layout = plan(tmp_path)
    text = node_directories.sshd_config(layout, layout.nodes[1])
    assert "ListenAddress 127.9.0.12\n" in text
    assert "PasswordAuthentication no\n" in text
    assert f"GANETI_ROOTDIR={layout.nodes[1].root} " in text


def test_isolated_nodes_serve_the_address_of_the_cluster_as_machines_do(tmp_path):
    for isolated in (False, True):
        layout = plan(tmp_path / str(isolated), isolated=isolated)
        node = layout.nodes[0]
        os.makedirs(layout.directory)
        node_directories.make_node(layout, node)
        with open(f"{node.root}/etc/default/ganeti") as stream:
            arguments = stream.read()
        sshd = node_directories.sshd_config(layout, node)
        assert (node.address in arguments, node.address in sshd) == (
            not isolated,
            not isolated,
        )
        assert "--allow-root" in arguments


def test_networks_are_tried_in_an_order_of_the_directory():
    first = lay.candidate_networks("/a", isolated=False)
    assert first == lay.candidate_networks("/a", isolated=False)
    assert len(set(first)) == 254
    assert all(item.startswith("127.") for item in first)
    assert lay.candidate_networks("/a", isolated=True)[0].startswith("10.")


def test_processes_are_found_by_environment_argument_or_parent(tmp_path):
    root = str(tmp_path / "node1")
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '60']);"
        " print('up', flush=True); p.wait()"
    )
    by_environment = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"GANETI_ROOTDIR": root, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    by_argument = subprocess.Popen(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)",
         f"-pidfile={root}/x"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    other = subprocess.Popen(["sleep", "60"], env={"GANETI_ROOTDIR": f"{root}0"})
    try:
        assert by_environment.stdout.readline() == by_argument.stdout.readline()
        # A child bears its parent's name and environment until the kernel has put
        # its own program in its place, and is nameless in between.
        actual = patience.until(
            "three processes, one of them sleep",
            lambda: (
                len(all_ := processes.of_root(root)) >= 3
                and "sleep" in [process.name for process in all_]
                and all_
            ),
        )
        pids = {process.pid for process in actual}
        assert {by_environment.pid, by_argument.pid} <= pids
        assert other.pid not in pids
        assert len(actual) == 3
        assert processes.kill_all(lambda: processes.of_root(root)) == 3
        assert other.poll() is None
    finally:
        for child in (by_environment, by_argument, other):
            child.kill()
            child.wait()
            if child.stdout:
                child.stdout.close()


def test_what_was_killed_is_gone():
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        child.stdout.readline()
        (process,) = [p for p in processes.all_processes() if p.pid == child.pid]
        processes.kill([process])
        assert child.poll() == -signal.SIGKILL
    # A process that ended by itself is passed over.
    processes.kill([process])


@pytest.fixture
def two_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setattr(lifecycle, "_is_used", lambda network, isolated: False)
    monkeypatch.setattr(
        lay, "candidate_networks", lambda directory, isolated: ["127.7", "127.8"]
    )


def test_a_network_is_claimed_before_the_layout_is_written(tmp_path, two_networks):
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    with lifecycle.exclusive(first, "up"):
        assert lifecycle.reserve_network(first, isolated=False) == "127.7"
        with lifecycle.exclusive(second, "up"):
            assert lifecycle.reserve_network(second, isolated=False) == "127.8"
    # The command ended without a cluster.
    assert lifecycle.reserve_network(second, isolated=False) == "127.7"


def test_a_node_daemon_on_all_addresses_is_named(tmp_path, two_networks, monkeypatch):
    monkeypatch.setattr(lifecycle, "_is_used", lambda network, isolated: True)
    with pytest.raises(errors.OpExecError, match=r"TCP port 1811 .* give --isolated"):
        lifecycle.reserve_network(str(tmp_path / "a"), isolated=False)


def test_the_end_of_all_networks_is_named(tmp_path, two_networks):
    first, second, third = (str(tmp_path / name) for name in "abc")
    with lifecycle.exclusive(first, "up"), lifecycle.exclusive(second, "up"):
        lifecycle.reserve_network(first, isolated=False)
        lifecycle.reserve_network(second, isolated=False)
        with pytest.raises(errors.OpExecError, match="all address blocks"):
            lifecycle.reserve_network(third, isolated=False)


def test_a_claimed_network_is_given_to_nobody_else(tmp_path, two_networks):
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    for directory in (first, second):
        os.mkdir(directory)
    layout = plan(first, network=lifecycle.reserve_network(first, isolated=False))
    layout.save()
    assert layout.network == "127.7"
    assert lifecycle.reserve_network(second, isolated=False) == "127.8"
    assert lifecycle.reserve_network(first, isolated=False) == "127.7"
    lifecycle.release_network(layout)
    os.unlink(os.path.join(first, lay.STATE_FILE))
    assert lifecycle.reserve_network(second, isolated=False) == "127.7"


def test_agent_and_node_daemon_agree_on_the_reset_request():
    assert agent.RESET_REQUEST == power.REQUEST_NAME
