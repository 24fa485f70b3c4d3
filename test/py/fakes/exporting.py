"""A cluster with one instance, and nodes on which its exports succeed."""

import copy

import msgspec

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.model import objects
from ganeti.model.objects import export_info
from ganeti.model.objects.filled import InstanceX
from ganeti.protocols.rpc import encode

NODE1, NODE2, NODE3 = (clusters.node_uuid(n) for n in (1, 2, 3))
DONE = {"exit_status": 0, "listen_port": 4711, "progress_mbytes": 1024.0}
NAME = "inst1.example.com"


def small(template, **changes):
    """Return a snapshot with an instance of one disk of a template."""
    cluster = clusters.EXAMPLE["cluster"]
    policy = copy.deepcopy(cluster["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile", "plain", "ext"]
    places = {
        "ext": ("shelf", "v1.disk0"),
        "plain": ("xenvg", "v1.disk0"),
        "file": ("loop", f"/srv/ganeti/file-storage/{NAME}/d1"),
    }
    disk = objects.Disk(
        dev_type=template,
        logical_id=places[template],
        size=1024,
        uuid="d1",
        serial_no=1,
        iv_name="disk/0",
        nodes=(NODE1,) if template == "plain" else (),
    )
    instance = clusters.instance(1, disks=["d1"])
    values = {"os": "tiny+default", "admin_state": "up", "disks_active": True}
    instance = instance.replace(**values | changes)
    return clusters.snapshot(extra=[disk, instance], ipolicy=policy)


#: Answers of nodes between which disks are copied.
COPYING = {
    **SUCCESSFUL_ACTS,
    "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
    "blockdev_assemble": ["/dev/x", "/link", None],
    "hooks_runner": [],
    "x509_cert_create": ["x509-1-aa", "PEM"],
    "import_start": "import-disk0-aa",
    "export_start": "export-disk0-bb",
    "impexp_status": [DONE],
}


def engine(template="plain", changes=None, root="/nonexistent/n1", **answers):
    """Return an engine; further answers of nodes replace the successful ones."""
    start = small(template, **(changes or {}))
    script = {
        **COPYING,
        "instance_info": {"memory": 512},
        "export_list": lambda node, _args: [NAME] if node in (NODE2, NODE3) else [],
        "export_info": description(start),
        "os_validate": True,
        "node_verify": {},
        "blockdev_snapshot": ["xenvg", "v1.disk0.snap"],
        "finalize_export": None,
        "export_remove": None,
    }
    return Engine(start, script | answers, root=root)


class Guest:
    """Answers of the primary node about a guest that runs until it is stopped."""

    def __init__(self, runs=True):
        self.runs = runs

    def answers(self):
        """Return the part of a script that concerns the guest."""
        return {
            "instance_info": lambda _node, _args: {"memory": 512} if self.runs else {},
            "instance_shutdown": lambda _node, _args: self._set(runs=False),
            "instance_start": lambda _node, _args: self._set(runs=True),
        }

    def _set(self, *, runs):
        self.runs = runs


def description(start):
    """Return the description of an export of the instance."""
    (instance,) = start.instances.values()
    wire = encode.private_instance(start, instance)
    return export_info.text_of(
        msgspec.convert(wire, InstanceX),
        [(1024, 1 << 30)] * len(instance.disks),
        source="node1.example.com",
        timestamp=1,
    )
