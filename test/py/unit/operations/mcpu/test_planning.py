"""A plan says what the run then does, and does none of it.

The property is checked operation by operation: two engines begin with the same
cluster; one runs, the other one plans.
"""

import copy
import itertools
import json

import msgspec
import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.base.constants.misc import REDACTED
from ganeti.model import objects, opcodes
from ganeti.model.objects import Update
from ganeti.operations import mcpu
from ganeti.operations.mcpu import simulated_nodes
from ganeti.operations.mcpu.dry_run import VirtualClock, describe
from ganeti.operations.mcpu.planning import DryRun
from ganeti.operations.mcpu.simulated_nodes import device_path
from ganeti.operations.unit_table import UNITS
from ganeti.protocols.rpc import PROCEDURES

NODE1, NODE2 = clusters.node_uuid(1), clusters.node_uuid(2)
INST = "inst1.example.com"
SECOND = "inst2.example.com"
INFO = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
OTHER_GROUP = "00000000-0000-4000-8000-0000000000b0"


def answers(**changes):
    return {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": {},
        "instance_list": [],
        "all_instances_info": {},
        "blockdev_assemble": lambda node, args: ["/dev/x", "/link", None],
        "instance_get_migration_status": {"status": "completed"},
        "migration_info": "opaque",
        "hooks_runner": [],
        "version": 3010000,
        "node_verify": {"nodelist": {}},
        "node_crypto_tokens": [["ssl", "CC:DD"]],
        "node_has_ip_address": True,
        "node_ssh_key_add": [],
        "node_ssh_key_remove": [],
        "etc_hosts_modify": True,
        "node_powercycle": "Reboot scheduled",
        **changes,
    }


def counting():
    """Return a source of bytes that always gives the same ones in order."""
    numbers = itertools.count(10_000)
    return lambda size: next(numbers).to_bytes(size, "big")


def cluster(**changes):
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["diskless", "file", "sharedfile"]
    disk = objects.from_dict(
        objects.Disk,
        {
            "dev_type": "sharedfile",
            "logical_id": ["loop", "/srv/ganeti/shared-file-storage/inst1/disk0"],
            "size": 1024,
            "mode": "rw",
            "iv_name": "disk/0",
            "uuid": "00000000-0000-4000-8000-000000000201",
            "nodes": [],
            "params": {},
            "serial_no": 1,
        },
    )
    start = clusters.snapshot(
        instances=2,
        ipolicy=policy,
        candidate_certs={NODE2: "AA:BB"},
        extra=[
            clusters.group(name="other", uuid=OTHER_GROUP),
            clusters.node(4, group=OTHER_GROUP),
            clusters.node(5, offline=True, master_candidate=False),
        ],
        **changes,
    )
    first = start.instances[clusters.instance_uuid(1)]
    return start.apply(
        [
            Update("disks", disk.uuid, disk),
            Update("instances", first.uuid, first.replace(disks=(disk.uuid,))),
        ]
    )


def engine(script=None, **changes):
    made = Engine(cluster(**changes), answers(**(script or {})), entropy=counting())
    made.hosts["node9"] = ("node9.example.com", ["192.0.2.9"])
    for number in (1, 2, 3):
        name = f"node{number}.example.com"
        made.hosts[name] = (name, [f"192.0.2.{number}"])
    made.hosts["new.example.com"] = ("new.example.com", ["198.51.100.7"])
    # Nothing serves at the addresses of names that are still free.
    made.dead.add("198.51.100.7")
    return made


def op(name, /, **options):
    return {"OP_ID": f"OP_{name}", **options}


def inst(name, /, **options):
    return op(f"INSTANCE_{name}", instance_name=INST, **options)


