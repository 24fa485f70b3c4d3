"""All logical units against the tables of hooks, locks and opcodes."""

import json
import pathlib

import msgspec
import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.master.locking import Level
from ganeti.model import opcodes
from ganeti.operations.unit_table import UNITS

SPEC = pathlib.Path(__file__).parents[3] / "data" / "spec"
HOOKS = json.loads((SPEC / "hooks.json").read_text())
WITH_HOOKS = {row["op"]: row for row in HOOKS["operations"]}
OPCODES = {
    row["op"]: row for row in json.loads((SPEC / "opcodes.json").read_text())["opcodes"]
}
N1, N2, N3, N9 = (clusters.node_uuid(n) for n in (1, 2, 3, 9))
RACK = "00000000-0000-4000-8000-0000000000b0"
LAN, DMZ = clusters.NETWORK, "00000000-0000-4000-8000-0000000000c1"
CONNECTION = {"mode": "bridged", "link": "br0", "vlan": ""}


@pytest.mark.parametrize("op", sorted(UNITS))
def test_units_have_the_documented_hooks_and_big_lock(op):
    unit, row = UNITS[op], WITH_HOOKS.get(op)
    wanted = (row["hook"], row["object_type"]) if row else (None, None)
    assert wanted == (unit.HOOKS_PATH, unit.HOOKS_TYPE)
    assert OPCODES[op]["exclusive_cluster_lock"] == unit.EXCLUSIVE


def test_every_unit_is_for_an_opcode_that_has_a_server_side():
    assert set(UNITS) <= {op for op, row in OPCODES.items() if row["server_side"]}


def test_only_opcodes_that_submit_jobs_return_them():
    for op, cls in opcodes.OPCODES.items():
        assert OPCODES[op]["submits_jobs"] == cls.SUBMITS_JOBS, op


# Examples of lock and hook placement
def engine(op):
    start = clusters.snapshot(
        nodes=1 if op in ("OP_CLUSTER_POST_INIT", "OP_CLUSTER_DESTROY") else 3,
        extra=[
            clusters.group("rack", RACK),
            clusters.group(networks={DMZ: CONNECTION}),
            clusters.network(),
            clusters.network("dmz", DMZ, network="192.0.2.0/28"),
        ],
        candidate_pool_size=1,
    )
    made = Engine(
        start,
        {
            **SUCCESSFUL_ACTS,
            "version": 3010000,
            "node_has_ip_address": True,
            "node_powercycle": "",
            "store_status": {"revision": 1, "term": 1, "digest": ""},
            "node_verify": {"nodelist": {}},
            "node_crypto_tokens": [["ssl", clusters.DIGEST]],
            "hooks_runner": [],
            "node_ssh_key_add": [],
            "node_ssh_key_remove": [],
            "etc_hosts_modify": True,
            "storage_list": [],
            "node_volumes": [],
            "blockdev_getmirrorstatus_multi": [],
            "restricted_command": "",
            "repair_command": "",
        },
        root=ROOT,
    )
    made.hosts["node9"] = ("node9.example.com", ["192.0.2.9"])
    made.hosts["new"] = ("new.example.com", ["192.0.2.200"])
    made.dead.add("192.0.2.200")
    return made


