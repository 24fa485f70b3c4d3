"""A node for tests of the watcher: directories, ssconf, a master that is a fake."""

import os

import pytest

from fakes.clocks import FakeClock
from fakes.luxi_master import FakeMaster
from fakes.processes import FakeRunner
from ganeti.automation.watcher.effects import Settings, Watch
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols import ssconf

GROUP = "5e1c0b9a-0000-4000-8000-000000000001"
OTHER = "5e1c0b9a-0000-4000-8000-000000000002"


class Client:
    """A connection to a fake master; waiting for a job takes the clock's time."""

    path = "/fake"

    def __init__(self, master, clock):
        self.master = master
        self.clock = clock

    def call(self, method, args=()):
        if method == "WaitForJobChange" and args[2] is not None:
            self.clock.now += args[-1]
        return self.master.call(method, args)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


class Node:
    """A node, its master and the watcher on it.

    Attributes:
        installed: names of the daemons on the node.
    """

    def __init__(self, root):
        self.paths = Paths(root=str(root), hostname=root.name)
        dirs = (self.paths.data_dir, self.paths.run_dir, self.paths.lock_dir)
        for path in (*dirs, self.paths.log_dir, self.paths.conf_dir):
            os.makedirs(path, exist_ok=True)
        hosts = self.paths.at("/etc/hosts")
        with open(hosts, "w", encoding="utf-8") as stream:
            stream.write(f"127.0.0.1 {root.name}\n")
        self.clock = FakeClock()
        self.runner = FakeRunner(daemon_util=FakeRunner.DONE)
        self.master = FakeMaster()
        self.master.values["master_node"] = root.name
        self.master.cluster = {"tags": []}
        self.master.objects["group"] = [{"uuid": GROUP, "name": "default", "tags": []}]
        self.master.results["OP_INSTANCE_ACTIVATE_DISKS"] = []
        self.master.results["OP_GROUP_VERIFY_DISKS"] = ({}, [], {})
        self.installed = {"ganeti-noded", "ganeti-masterd"}
        self.ssconf(master_node=root.name, nodegroups=f"{GROUP} default")

    def ssconf(self, **values):
        ssconf.write(self.paths, values)

    def watch(self, **settings):
        node = self

        class LocalWatch(Watch):
            def is_installed(self, daemon):
                return daemon in node.installed

        return LocalWatch(
            settings=Settings(**settings),
            paths=self.paths,
            process=self.runner,
            clock=self.clock,
            connect=lambda: Client(self.master, self.clock),
        )

    def instances(self, **statuses):
        """Let the master report instances by name and status."""
        self.master.objects["instance"] = [
            {
                "name": name,
                "status": status,
                "admin_state": "up",
                "disks_active": True,
                "disk_template": "drbd",
                "snodes": ["n2"],
                "pnode": "n1",
                "tags": [],
                "be/always_failover": False,
                "forthcoming": False,
                "pnode.group.uuid": GROUP,
                "snodes.group.uuid": [GROUP],
            }
            for name, status in statuses.items()
        ]
        self.nodes(n1="a", n2="b")

    def nodes(self, **boots):
        self.master.objects["node"] = [
            {
                "name": name,
                "bootid": boot_id,
                "offline": False,
                "drained": False,
                "group.uuid": GROUP,
            }
            for name, boot_id in boots.items()
        ]

    def ops(self):
        """Return what was submitted: (opcode, instance) of each job."""
        return [
            (op.op_id(), getattr(op, "instance_name", None))
            for ops in self.master.jobs.values()
            for op in ops
        ]


@pytest.fixture
def node(tmp_path):
    root = tmp_path / "n1.tst"
    root.mkdir()
    return Node(root)


@pytest.fixture
def no_master():
    return errors.NoMasterError("/nowhere")