CREATE = op(
    "INSTANCE_CREATE",
    instance_name="web1.example.com",
    mode="create",
    disk_template="file",
    disks=[{"size": 1024}, {"size": 2048}],
    nics=[{}],
    os_type="tiny",
    pnode="node1.example.com",
    hypervisor="kvm",
    ip_check=False,
    name_check=False,
    hvparams={"kernel_path": "", "vnc_bind_address": ""},
)
MIGRATE = op("INSTANCE_MIGRATE", instance_name=INST, target_node="node2.example.com")
ALLOCATION = json.dumps(
    {
        "success": True,
        "info": "",
        "result": [
            [[name, "default", ["node2.example.com"]] for name in (INST, SECOND)],
            [],
            [[MIGRATE], [MIGRATE | {"instance_name": SECOND}]],
        ],
    }
)
RUNNING = {"instance_info": INFO}
#: Calls that the jobs here may make while they are only planned.
QUESTIONS = {
    "all_instances_info",
    "bridges_exist",
    "hotplug_supported",
    "hypervisor_validate_params",
    "iallocator_runner",
    "instance_info",
    "instance_list",
    "instance_migratable",
    "migration_info",
    "node_crypto_tokens",
    "node_has_ip_address",
    "node_info",
    "node_verify",
    "os_validate",
    "version",
}
INSTALLS = {
    "os_validate": False,
    "os_export": "planned-archive",
    "helper_image_add": 1024,
    "helper_start": None,
    "helper_result": ["ended", 0, []],
    "helper_end": None,
}
IMAGE = op("CLUSTER_SET_PARAMS", install_image="/srv/ganeti/images/install.raw")
#: Name -> (opcodes of one job, answers of nodes).
JOBS = {
    "create": ([CREATE], {}),
    "create, not started": ([CREATE | {"start": False}], {}),
    "create, installed by a helper machine": ([IMAGE, CREATE], INSTALLS),
    "startup": ([inst("STARTUP")], {}),
    "startup of a running guest": ([inst("STARTUP")], RUNNING),
    "shutdown": ([inst("SHUTDOWN", timeout=7)], RUNNING),
    "hard reboot": ([inst("REBOOT", reboot_type="hard")], RUNNING),
    "full reboot": ([inst("REBOOT", reboot_type="full")], RUNNING),
    "migrate": ([inst("MIGRATE", target_node="node2")], RUNNING),
    "failover": ([inst("FAILOVER", target_node="node2")], RUNNING),
    "failover of a stopped guest": ([inst("FAILOVER", target_node="node2")], {}),
    "modify": ([inst("SET_PARAMS", beparams={"vcpus": 2})], {}),
    "modify disks": (
        [inst("SET_PARAMS", disks=[["add", -1, {"size": 1024}]])],
        {},
    ),
    "hotplug": ([inst("SET_PARAMS", nics=[["add", -1, {}]])], RUNNING),
    "grow": ([inst("GROW_DISK", disk=0, amount=512)], {}),
    "remove": ([inst("REMOVE", shutdown_timeout=3)], RUNNING),
    "rename": (
        [
            inst("SHUTDOWN"),
            inst(
                "RENAME",
                new_name="new.example.com",
                ip_check=False,
                name_check=False,
            ),
        ],
        {},
    ),
    "reinstall": ([inst("SHUTDOWN"), inst("REINSTALL")], {}),
    "activate disks": ([inst("ACTIVATE_DISKS")], {}),
    "deactivate disks": ([inst("DEACTIVATE_DISKS")], {}),
    "node offline": ([op("NODE_SET_PARAMS", node_name="node3", offline=True)], {}),
    "node demoted": (
        [op("NODE_SET_PARAMS", node_name="node3", master_candidate=False)],
        {},
    ),
    "node added": (
        [op("NODE_ADD", node_name="node9", node_setup=True, group="default")],
        {},
    ),
    "node removed": ([op("NODE_REMOVE", node_name="node3")], {}),
    "power cycle": ([op("NODE_POWERCYCLE", node_name="node3", force=True)], {}),
    "evacuation": (
        [
            op(
                "NODE_EVACUATE",
                node_name="node1",
                mode="primary-only",
                iallocator="mine",
            )
        ],
        {"iallocator_runner": ALLOCATION},
    ),
    "group added": ([op("GROUP_ADD", group_name="rack")], {}),
    "group renamed": (
        [op("GROUP_RENAME", group_name="other", new_name="rack")],
        {},
    ),
    "nodes assigned": (
        [op("GROUP_ASSIGN_NODES", group_name="other", nodes=["node3"])],
        {},
    ),
    "tags": ([op("TAGS_SET", kind="instance", name=INST, tags=["a", "b"])], {}),
    "cluster modified": (
        [op("CLUSTER_SET_PARAMS", beparams={"vcpus": 3}, candidate_pool_size=2)],
        {},
    ),
    "master address": ([op("CLUSTER_ACTIVATE_MASTER_IP")], {}),
    "redistribution": ([op("CLUSTER_REDIST_CONF")], {}),
    "removed and created again": (
        [inst("REMOVE"), CREATE | {"instance_name": INST, "start": False}],
        {},
    ),
    "node removed and added again": (
        [
            op("NODE_REMOVE", node_name="node3"),
            op(
                "NODE_ADD",
                node_name="node3.example.com",
                node_setup=True,
                group="default",
            ),
        ],
        {},
    ),
    "group removed and added again": (
        [
            op("GROUP_ADD", group_name="rack"),
            op("GROUP_REMOVE", group_name="rack"),
            op("GROUP_ADD", group_name="rack"),
        ],
        {},
    ),
    "several": (
        [
            op("TAGS_SET", kind="node", name="node3", tags=["a"]),
            op("NODE_SET_PARAMS", node_name="node3", drained=True),
            inst("SHUTDOWN"),
        ],
        RUNNING,
    ),
}
#: The same for jobs that fail.
FAILING = {
    "instance that exists": ([CREATE | {"instance_name": INST}], {}),
    "unknown instance": ([op("INSTANCE_STARTUP", instance_name="nowhere")], {}),
    "migration of a stopped guest": ([inst("MIGRATE", target_node="node2")], {}),
    "silent node": ([inst("STARTUP")], {"instance_info": failure("silent")}),
    "one that fails ends the job": (
        [op("GROUP_REMOVE", group_name="default"), inst("SHUTDOWN")],
        {},
    ),
}