ROOT = "/nonexistent/n1"
EXAMPLES = {
    "OP_CLUSTER_POST_INIT": {},
    "OP_CLUSTER_DESTROY": {},
    "OP_CLUSTER_RENAME": {"name": "new"},
    "OP_CLUSTER_SET_PARAMS": {"max_running_jobs": 3},
    "OP_CLUSTER_VERIFY_GROUP": {"group_name": "default"},
    "OP_GROUP_ADD": {"group_name": "g"},
    "OP_GROUP_REMOVE": {"group_name": "rack"},
    "OP_GROUP_RENAME": {"group_name": "default", "new_name": "g"},
    "OP_GROUP_SET_PARAMS": {"group_name": "rack", "alloc_policy": "last_resort"},
    "OP_NETWORK_ADD": {
        "network_name": "new",
        "network": "198.51.100.0/24",
        "gateway": "198.51.100.1",
        "network6": "2001:db8::/64",
        "gateway6": "2001:db8::1",
        "mac_prefix": "aa:00:01",
        "tags": ["a"],
    },
    "OP_NETWORK_CONNECT": {
        "network_name": "lan",
        "group_name": "default",
        "network_mode": "bridged",
        "network_link": "br0",
    },
    "OP_NETWORK_DISCONNECT": {"network_name": "dmz", "group_name": "default"},
    "OP_NETWORK_REMOVE": {"network_name": "lan"},
    "OP_NETWORK_RENAME": {"network_name": "dmz", "new_name": "outside"},
    "OP_NETWORK_SET_PARAMS": {
        "network_name": "lan",
        "gateway": "198.51.100.1",
        "network6": "2001:db8::/64",
        "gateway6": "2001:db8::1",
        "mac_prefix": "aa:00:01",
    },
    "OP_NODE_ADD": {"node_name": "node9", "group": "default"},
    "OP_NODE_REMOVE": {"node_name": "node2"},
    "OP_NODE_SET_PARAMS": {"node_name": "node2", "drained": True},
}
#: Words of the hooks table -> nodes in the cluster of `engine`.
NODES = {
    "master": {N1},
    "the node": {N2},
    "all nodes": {N1, N2, N3},
    "all nodes of the group": {N1, N2, N3},
    "members of the group": {N1, N2, N3},
    "members of all groups connected to the network": {N1, N2, N3},
    "all other nodes": {N1, N3},
    "all nodes but the one being (re-)added": {N1, N2, N3},
    "all nodes but the one being added": {N1, N2, N3},
    "the new node": {"NEW"},
}


@pytest.mark.parametrize("op", sorted(EXAMPLES))
def test_hooks_run_on_the_documented_nodes_with_the_documented_variables(op, tmp_path):
    # Scripts on the master, so that phases on the master alone are not skipped.
    row = WITH_HOOKS[op]
    root = tmp_path / "n1"
    for phase in ("pre", "post"):
        (root / f"etc/ganeti/hooks/{row['hook']}-{phase}.d").mkdir(parents=True)
    made = engine(op)
    made.root = str(root)
    before = set(made.snapshot.nodes)
    made.run({"OP_ID": op, **EXAMPLES[op]})
    asked = {"pre": set(), "post": set()}
    for node, (hook, phase, env) in made.rpc.called("hooks_runner"):
        if hook == "config-update":
            continue
        assert hook == row["hook"]
        asked[phase].add(node if node in before else "NEW")
        check_variables(row, phase, env)
    wanted = {
        phase: set().union(*(NODES[word] for word in row[f"{phase}_nodes"]))
        for phase in asked
    }
    if op == "OP_NODE_REMOVE":
        wanted["post"].add(N2)
    if op == "OP_CLUSTER_DESTROY":
        wanted["post"] = {N1}
    assert asked == wanted


NETWORK_ENV = {row["var"] for row in HOOKS["network_env"]} - {"(all)"}
#: Variables without a value, which are left out.
UNTAGGED = {"OP_NETWORK_SET_PARAMS": {"NETWORK_TAGS"}}
COMMON = {row["var"] for row in HOOKS["common_env"]}


def check_variables(row, phase, env):
    names = set()
    for name in row["env"]:
        if name.startswith("NODE_TAGS_"):
            names |= {f"NODE_TAGS_node{n}.example.com" for n in (1, 2, 3)}
        elif name == "NETWORK_ENV":
            names |= NETWORK_ENV - UNTAGGED.get(row["op"], set())
        elif name.endswith(" (if connected)"):
            names.add(name.removesuffix(" (if connected)"))
        else:
            names.add(name)
    wanted = COMMON | {f"GANETI_{name}" for name in names}
    if phase == "post":
        wanted |= {f"GANETI_POST_{name}" for name in names}
    assert set(env) == wanted


ALL_X, ALL_S = (None, False), (None, True)


def some(shared, *names):
    return (frozenset(names), shared)


