"""Virtual clusters for tests: real daemons on loopback addresses.

`vcluster` is one small cluster for a whole session: leave it as you find it.
`machines` makes machines that are in no cluster, for tests that make one.

A test that fails shows the ends of the logs of the nodes that it was given. Where not
even the nodes come up, it says so and how; that is no failure of what is tested there.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

import pytest
from xdist.scheduler import LoadFileScheduling

from fakes import evidence
from fakes.patience import until
from fakes.vnode import VirtualNode
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols import luxi

TOP = pathlib.Path(__file__).resolve().parents[3]
#: Programs under test: of this tree, or of an installation (test/installed-check).
BIN = pathlib.Path(os.environ.get("GANETI_TEST_TOOLS") or TOP / "build" / "bin")
#: Seconds for one command of vcluster; making three nodes takes 5.
COMMAND_S = 240

#: Files that take longest, those first; workers beside each other then end together.
#: See the slowest tests that test/run prints at its end.
LONGEST = (
    "test_install_page.py",
    "test_stranger.py",
    "test_life.py",
    "test_commit_rule.py",
    "test_peers.py",
    "test_maintd.py",
    "test_oob.py",
    "test_hypervisors.py",
    "test_verify.py",
    "test_etcd.py",
    "test_cut_operations.py",
    "test_drills.py",
    "test_take_over.py",
    "test_harep.py",
    "test_vcluster.py",
    "test_failover_migrating.py",
    "test_renewal_crash.py",
    "test_watcher.py",
    "test_renew_crypto.py",
    "test_node_certificates.py",
    "test_walkthrough.py",
    "test_hooks.py",
    "test_oob_redfish.py",
    "test_oob_ssh.py",
    "test_own_users.py",
    "test_stray_address.py",
    "test_authority_renewal.py",
    "test_transcripts.py",
)


#: Files that one worker gets, since all of them use the cluster of the session.
SHARING = (
    {
        *("test_stranger.py", "test_json.py", "test_plans.py", "test_reasons.py"),
        "test_secrets.py",
    },
    {
        *("test_life.py", "test_job_queue.py"),
        *("test_external_storage.py", "test_placement_inputs.py"),
        *("test_master_failover.py", "test_networks.py"),
    },
)


def pytest_collection_modifyitems(items):
    """Begin with the longest files, each in its order."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each file to one worker, and those that share a cluster to the same one."""
    return SharingScheduling(config, log)


class SharingScheduling(LoadFileScheduling):
    """Groups of files that one worker gets."""

    def _split_scope(self, nodeid):
        path = super()._split_scope(nodeid)
        name = path.rpartition("/")[2]
        return next(
            (str(place) for place, names in enumerate(SHARING) if name in names), path
        )


class NotUpError(Exception):
    """The nodes that a test needs did not come up; all who need them get it."""

    is_reported = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, NotUpError):
            # The place in this file where it was noticed helps nobody.
            why = "see the first such error" if error.is_reported else error
            report.longrepr = f"no nodes for this test: {why}"
            error.is_reported = True
        else:
            logs = "".join(map(_logs_of, getattr(item, "funcargs", {}).values()))
            if logs:
                report.sections.append(("Ends of the nodes' logs", logs))
    return report


def _logs_of(value):
    """Return the logs of nodes, if the value of a fixture is something with nodes."""
    if isinstance(value, VirtualCluster):
        return evidence.of_cluster(value.directory)
    if isinstance(value, VirtualNode):
        return evidence.of_node(value.root)
    if isinstance(value, dict):
        return "".join(map(_logs_of, value.values()))
    if isinstance(value, str) and lay.Layout.exists(value):
        return evidence.of_cluster(value)
    return ""