def is_question(call):
    procedure, _node, args = call
    # Growing a disk is tried out first.
    return procedure in QUESTIONS or (procedure == "blockdev_grow" and args[2])


def run(eng, ops):
    """Run a job for real; return what it did."""
    actual = {"acts": [], "locks": [], "lines": [], "jobs": [], "error": None}
    for wire in ops:
        try:
            eng.run(wire)
        except Exception as err:  # noqa: BLE001 - compared with the plan
            actual["error"] = mcpu_error(err)
        actual["acts"] += [call for call in eng.rpc.calls if not is_question(call)]
        actual["locks"] += [
            (row.level.label, row.names is None, row.shared)
            for row in eng.locks.requests
        ]
        actual["lines"] += [text for kind, text in eng.callbacks.entries]
        actual["jobs"] += [
            [opcodes.encode(child) for child in job] for job in eng.callbacks.submitted
        ]
        if actual["error"]:
            break
    return actual, tables(eng.snapshot)


def mcpu_error(err):
    from ganeti.base import errors

    return errors.encode(err)


def plan(eng, ops):
    """Plan a job; return the parts that a run can be compared with."""
    fork = DryRun(eng.deps(), UNITS, "plan")
    actual = {"acts": [], "locks": [], "lines": [], "jobs": [], "error": None}
    plans = []
    for wire in ops:
        plans.append(fork.plan(opcodes.decode(wire)))
        op_plan = plans[-1]
        actual["locks"] += [
            (row.level, row.names is None, row.shared) for row in op_plan.locks
        ]
        actual["lines"] += [step.text for step in op_plan.steps if step.kind == "log"]
        actual["jobs"] += op_plan.jobs
        actual["error"] = op_plan.error
        if op_plan.error:
            break
    actual["acts"] = fork.runner.acts
    return actual, tables(fork.snapshot), plans