#: opcode, parameters -> locks by level as the table of operations says; the big lock
#: is compared by `test_units_have_the_documented_hooks_and_big_lock`.
LOCKS = [
    ("OP_CLUSTER_ACTIVATE_MASTER_IP", {}, {}),
    ("OP_CLUSTER_DEACTIVATE_MASTER_IP", {}, {}),
    ("OP_CLUSTER_DESTROY", {}, {}),
    ("OP_CLUSTER_POST_INIT", {}, {}),
    ("OP_CLUSTER_RENAME", {"name": "new"}, {}),
    ("OP_CLUSTER_QUERY", {}, {}),
    ("OP_CLUSTER_CONFIG_QUERY", {"output_fields": ["name"]}, {}),
    ("OP_CLUSTER_VERIFY", {}, {}),
    ("OP_CLUSTER_VERIFY_DISKS", {}, {}),
    (
        "OP_CLUSTER_SET_PARAMS",
        {"max_running_jobs": 3},
        {Level.INSTANCE: ALL_S, Level.NODEGROUP: ALL_S, Level.NODE: ALL_S},
    ),
    ("OP_CLUSTER_REDIST_CONF", {}, {Level.NODEGROUP: ALL_S, Level.NODE: ALL_S}),
    (
        "OP_CLUSTER_VERIFY_CONFIG",
        {},
        {level: ALL_S for level in Level if level is not Level.CLUSTER},
    ),
    (
        "OP_CLUSTER_VERIFY_GROUP",
        {"group_name": "default"},
        {
            Level.NODEGROUP: some(True, clusters.GROUP),
            Level.NODE: some(True, N1, N2, N3),
        },
    ),
    (
        "OP_GROUP_VERIFY_DISKS",
        {"group_name": "default"},
        {
            Level.NODEGROUP: some(True, clusters.GROUP),
            Level.NODE: some(True, N1, N2, N3),
        },
    ),
    ("OP_CLUSTER_REPAIR_DISK_SIZES", {}, {Level.INSTANCE: ALL_X}),
    ("OP_NODE_ADD", {"node_name": "node9", "group": "default"}, {}),
    ("OP_NODE_REMOVE", {"node_name": "node2"}, {}),
    ("OP_NODE_POWERCYCLE", {"node_name": "node2"}, {}),
    (
        "OP_NODE_MODIFY_STORAGE",
        {
            "node_name": "node2",
            "storage_type": "lvm-pv",
            "name": "/dev/sda",
            "changes": {"allocatable": False},
        },
        {Level.NODE: some(False, N2)},
    ),
    (
        "OP_REPAIR_NODE_STORAGE",
        {"node_name": "node2", "storage_type": "lvm-vg", "name": "xenvg"},
        {Level.NODE: some(False, N2)},
    ),
    (
        "OP_NODE_SET_PARAMS",
        {"node_name": "node2", "drained": True},
        {Level.NODE: some(False, N2), Level.NODE_RES: some(False, N2)},
    ),
    (
        "OP_NODE_SET_PARAMS",
        {"node_name": "node2", "drained": True, "auto_promote": True},
        {Level.NODE: ALL_X, Level.NODE_RES: ALL_X},
    ),
    (
        "OP_NODE_QUERY_STORAGE",
        {"output_fields": ["name"], "storage_type": "file"},
        {Level.NODE: some(True, N1, N2, N3)},
    ),
    (
        "OP_NODE_QUERYVOLS",
        {"output_fields": ["name"], "nodes": ["node1"]},
        {Level.NODE: some(True, N1)},
    ),
    ("OP_OOB_COMMAND", {"command": "health"}, {Level.NODE: ALL_X}),
    (
        "OP_OOB_COMMAND",
        {"command": "health", "node_names": ["node2"]},
        {Level.NODE: some(False, N2)},
    ),
    (
        "OP_RESTRICTED_COMMAND",
        {"command": "x", "nodes": ["node2"]},
        {Level.NODE: some(True, N2)},
    ),
    (
        "OP_REPAIR_COMMAND",
        {"command": "x", "node_name": "node2"},
        {Level.NODE: some(False, N2)},
    ),
    (
        "OP_GROUP_REMOVE",
        {"group_name": "rack"},
        {Level.NODEGROUP: some(False, RACK)},
    ),
    (
        "OP_GROUP_RENAME",
        {"group_name": "rack", "new_name": "x"},
        {Level.NODEGROUP: some(False, RACK)},
    ),
    (
        "OP_GROUP_SET_PARAMS",
        {"group_name": "rack", "alloc_policy": "last_resort"},
        {Level.NODEGROUP: some(False, RACK)},
    ),
    (
        "OP_GROUP_ASSIGN_NODES",
        {"group_name": "rack", "nodes": ["node2"]},
        {
            Level.NODEGROUP: some(False, RACK, clusters.GROUP),
            Level.NODE: some(False, N2),
        },
    ),
    (
        "OP_NETWORK_ADD",
        {"network_name": "new", "network": "192.0.2.0/28", "conflicts_check": False},
        {Level.NETWORK: some(False)},
    ),
    (
        "OP_NETWORK_ADD",
        {"network_name": "new", "network": "192.0.2.0/30"},
        {Level.NODE: some(True, N1, N2, N3), Level.NETWORK: some(False)},
    ),
    (
        "OP_NETWORK_CONNECT",
        EXAMPLES["OP_NETWORK_CONNECT"],
        {
            Level.NODEGROUP: some(False, clusters.GROUP),
            Level.NETWORK: some(True, LAN),
        },
    ),
    (
        "OP_NETWORK_CONNECT",
        EXAMPLES["OP_NETWORK_CONNECT"] | {"conflicts_check": False},
        {
            Level.NODEGROUP: some(False, clusters.GROUP),
            Level.NETWORK: some(True, LAN),
        },
    ),
    (
        "OP_NETWORK_DISCONNECT",
        EXAMPLES["OP_NETWORK_DISCONNECT"],
        {
            Level.NODEGROUP: some(False, clusters.GROUP),
        },
    ),
    (
        "OP_NETWORK_REMOVE",
        {"network_name": "lan"},
        {Level.NODEGROUP: ALL_S, Level.NETWORK: some(False, LAN)},
    ),
    (
        "OP_NETWORK_RENAME",
        {"network_name": "lan", "new_name": "x"},
        {Level.NETWORK: some(False, LAN)},
    ),
    (
        "OP_NETWORK_SET_PARAMS",
        {"network_name": LAN, "mac_prefix": "aa:00:01"},
        {Level.NETWORK: some(False, LAN)},
    ),
    (
        "OP_TAGS_SET",
        {"kind": "network", "name": "lan", "tags": ["a"]},
        {Level.NETWORK: some(False, LAN)},
    ),
    (
        "OP_TAGS_SET",
        {"kind": "node", "name": "node2", "tags": ["a"]},
        {Level.NODE: some(False, N2)},
    ),
    ("OP_TAGS_SET", {"kind": "cluster", "tags": ["a"]}, {}),
    ("OP_TAGS_GET", {"kind": "node", "name": "node2"}, {}),
    ("OP_TAGS_SEARCH", {"pattern": "x"}, {}),
    ("OP_OS_DIAGNOSE", {"output_fields": ["name"]}, {}),
    ("OP_EXT_STORAGE_DIAGNOSE", {"output_fields": ["name"]}, {}),
    ("OP_QUERY", {"what": "cluster", "fields": ["name"]}, {}),
]


