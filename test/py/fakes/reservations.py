"""A cluster of finite nodes, and the requests about reservations for it."""

import copy
import os

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.finite_nodes import FiniteNodes
from ganeti.base import errors


def engine(*, entropy=os.urandom, **changes):
    """Return a cluster of three empty nodes with the allocator hail."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"] |= {"memory-size": 128, "disk-size": 128}
    policy["disk-templates"] = ["diskless", "file", "plain", "sharedfile"]
    start = clusters.snapshot(
        ipolicy=policy,
        default_iallocator="hail",
        default_iallocator_params={"static-kvm-node-memory": "0"},
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
        **changes,
    )
    nodes = FiniteNodes()
    made = Engine(start, nodes.script(), entropy=entropy)
    made.nodes = nodes
    return made


def beside(eng):
    """Return another engine of the same cluster, with locks of its own."""
    other = Engine(eng.snapshot, eng.nodes.script())
    other.store, other.config = eng.store, eng.config
    return other


def reserve(eng, **params):
    """Reserve; return the uuid."""
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True, **params}
    return eng.run(wire)


def sized(memory=1024, **params):
    return {
        "instance_name": "web1.example.com",
        "disk_template": "file",
        "disks": [{"size": 1024}],
        "nics": [{}],
        "os_type": "tiny",
        "beparams": {"maxmem": memory, "minmem": memory},
        "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
        **params,
    }


def commit(eng, name, **params):
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "commit": True, "instance_name": name}
    return eng.run({**wire, **params})


def op(name, **changes):
    return {"OP_ID": name, "instance_name": "web1.example.com", **changes}


def acts(eng):
    """Return the calls of the last opcode that act on nodes."""
    return sorted(
        {
            name
            for name, _node, _args in eng.rpc.calls
            if name.startswith(("blockdev", "file_storage", "instance_"))
            and name not in ("instance_info", "instance_list")
        }
    )


def the_instance(eng):
    (instance,) = eng.snapshot.instances.values()
    return instance


def refused(eng, wire, text):
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text) as caught:
        eng.run(wire)
    assert eng.snapshot is before
    return caught.value