def tables(snapshot):
    return {name: dict(snapshot.table(name)) for name in objects.TABLES}


ALL = JOBS | FAILING


@pytest.mark.parametrize("name", ALL)
def test_what_is_planned_is_what_a_run_does(name):
    ops, script = ALL[name]
    earnest, planning = engine(script), engine(script)
    did, now = run(earnest, ops)
    op_plan, then, _ = plan(planning, ops)
    assert op_plan == did
    assert then == now
    assert (did["error"] is not None) == (name in FAILING)


@pytest.mark.parametrize("name", ALL)
def test_a_plan_leaves_everything_as_it_was(name):
    ops, script = ALL[name]
    eng = engine(script)
    before = eng.snapshot
    plan(eng, ops)
    assert eng.snapshot is before
    assert [call for call in eng.rpc.calls if not is_question(call)] == []
    assert eng.locks.requests == []
    assert eng.locks.lock_info() == []
    assert eng.config._reservations._owners == {}


def planned(ops, script=None, eng=None):
    planner = mcpu.Planner((eng or engine(script)).deps(), UNITS)
    return planner.plan([opcodes.decode(wire) for wire in ops])


def test_a_plan_is_readable_by_name():
    (op_plan,) = planned([inst("MIGRATE", target_node="node2")], RUNNING).opcodes
    assert op_plan.summary == f"INSTANCE_MIGRATE({INST})"
    locks = {row.level: (row.names, row.shared) for row in op_plan.locks}
    assert locks["cluster"] == (["BGL"], True)
    assert locks["instance"] == ([INST], False)
    assert "node2.example.com" in locks["node"][0]
    calls = [step for step in op_plan.steps if step.kind == "call"]
    (start,) = [step for step in calls if step.procedure == "instance_migrate"]
    assert start.nodes == ["node1.example.com"]
    assert start.arguments["instance"] == INST
    (change,) = [row for row in op_plan.changes if row.table == "instances"]
    assert (change.action, change.name) == ("change", INST)
    assert [msgspec.structs.astuple(row) for row in change.fields] == [
        ("primary_node", NODE1, NODE2)
    ]


def test_later_opcodes_see_what_earlier_ones_would_have_done():
    web1 = {"instance_name": "web1.example.com"}
    ops = [
        CREATE,
        op("INSTANCE_MIGRATE", target_node="node2", **web1),
        op("INSTANCE_SHUTDOWN", **web1),
        op("INSTANCE_STARTUP", **web1),
        op("INSTANCE_REMOVE", **web1),
    ]
    # Every node says that nothing runs there, which holds before the plan only.
    ops[0] = ops[0] | {"disk_template": "sharedfile"}
    result = planned(ops)
    assert [item.error for item in result.opcodes] == [None] * 5
    starts = [
        (step.procedure, *step.nodes)
        for item in result.opcodes
        for step in item.steps
        if step.procedure in ("instance_start", "instance_shutdown")
    ]
    assert starts == [
        ("instance_start", "node1.example.com"),
        ("instance_shutdown", "node2.example.com"),
        ("instance_start", "node2.example.com"),
        ("instance_shutdown", "node2.example.com"),
    ]


def test_submitted_jobs_are_planned_too():
    ops, script = JOBS["evacuation"]
    eng = engine(script | RUNNING)
    result = planned(ops, eng=eng)
    ((op_plan,), (other,)) = result.followers
    assert result.left_out == 0
    assert (op_plan.summary, op_plan.error) == (f"INSTANCE_MIGRATE({INST})", None)
    assert other.summary == f"INSTANCE_MIGRATE({SECOND})"
    eng.run(ops[0])
    (job, _other) = eng.callbacks.submitted
    eng.run(job[0])
    moved = eng.snapshot.instances[clusters.instance_uuid(1)]
    (change,) = [row for row in op_plan.changes if row.table == "instances"]
    assert [field.after for field in change.fields] == [moved.primary_node] == [NODE2]


