"""Virtual clusters for tests: real daemons on loopback addresses.

`vcluster` is one small cluster for a whole session: leave it as you find it.
`machines` makes machines that are in no cluster, for tests that make one.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from ganeti import luxi
from ganeti.process import SystemRunner
from ganeti.tools.vcluster import layout as lay
from ganeti.tools.vcluster.nodes import NodeControl

TOP = pathlib.Path(__file__).resolve().parents[3]
BIN = TOP / "build" / "bin"


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

    def luxi(self, node="node1"):
        """Return a client of the master daemon."""
        return luxi.Client.of_node(self.paths(node))

    def command(self, *words):
        """Run ``vcluster WORDS``, which must succeed."""
        done = vcluster_command(self.directory, *words)
        assert done.returncode == 0, done.stdout + done.stderr

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
        timeout=120,
    )


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
        done = vcluster_command(
            directory, "up", "-n", str(count), "--machines-only", *words
        )
        assert done.returncode == 0, done.stderr
        return VirtualCluster(directory)

    yield make
    vcluster_command(directory, "down")


@pytest.fixture(scope="module")
def cluster_of(new_directory):
    """Make a cluster of N nodes for one module: ``cluster_of(2)``."""

    def make(count, hypervisors="fake"):
        directory = new_directory()
        done = vcluster_command(
            directory, "up", "-n", str(count), "--hypervisors", hypervisors
        )
        assert done.returncode == 0, done.stderr
        return VirtualCluster(directory)

    return make


@pytest.fixture(scope="session")
def vcluster(new_directory):
    """Three nodes with the fake hypervisor; shared by all tests of the session."""
    directory = new_directory()
    done = vcluster_command(directory, "up", "-n", "3", "--hypervisors", "fake")
    assert done.returncode == 0, done.stderr
    yield VirtualCluster(directory)
    if os.environ.get("KEEP_VCLUSTER"):
        return
    vcluster_command(directory, "down")


@pytest.fixture(scope="session")
def bare(new_directory):
    """One machine in no cluster, for requests that change nothing."""
    directory = new_directory()
    done = vcluster_command(directory, "up", "-n", "1", "--machines-only")
    assert done.returncode == 0, done.stderr
    yield VirtualCluster(directory)
    vcluster_command(directory, "down")