@pytest.mark.parametrize(("op", "options", "locks"), LOCKS)
def test_locks_are_those_of_the_table(op, options, locks):
    made = engine(op)
    made.rpc.script["os_diagnose"] = made.rpc.script["extstorage_diagnose"] = []
    made.run({"OP_ID": op, **options})
    assert made.locks.modes() == locks
    assert made.locks.is_idle()


def test_a_new_group_is_locked_while_it_is_created():
    made = engine("OP_GROUP_ADD")
    made.run({"OP_ID": "OP_GROUP_ADD", "group_name": "g"})
    (request,) = [r for r in made.locks.requests if r.level is Level.NODEGROUP]
    assert list(request.adding) == [made.snapshot.uuid_of("nodegroups", "g")]


@pytest.mark.parametrize("op", sorted(EXAMPLES))
def test_a_dry_run_changes_nothing(op):
    made = engine(op)
    before = made.snapshot
    made.run({"OP_ID": op, "dry_run": True, **EXAMPLES[op]})
    assert made.snapshot is before
    touching = {"hooks_runner", "version", "vg_list", "os_validate"}
    assert {name for name, _, _ in made.rpc.calls} <= touching


def test_opcodes_can_be_run_again_by_their_wire_form():
    for op, options in EXAMPLES.items():
        decoded = opcodes.decode({"OP_ID": op, **options})
        assert opcodes.decode(opcodes.encode(decoded)) == decoded
        assert msgspec.to_builtins(decoded)["OP_ID"] == op
