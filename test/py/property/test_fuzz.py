"""Whatever clients, masters and strangers send is done or refused with one clear error."""

import copy
import os
import random
import tempfile

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import clusters, fuzz, nodes, values
from fakes.engine import Engine
from fakes.fuzz_targets import TARGETS
from fakes.processes import FakeRunner
from fakes.rpc import FAILING_NODE, failure
from fakes.seeds import examples
from fakes.simulation import Simulation
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.jqueue.effects import LockTimeout
from ganeti.model import opcodes
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import calls as backend
from ganeti.node import hypervisor
from ganeti.node.hypervisor import registry
from ganeti.operations.unit_table import UNITS

WORDS = st.sampled_from(["add", "remove", "modify", "success", "name", "-1", "", "a/b"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | WORDS
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def decode_or_refusal(wire):
    try:
        return opcodes.decode(wire), None
    except errors.OpPrereqError as err:
        return None, err


def fields(cls):
    return [field.name for field in msgspec.structs.fields(cls)]


@pytest.mark.parametrize("op_id", sorted(opcodes.OPCODES))
def test_any_values_are_taken_or_refused(op_id):
    names = fields(opcodes.OPCODES[op_id])

    @settings(max_examples=examples(60), deadline=None, database=None)
    @given(st.dictionaries(st.sampled_from(names), JSON, max_size=len(names)))
    def check(values):
        op, refusal = decode_or_refusal({"OP_ID": op_id, **values})
        if op is None:
            assert str(refusal.args[0]).startswith(op_id)
            assert len(refusal.args) == 2
            return
        wire = opcodes.encode(op)
        assert opcodes.decode(wire) == op
        assert isinstance(op.summary(), str)
        assert isinstance(opcodes.short_summary(op), str)
        assert isinstance(opcodes.redact(wire), dict)
        # As the queue does: to the disk and back.
        assert opcodes.decode(msgspec.json.decode(msgspec.json.encode(wire))) == op

    check()


@settings(max_examples=examples(200), deadline=None, database=None)
@given(JSON)
def test_what_is_no_opcode_at_all_is_refused(value):
    with pytest.raises(errors.OpPrereqError):
        opcodes.decode(value)


# Any request of the right types is carried out or refused, never a crash.

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
        max_examples=int(os.environ.get("FUZZ_EXAMPLES") or examples(20)),
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


# Whatever a master asks of a node is done or refused, never a crash.

#: They act on the machine itself, however fake the node is.
REAL = {
    *("node_activate_master_ip", "node_deactivate_master_ip", "test_delay"),
    *("node_change_master_netmask", "node_leave_cluster", "node_powercycle"),
    *("node_start_master_daemons", "node_stop_master", "node_ensure_daemon"),
    *("node_verify", "node_verify_light", "import_start", "export_start"),
    *("x509_cert_create", "node_ssh_keys_renew", "node_ssh_key_add"),
    *("node_ssh_key_remove", "instance_migrate", "run_oob", "impexp_abort"),
    *("etc_hosts_modify", "node_has_ip_address", "set_watcher_pause"),
}
backend.load()
ODD = st.sampled_from(["", "x", "../../etc", "/etc/passwd", "é", "a\0b", "a" * 300])


def damaged(record):
    """Return records with some values replaced."""
    keys = st.sampled_from(sorted(record))
    return st.dictionaries(keys, values.JSON | ODD, max_size=2).map(
        lambda changes: {**record, **changes}
    )


def argument(kind):
    if kind is DiskX:
        return damaged(nodes.disk())
    if kind is InstanceX:
        return damaged(nodes.instance())
    if kind == list[DiskX]:
        return st.lists(damaged(nodes.disk()), max_size=2)
    if kind is str:
        return ODD | values.WORDS
    return values.fitting(kind)


@pytest.fixture(scope="module")
def node():
    with tempfile.TemporaryDirectory(prefix="gn-", dir="/tmp") as root:
        real = nodes.make_node(root, time=nodes.CountedClock())
        # No procedure may depend on another one having been called before.
        os.makedirs(real.paths.data_dir, exist_ok=True)
        runner = FakeRunner(
            **{"ovs-vsctl": (0, "", ""), "os-image": (1, "", "no image")},
            lvs=(0, '{"report": [{"lv": []}]}', ""),
            vgs=(0, '{"report": [{"vg": []}]}', ""),
        )
        effects = hypervisor.NodeEffects(real.paths, runner, real.clock)
        yield backend.LocalNode(
            real.paths, runner, real.clock, registry.drivers(effects)
        )


@pytest.mark.parametrize("name", sorted(backend.PROCEDURES.keys() - REAL))
def test_procedures_take_or_refuse_any_arguments(node, name):
    kinds = backend.PROCEDURES[name].kinds

    @settings(
        max_examples=examples(30),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*[argument(kind) for kind in kinds]))
    def check(args):
        try:
            backend.call(node, name, list(args))
        except errors.GenericError as err:
            assert str(err)  # noqa: PT017 - it may also succeed

    check()


# Half a minute of wrong inputs to all that reads foreign bytes.
#
# ``test/bench/hostile.py`` sends a million, with a new seed each time. The seed of the test
# is fixed, so that a failure points at a change; ``FUZZ_SEED`` sets it.

#: Inputs that take half a minute together on one core.
COUNT = 100_000


@pytest.fixture(params=TARGETS, ids=lambda item: item[0].__name__)
def target(request):
    return request.param


@pytest.mark.sampled
def test_wrong_inputs_break_nothing_and_cause_no_act(target):
    seed = int(os.environ.get("FUZZ_SEED", "5"))
    fuzz.run(COUNT, seed, [target])


def test_a_mutation_that_is_a_later_term_is_obeyed_and_not_reported(monkeypatch):
    monkeypatch.setattr(
        fuzz,
        "mutated_bytes",
        lambda _chance, data: data.replace(b"Term: 4:", b"Term: 6:"),
    )
    noded = fuzz.Noded()
    try:
        chance = random.Random(1)
        for _ in range(60):
            noded.step(chance)
        assert noded._term == 6
    finally:
        noded.close()