class VirtualCluster:
    """A virtual cluster as tests use it."""

    def __init__(self, directory):
        self.directory = directory
        self.layout = lay.Layout.load(directory)
        self.control = NodeControl(self.layout, SystemRunner())

    @property
    def master(self):
        return self.layout.master_node

    def node(self, name):
        return self.layout.node(name)

    def paths(self, name="node1"):
        """Return the places of a node."""
        return self.layout.paths(self.node(name))

    def run(self, *argv, node="node1", timeout_s=120.0):
        """Run a command on a node; returns a RunResult."""
        return self.control.run(self.node(node), list(argv), timeout_s=timeout_s)

    def check(self, *argv, node="node1", timeout_s=120.0):
        """Run a command that must succeed, and return its output."""
        result = self.run(*argv, node=node, timeout_s=timeout_s)
        assert not result.failed, f"{argv} {result.reason}: {result.output}"
        return result.stdout

    def processes(self, node="node1"):
        """Return the processes of a node, without forks that begin another program."""
        running = self.control.processes_on(self.node(node))
        arguments = {process.pid: process.arguments for process in running}
        return [p for p in running if p.arguments != arguments.get(p.parent)]

    def luxi(self, node="node1"):
        """Return a client of the master daemon."""
        return luxi.Client.of_node(self.paths(node))

    def command(self, *words):
        """Do what ``vcluster WORDS`` does, which must succeed.

        What acts on the processes of simple nodes is done here: to load the program takes
        longer than most of it.
        """
        act = getattr(self, f"_{words[0]}", None)
        if act is not None and not self.layout.isolated:
            act(self.node(words[1]), *words[2:])
            return
        done = vcluster_command(self.directory, *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def _kill(self, node, daemon=None):
        self.control.kill(node, daemon)

    def _start(self, node, daemon=None):
        if daemon is None:
            self.control.power_on(node)
        else:
            self.control.start_daemon(node, daemon)

    def _pause(self, node):
        self.control.pause(node)

    def _resume(self, node):
        self.control.resume(node)

    def wait_until_clean(self, node="node1"):
        """Wait until ``gnt-cluster verify`` has nothing to say.

        A node that was away gets what it missed as soon as the master sees it.
        """
        outputs = []

        def is_clean():
            result = self.run("gnt-cluster", "verify", node=node)
            outputs.append(result.output)
            return not result.failed and "ERROR" not in result.output

        try:
            until("gnt-cluster verify is clean", is_clean)
        except AssertionError as err:
            raise AssertionError(f"{err}, at last:\n{outputs[-1]}") from None

    def file(self, path, node="node1"):
        """Return where a node's file is, as a pathlib path."""
        return pathlib.Path(self.layout.host_path(self.node(node), path))


def vcluster_command(directory, *words):
    """Run the vcluster program; returns a completed process."""
    return subprocess.run(
        [BIN / "vcluster", "-C", directory, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )


def bring_up(directory, *words):
    """Bring up nodes, or say as clearly as can be why there are none."""
    try:
        done = vcluster_command(directory, "up", "--keep-failed", *words)
        text = f"ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    except subprocess.TimeoutExpired as err:
        done, text = None, f"was not done within {err.timeout} s"
    if done is not None and done.returncode == 0:
        return VirtualCluster(directory)
    logs = evidence.of_cluster(directory)
    vcluster_command(directory, "down")
    raise NotUpError(f"vcluster up {' '.join(words)} {text}\n{logs}")


@pytest.fixture
def command():
    """The vcluster program, as a function of directory and words."""
    return vcluster_command


@pytest.fixture(scope="session")
def new_directory():
    # Unix sockets have short paths; pytest's own directories are long.
    made = []

    def make():
        made.append(tempfile.mkdtemp(prefix="gv-", dir="/tmp"))
        return made[-1]

    yield make
    for directory in made:
        vcluster_command(directory, "down")
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def directory(new_directory):
    """An empty directory; what runs in it is ended after the test session."""
    return new_directory()


@pytest.fixture
def machines(directory):
    """Make N machines that are in no cluster: ``machines(2)``."""

    def make(count, *words):
        return bring_up(directory, "-n", str(count), "--machines-only", *words)

    yield make
    vcluster_command(directory, "down")


@pytest.fixture(scope="module")
def brought_up(new_directory):
    """Bring up nodes for one module, with the words of ``vcluster up``."""
    made = []

    def make(*words):
        made.append(new_directory())
        return bring_up(made[-1], *words)

    yield make
    for directory in made:
        vcluster_command(directory, "down")


@pytest.fixture(scope="module")
def cluster_of(brought_up):
    """Make a cluster of N nodes for one module: ``cluster_of(2)``."""

    def make(count, hypervisors="fake", *words):
        return brought_up("-n", str(count), "--hypervisors", hypervisors, *words)

    return make


@pytest.fixture(scope="module")
def two_candidates(cluster_of):
    """Three nodes, of which node3 is not a master candidate."""
    made = cluster_of(3)
    made.check("gnt-cluster", "modify", "-C", "2")
    made.check("gnt-node", "modify", "-C", "no", made.node("node3").name)
    made.wait_until_clean()
    return made


@pytest.fixture(scope="session")
def vcluster(new_directory):
    """Three nodes with the fake hypervisor; shared by all tests of the session."""
    directory = new_directory()
    yield bring_up(directory, "-n", "3", "--hypervisors", "fake")
    if os.environ.get("KEEP_VCLUSTER"):
        return
    vcluster_command(directory, "down")


@pytest.fixture(scope="session")
def bare(new_directory):
    """One machine in no cluster, for requests that change nothing."""
    directory = new_directory()
    yield bring_up(directory, "-n", "1", "--machines-only")
    vcluster_command(directory, "down")


@pytest.fixture
def helper(cluster):
    """Return a function that replaces the out-of-band helper by a script.

    In the script, ``$real`` is the helper that it replaces.
    """
    real = pathlib.Path(cluster.directory) / "power"
    path = pathlib.Path(cluster.directory) / "odd-power"

    def use(text):
        path.write_text(f"#!/bin/sh\nreal={shlex.quote(str(real))}\n{text}\n")
        path.chmod(0o755)
        modify(path)

    def modify(program):
        cluster.check(
            "gnt-cluster", "modify", f"--node-parameters=oob_program={program}"
        )

    yield use
    modify(real)