def test_a_plan_gives_the_revision_that_it_is_about():
    eng = engine()
    assert planned([CREATE], eng=eng).revision == eng.snapshot.revision


def test_made_up_values_are_listed():
    (op_plan,) = planned([CREATE]).opcodes
    instance = next(row for row in op_plan.changes if row.table == "instances")
    assert instance.uuid in op_plan.generated
    nics = next(row.after for row in instance.fields if row.name == "nics")
    assert nics[0]["mac"] in op_plan.generated


def test_reservations_of_running_jobs_are_respected_and_own_ones_forgotten():
    eng = engine()
    eng.config.reserve("9/0", "mac", "aa:00:00:00:00:07")
    wire = inst("SET_PARAMS", nics=[["add", -1, {"mac": "aa:00:00:00:00:07"}]])
    (op_plan,) = planned([wire], eng=eng).opcodes
    assert "reserved by 9/0" in str(op_plan.error)
    eng.config.release("9/0")
    for _again in range(2):
        (op_plan,) = planned([wire], eng=eng).opcodes
        assert op_plan.error is None


def test_secrets_are_not_in_plans():
    wire = inst("SET_PARAMS", osparams_private={"password": "hush-hush"})
    (op_plan,) = planned([wire]).opcodes
    assert "hush-hush" not in msgspec.json.encode(op_plan).decode()
    (change,) = op_plan.changes
    (field,) = change.fields
    assert (field.name, field.after) == ("osparams_private", {"password": REDACTED})
    create = CREATE | {"osparams_secret": {"password": "hush-hush"}}
    assert "hush-hush" not in msgspec.json.encode(planned([create])).decode()


def test_arguments_that_may_hold_secrets_are_not_shown():
    assert describe("repair_command", ("reset", "hush-hush")) == {}
    upload = [["/etc/hosts", ["plain", "hush-hush"], 420, "root", "root", 1, 1]]
    assert describe("upload_file", upload) == {"file_name": "/etc/hosts"}
    disk = {"dev_type": "drbd", "logical_id": ["a", "b", 1, 0, 0, "hush"], "name": None}
    assert describe("blockdev_remove", [disk | {"iv_name": "disk/0"}]) == {
        "bdev": "disk/0"
    }


def test_secrets_of_mirrored_disks_are_not_shown():
    from ganeti.operations.mcpu.planning import _shown

    drbd = {"dev_type": "drbd", "logical_id": ["a", "b", 1, 0, 0, "hush"]}
    assert _shown("logical_id", drbd["logical_id"], drbd)[-1] == REDACTED
    assert "hush" not in str(_shown("children", [drbd], {}))


def test_rows_name_the_functions_of_the_policy_and_each_is_named():
    rows = PROCEDURES.values()
    assert {row.reads_if for row in rows} - {""} == set(simulated_nodes.READS_IF)
    assert {row.answer_from for row in rows} - {""} == set(simulated_nodes.ANSWERS)


@pytest.mark.parametrize(
    ("procedure", "args", "expected"),
    [
        ("run_oob", ["helper", "power-status", "n1", 5], True),
        ("run_oob", ["helper", "power-off", "n1", 5], False),
        ("node_crypto_tokens", [[["ssl", "get", {}]]], True),
        ("node_crypto_tokens", [[["ssl", "create", {}]]], False),
        ("blockdev_grow", [{}, 5, True, False, False], True),
        ("blockdev_grow", [{}, 5, False, False, False], False),
        ("node_info", [[], []], True),
        ("instance_start", [{}, False, []], False),
    ],
)
def test_only_calls_that_change_nothing_are_sent(procedure, args, expected):
    assert simulated_nodes.only_reads(PROCEDURES[procedure], args) is expected


def test_an_answer_is_not_shared_between_calls():
    row = PROCEDURES["hooks_runner"]
    simulated_nodes.answer(row, ()).append("changed")
    assert simulated_nodes.answer(row, ()) == []


