"""Every object parameter of opcodes, calls and commands: by name and by uuid.

Each operation is planned by a whole master daemon twice, with the names of objects and
with their uuids in place of them. Both plans are the same: locks, steps, changes, and
the error if these fake nodes or this cluster refuse it, which is never that an object
is unknown. Calls of LUXI and commands answer the same in both forms, too.
"""

import json
import re

import msgspec
import pytest

from fakes import clusters, commands
from fakes.master import Master
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti import errors, objects, opcodes
from ganeti.cmdlib.unit_table import UNITS

RACK = "00000000-0000-4000-8000-0000000000b0"
N1, N2, N3, N4 = (f"node{n}.example.com" for n in (1, 2, 3, 4))
I1, I2 = "inst1.example.com", "inst2.example.com"
#: Parameters that name objects. Others that look so: `NO_OBJECTS`.
OBJECTS = frozenset(
    {"group", "group_name", "instance_name", "instances", "network_name", "node_name"}
    | {
        "node_names",
        "nodes",
        "on_nodes",
        "pnode",
        "remote_node",
        "snode",
        "src_node",
        "target_groups",
    }
    | {"target_node", "disks", "nics", "name"}
)
#: Opcode and parameter -> why it names no object that exists.
NO_OBJECTS = {
    ("OP_CLUSTER_RENAME", "name"): "the new name of the cluster",
    ("OP_GROUP_ADD", "group_name"): "the name of the new group",
    ("OP_INSTANCE_CREATE", "disks"): "sizes",
    ("OP_INSTANCE_CREATE", "nics"): "addresses, and networks",
    ("OP_INSTANCE_CREATE", "instance_name"): "the name of the new instance",
    ("OP_INSTANCE_CREATE", "name"): "of an adopted volume",
    ("OP_INSTANCE_CREATE", "src_node"): "the node of an export",
    ("OP_INSTANCE_CREATE", "snode"): "needs a mirrored template",
    ("OP_INSTANCE_MULTI_ALLOC", "instances"): "requests for new instances",
    ("OP_INSTANCE_RECREATE_DISKS", "disks"): "numbers of disks",
    ("OP_INSTANCE_REPLACE_DISKS", "disks"): "numbers of disks",
    ("OP_NETWORK_ADD", "network_name"): "the name of the new network",
    ("OP_NODE_ADD", "node_name"): "the name of the new node",
    ("OP_NODE_MODIFY_STORAGE", "name"): "a storage unit",
    ("OP_NODE_QUERY_STORAGE", "name"): "a storage unit",
    ("OP_REPAIR_NODE_STORAGE", "name"): "a storage unit",
    ("OP_TEST_ALLOCATOR", "disks"): "sizes",
    ("OP_TEST_ALLOCATOR", "nics"): "of a new instance",
    ("OP_TEST_OS_PARAMS", "name"): "the name of an operating system",
}
#: Wire form of the operations by name. All parameters of `OBJECTS` occur.
EXAMPLES = (
    {"OP_ID": "OP_CLUSTER_REPAIR_DISK_SIZES", "instances": [I1]},
    {"OP_ID": "OP_CLUSTER_VERIFY", "group_name": "default"},
    {"OP_ID": "OP_CLUSTER_VERIFY_DISKS", "group_name": "default"},
    {"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": "rack"},
    {"OP_ID": "OP_GROUP_ASSIGN_NODES", "group_name": "rack", "nodes": [N3, N2]},
    {"OP_ID": "OP_GROUP_EVACUATE", "group_name": "default", "target_groups": ["rack"]},
    {"OP_ID": "OP_GROUP_REMOVE", "group_name": "rack"},
    {"OP_ID": "OP_GROUP_RENAME", "group_name": "rack", "new_name": "row"},
    {
        "OP_ID": "OP_GROUP_SET_PARAMS",
        "group_name": "rack",
        "alloc_policy": "last_resort",
    },
    {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": "default"},
    {"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "instance_name": I1},
    {
        "OP_ID": "OP_INSTANCE_CHANGE_GROUP",
        "instance_name": I1,
        "target_groups": ["rack"],
    },
    {"OP_ID": "OP_INSTANCE_CONSOLE", "instance_name": I1},
    {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "new.example.com",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "no_install": True,
        "os_type": "tiny",
        "pnode": N2,
        "hypervisor": "kvm",
        "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
        "ip_check": False,
        "name_check": False,
    },
    {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "new.example.com",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "no_install": True,
        "os_type": "tiny",
        "group_name": "rack",
        "iallocator": "hail",
        "hypervisor": "kvm",
        "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
        "ip_check": False,
        "name_check": False,
    },
    {"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS", "instance_name": I1},
    {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": I2, "target_node": N3},
    {"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": I1, "disk": 0, "amount": 64},
    {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": I2, "target_node": N3},
    {"OP_ID": "OP_INSTANCE_MOVE", "instance_name": I1, "target_node": N3},
    {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [I1], "static": True},
    {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": I1, "reboot_type": "hard"},
    {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "instance_name": I1, "nodes": [N3]},
    {"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": I1},
    {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": I1},
    {
        "OP_ID": "OP_INSTANCE_RENAME",
        "instance_name": I1,
        "new_name": "new.example.com",
        "name_check": False,
        "ip_check": False,
    },
    {
        "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
        "instance_name": I1,
        "mode": "replace_new_secondary",
        "remote_node": N3,
    },
    {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": I1,
        "disks": [["modify", "DISK", {"name": "boot"}]],
    },
    {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": I1,
        "nics": [["modify", "NIC", {"name": "wan"}]],
    },
    {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": I1, "pnode": N2},
    {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": I1,
        "disk_template": "drbd",
        "remote_node": N3,
    },
    {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": I1},
    {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": I1},
    {"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": I2},
    {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "instance_name": I2},
    {
        "OP_ID": "OP_INSTANCE_RENAME",
        "instance_name": I2,
        "new_name": "new.example.com",
        "name_check": False,
        "ip_check": False,
    },
    *(
        {"OP_ID": f"OP_NETWORK_{verb}", "network_name": "net", **values}
        for verb, values in (
            (
                "CONNECT",
                {
                    "group_name": "rack",
                    "network_mode": "bridged",
                    "network_link": "br0",
                },
            ),
            ("DISCONNECT", {"group_name": "rack"}),
            ("REMOVE", {}),
            ("RENAME", {"new_name": "wide"}),
            ("SET_PARAMS", {"gateway": "198.51.100.1"}),
        )
    ),
    {"OP_ID": "OP_NODE_ADD", "node_name": "node9.example.com", "group": "rack"},
    {
        "OP_ID": "OP_NODE_EVACUATE",
        "node_name": N1,
        "mode": "primary-only",
        "remote_node": N3,
    },
    {"OP_ID": "OP_NODE_MIGRATE", "node_name": N1, "target_node": N3},
    {
        "OP_ID": "OP_NODE_MODIFY_STORAGE",
        "node_name": N2,
        "storage_type": "lvm-pv",
        "name": "/dev/sdb",
        "changes": {"allocatable": False},
    },
    {
        "OP_ID": "OP_REPAIR_NODE_STORAGE",
        "node_name": N2,
        "storage_type": "lvm-vg",
        "name": "xenvg",
    },
    {"OP_ID": "OP_NODE_POWERCYCLE", "node_name": N2, "force": True},
    {
        "OP_ID": "OP_NODE_QUERYVOLS",
        "nodes": [N2],
        "output_fields": ["node", "name"],
    },
    {
        "OP_ID": "OP_NODE_QUERY_STORAGE",
        "nodes": [N2],
        "output_fields": ["node", "name"],
        "storage_type": "file",
    },
    {"OP_ID": "OP_NODE_REMOVE", "node_name": N4},
    {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": N2, "drained": True},
    {
        "OP_ID": "OP_OOB_COMMAND",
        "node_names": [N2],
        "command": "power-status",
    },
    {
        "OP_ID": "OP_REPAIR_COMMAND",
        "node_name": N2,
        "command": "mend",
        "input": "x",
    },
    {"OP_ID": "OP_RESTRICTED_COMMAND", "nodes": [N2], "command": "look"},
    *(
        {"OP_ID": f"OP_TAGS_{verb}", "kind": kind, "name": name, **tags}
        for kind, name in (
            *(("node", N2), ("instance", I1), ("nodegroup", "rack")),
            ("network", "net"),
        )
        for verb, tags in (
            ("GET", {}),
            ("SET", {"tags": ["x"]}),
            ("DEL", {"tags": ["old"]}),
        )
    ),
    {
        "OP_ID": "OP_TEST_ALLOCATOR",
        "direction": "in",
        "mode": "relocate",
        "name": I1,
    },
    {
        "OP_ID": "OP_TEST_ALLOCATOR",
        "direction": "in",
        "mode": "change-group",
        "name": "x",
        "instances": [I1],
        "target_groups": ["rack"],
    },
    {
        "OP_ID": "OP_TEST_ALLOCATOR",
        "direction": "in",
        "mode": "balance",
        "name": "x",
        "group_name": "default",
    },
    {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.1,
        "on_master": False,
        "on_nodes": [N2],
    },
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_TIME = re.compile(r"\d{10}(\.\d+)?|(?<=job )\d+|(?<=jobs )\d+")
DISK, NIC = clusters.node_uuid(71), clusters.node_uuid(72)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    disk = objects.Disk(
        uuid=DISK,
        name="data",
        dev_type="file",
        logical_id=("loop", "/srv/ganeti/file-storage/inst1/disk"),
        size=1024,
        nodes=(clusters.node_uuid(1),),
        serial_no=1,
    )
    nic = objects.Nic(uuid=NIC, name="lan", mac="aa:00:00:00:00:01", nicparams={})
    start = clusters.snapshot(
        nodes=3,
        instances=1,
        extra=[
            clusters.group("rack", RACK, tags=frozenset({"old"})),
            clusters.node(4, group=RACK, master_candidate=False),
            clusters.network("net", tags=frozenset({"old"})),
            clusters.node(2, tags=frozenset({"old"})),
            disk,
            clusters.instance(
                1,
                disks=(DISK,),
                nics=(nic,),
                disk_template="file",
                tags=frozenset({"old"}),
            ),
            clusters.instance(2),
        ],
        candidate_pool_size=2,
        default_iallocator="hail",
        ipolicy=clusters.cluster().ipolicy | {"disk-templates": ["file", "diskless"]},
    )
    script = {
        **SUCCESSFUL_ACTS,
        "version": 3010000,
        "node_powercycle": "",
    }
    root = tmp_path_factory.mktemp("uuids") / "node1.example.com"
    made = Master(root, start, script).start()
    yield made
    made.stop()


def names_of(snapshot):
    """Return uuid -> name of all objects."""
    by_uuid = {DISK: "data", NIC: "lan"}
    for table in ("nodes", "nodegroups", "instances", "networks"):
        by_uuid |= {uuid: row.name for uuid, row in snapshot.table(table).items()}
    return by_uuid


def with_uuids(value, uuids):
    """Return a parameter with the uuids of all objects that it names."""
    if isinstance(value, str):
        return uuids.get(value, value)
    if isinstance(value, list):
        return [with_uuids(item, uuids) for item in value]
    if isinstance(value, dict):
        return {key: with_uuids(item, uuids) for key, item in value.items()}
    return value


def plain(answer, names):
    """Return an answer as text without what differs from run to run."""
    text = json.dumps(answer, indent=1, sort_keys=True)
    for uuid, name in names.items():
        text = text.replace(uuid, name)
    return _TIME.sub("TIME", _MAC.sub("MAC", _UUID.sub("UUID", text)))


def test_every_parameter_that_names_objects_has_an_example():
    covered = set()
    for example in EXAMPLES:
        covered |= {(example["OP_ID"], key) for key in example}
    missing = []
    for op in sorted(UNITS):
        for field in msgspec.structs.fields(opcodes.OPCODES[op]):
            pair = (op, field.name)
            if field.name in OBJECTS and pair not in covered | set(NO_OBJECTS):
                missing.append(pair)
    assert missing == []


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"{n}-{row['OP_ID']}" for n, row in enumerate(EXAMPLES)]
)
def test_an_operation_is_the_same_by_name_and_by_uuid(master, example):
    names = names_of(master.store.snapshot())
    uuids = {name: uuid for uuid, name in names.items()}
    by_name = with_uuids(example, {"DISK": "data", "NIC": "lan"})
    by_uuid = with_uuids(by_name, uuids)
    assert by_uuid != by_name
    with master.client() as client:
        plans = [client.call("PlanJob", [[op]]) for op in (by_name, by_uuid)]
    first, second = (plain(plan, names) for plan in plans)
    assert first == second
    assert "unknown_entity" not in first


# Calls
FIELDS = ["name", "uuid", "tags"]
CALLS = (
    ("QueryNodes", [[N2, N1], FIELDS, False]),
    ("QueryInstances", [[I2, I1], FIELDS, False]),
    ("QueryGroups", [["rack"], FIELDS, False]),
    ("QueryNetworks", [["net"], FIELDS, False]),
    ("QueryTags", ["network", "net"]),
    ("QueryTags", ["node", N2]),
    ("QueryTags", ["instance", I1]),
    ("QueryTags", ["nodegroup", "rack"]),
    ("QueryCapacity", [{"groups": ["rack"], "memory": 128, "disk": 0}]),
    ("PlanBalance", [{"group": "rack"}]),
)


@pytest.mark.parametrize(("method", "args"), CALLS)
def test_a_call_answers_the_same_by_name_and_by_uuid(master, method, args):
    names = names_of(master.store.snapshot())
    uuids = {name: uuid for uuid, name in names.items()}
    answers = []
    with master.client() as client:
        for form in (args, with_uuids(args, uuids)):
            try:
                answers.append(client.call(method, form))
            except errors.GenericError as err:
                answers.append([type(err).__name__, str(err)])
    first, second = (plain(answer, names) for answer in answers)
    assert first == second
    assert "not known" not in first


# Commands
#: Exit code for mistakes in the command line.
USAGE = 2
COMMANDS = (
    "gnt-node list -o name,group node2.example.com node1.example.com",
    "gnt-node info node2.example.com",
    "gnt-node list-tags node2.example.com",
    "gnt-node list-storage --storage-type file node2.example.com",
    "gnt-node volumes node2.example.com",
    "gnt-node add-tags --plan node2.example.com x",
    "gnt-node remove-tags --plan node2.example.com old",
    "gnt-node modify --plan -D yes node2.example.com",
    "gnt-node remove --plan node4.example.com",
    "gnt-node powercycle --plan -f node2.example.com",
    "gnt-node migrate --plan -f -n node3.example.com node1.example.com",
    "gnt-node failover --plan -f node1.example.com",
    "gnt-node evacuate --plan -f -p node1.example.com",
    "gnt-node health node2.example.com",
    "gnt-node power status node2.example.com",
    "gnt-network list -o name,uuid net",
    "gnt-network info net",
    "gnt-network list-tags net",
    "gnt-network add-tags --plan net x",
    "gnt-network modify --plan --gateway=198.51.100.1 net",
    "gnt-network rename --plan net wide",
    "gnt-network remove --plan -f net",
    "gnt-network connect --plan -N mode=bridged,link=br0 net rack",
    "gnt-group list -o name,uuid rack",
    "gnt-group info rack",
    "gnt-group list-tags rack",
    "gnt-group add-tags --plan rack x",
    "gnt-group modify --plan --alloc-policy=last_resort rack",
    "gnt-group rename --plan rack row",
    "gnt-group remove --plan rack",
    "gnt-group assign-nodes --plan rack node3.example.com",
    "gnt-group evacuate --plan --to rack default",
    "gnt-instance list -o name,pnode inst2.example.com inst1.example.com",
    "gnt-instance info -s inst1.example.com",
    "gnt-instance list-tags inst1.example.com",
    "gnt-instance add-tags --plan inst1.example.com x",
    "gnt-instance remove-tags --plan inst1.example.com old",
    "gnt-instance startup --plan inst2.example.com",
    "gnt-instance startup --plan --node -f node1.example.com",
    "gnt-instance shutdown --plan inst1.example.com",
    "gnt-instance shutdown --plan --primary node1.example.com",
    "gnt-instance reboot --plan inst1.example.com",
    "gnt-instance failover --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance migrate --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance move --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance change-group --plan --to rack inst1.example.com",
    "gnt-instance activate-disks --plan inst1.example.com",
    "gnt-instance deactivate-disks --plan inst1.example.com",
    "gnt-instance grow-disk --plan inst1.example.com 0 64m",
    "gnt-instance recreate-disks --plan -n node3.example.com inst2.example.com",
    "gnt-instance reinstall --plan -f inst2.example.com",
    "gnt-instance remove --plan -f inst1.example.com",
    "gnt-instance rename --plan inst2.example.com new.example.com",
    "gnt-instance modify --plan --disk data:modify,name=boot inst1.example.com",
    "gnt-instance modify --plan --net lan:modify,name=wan inst1.example.com",
    "gnt-instance modify --plan --new-primary node3.example.com inst2.example.com",
    "gnt-cluster verify-disks -g rack",
    "gnt-cluster repair-disk-sizes --plan inst1.example.com",
    "gnt-cluster capacity -g rack --memory 128m --disk 1g",
    "gnt-cluster balance --plan -g rack",
    "gnt-debug delay --plan -n node2.example.com --no-master 0.1",
    "gnt-debug allocator --dir in -m relocate inst1.example.com",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_does_the_same_by_name_and_by_uuid(master, line):
    names = names_of(master.store.snapshot())
    uuids = {name: uuid for uuid, name in names.items()}
    results = []
    for words in (line, in_words(line, uuids)):
        with master.client() as client:
            done = commands.run(words, client, environ=environ(master))
        results.append((done.code, plain([done.out, done.err], names)))
    assert results[0] == results[1]
    assert "not known" not in results[0][1]
    assert results[0][0] != USAGE


def in_words(line, uuids):
    """Return a command with uuids in place of names, also inside of words."""
    return " ".join(
        ":".join(uuids.get(part, part) for part in word.split(":"))
        for word in line.split()
    )


def environ(master):
    return {
        "GANETI_ROOTDIR": master.paths.root,
        "GANETI_HOSTNAME": master.paths.hostname,
    }


# References
def test_no_record_has_the_name_of_another_object(master):
    snapshot = master.store.snapshot()
    names = set(names_of(snapshot).values()) - {"data", "lan", "default", "net", "rack"}
    assert len(names) == 6
    for table in objects.TABLES:
        for key, record in snapshot.table(table).items():
            text = msgspec.json.encode(record).decode()
            others = names - {getattr(record, "name", None)}
            assert not [name for name in others if name in text], (table, key)
