"""Any request of the right types is carried out or refused, never a crash."""

import copy
import os

import pytest
from hypothesis import HealthCheck, given, settings

from fakes import clusters, values
from fakes.engine import Engine
from fakes.rpc import FAILING_NODE, failure
from fakes.simulation import Simulation
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.jqueue.executor import LockTimeout
from ganeti.model import opcodes
from ganeti.operations.unit_table import UNITS

NODES = {
    "iallocator_runner": failure("no such allocator"),
    "storage_list": [],
    "lv_list": {},
    "node_volumes": [],
    "all_instances_info": {},
    "os_diagnose": [],
    "extstorage_diagnose": [],
    "node_ssh_keys_renew": None,
    "repair_command": "",
}
#: They wait for clients or for time to pass.
DEEP = {"OP_TEST_JQUEUE", "OP_TEST_DELAY"}


def cluster():
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile"]
    return clusters.snapshot(instances=2, ipolicy=policy)


@pytest.mark.parametrize("op_id", sorted(UNITS.keys() - DEEP))
def test_requests_of_the_right_types_never_crash(op_id):
    @settings(
        max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20")),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(values.opcodes_of(opcodes.OPCODES[op_id]))
    def check(wire):
        engine = Engine(cluster(), FAILING_NODE | Simulation().script() | NODES)
        try:
            engine.run(wire)
        except LockTimeout:
            pass
        except errors.GenericError as err:
            text = str(err.args[0]) if err.args else ""
            assert text
            assert ": unexpected " not in text, text
        problems = config.verify(engine.snapshot)
        if wire.get("master_candidate") is False:
            # Demoting a node by hand may leave fewer candidates than wanted.
            problems = [line for line in problems if "master candidates" not in line]
        assert problems == []

    check()