def test_pauses_pass_at_once_and_are_recorded():
    (op_plan,) = planned(
        [op("TEST_DELAY", duration=3600.0, on_nodes=["node2"])]
    ).opcodes
    assert op_plan.error is None
    assert [step.seconds for step in op_plan.steps if step.kind == "pause"] == [3600.0]


def test_waiting_without_limit_is_refused():
    import threading

    from ganeti.base import errors

    eng = engine()
    with pytest.raises(errors.OpExecError, match="without limit"):
        VirtualClock(eng.clock).wait(threading.Event(), None)


@pytest.mark.parametrize(
    "wire",
    [
        op("TEST_DELAY", duration=1.0, interruptible=True),
        op("TEST_JQUEUE", notify_exec=True),
        op("TEST_JQUEUE", notify_waitlock=True),
        op("CLUSTER_RENEW_CRYPTO", node_certificates=True),
    ],
)
def test_acts_outside_of_the_context_cannot_be_planned(wire):
    (op_plan,) = planned([wire]).opcodes
    assert "cannot be planned" in str(op_plan.error)


def test_offline_nodes_are_not_called():
    ops = [
        op("NODE_SET_PARAMS", node_name="node3", offline=True),
        op("CLUSTER_SET_PARAMS", candidate_pool_size=3),
        op("NODE_POWERCYCLE", node_name="node3", force=True),
    ]
    result = planned(ops)
    later = [step for item in result.opcodes[1:] for step in item.steps]
    called = [step for step in later if "node3.example.com" in step.nodes]
    # A power cycle is tried on a node that is marked offline, too.
    assert {step.procedure for step in called} <= {"node_powercycle"}
    # Nor is the one that already was.
    assert not [step for step in later if "node5.example.com" in step.nodes]


def test_the_file_of_host_keys_is_recorded_not_written(tmp_path):
    eng = engine()
    eng.root = str(tmp_path)
    eng.hosts["other"] = ("other.example.com", ["192.0.2.200"])
    eng.dead.add("192.0.2.200")
    data = tmp_path / "var/lib/ganeti"
    data.mkdir(parents=True)
    (data / "known_hosts").write_text("as it was\n")
    result = planned([op("CLUSTER_RENAME", name="other")], eng=eng)
    (op_plan,) = result.opcodes
    assert op_plan.error is None
    files = [step.text for step in op_plan.steps if step.kind == "file"]
    assert [path.rpartition("/")[2] for path in files] == ["known_hosts"]
    assert (data / "known_hosts").read_text() == "as it was\n"


@pytest.mark.parametrize(
    "wire",
    [
        CREATE | {"instance_name": "new.example.com"},
        inst("RENAME", new_name="new.example.com"),
    ],
    ids=["create", "rename"],
)
def test_only_a_run_asks_whether_a_new_address_is_in_use(wire):
    wire = wire | {"ip_check": True, "name_check": True}
    stopped = [] if wire["OP_ID"] == CREATE["OP_ID"] else [inst("SHUTDOWN")]
    eng = engine()
    eng.dead.clear()  # Now a machine has the address.
    assert [row.error for row in planned([*stopped, wire], eng=eng).opcodes][-1] is None
    assert eng.asked_addresses == []
    for before in stopped:
        eng.run(before)
    with pytest.raises(errors.OpPrereqError, match=r"198\.51\.100\.7"):
        eng.run(wire)
    assert eng.asked_addresses == ["198.51.100.7"]


@pytest.mark.parametrize(
    ("kind", "logical_id", "path"),
    [
        ("file", ["loop", "/srv/disk0"], "/srv/disk0"),
        ("plain", ["xenvg", "lv0"], "/dev/xenvg/lv0"),
        ("drbd", ["n1", "n2", 11000, 0, 0, "secret"], "/dev/drbd"),
        ("file", None, ""),
    ],
)
def test_where_a_disk_will_be_found_is_foreseen(kind, logical_id, path):
    assert device_path({"dev_type": kind, "logical_id": logical_id}) == path
