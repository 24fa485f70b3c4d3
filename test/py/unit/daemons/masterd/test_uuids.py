"""Every object parameter of opcodes, calls and commands: by name and by uuid.

Each operation is planned by a whole master daemon twice, with the names of objects and
with their uuids in place of them. Both plans are the same: locks, steps, changes, and
the error if these fake nodes or this cluster refuse it, which is never that an object
is unknown. Calls of LUXI and commands answer the same in both forms, too.
"""

import importlib
import pkgutil
import shlex

import msgspec
import pytest

from fakes import commands, named_objects
from fakes.named_objects import (
    I1,
    I2,
    N1,
    N2,
    N3,
    N4,
    in_words,
    names_of,
    plain,
    with_uuids,
)
from ganeti import commands as programs
from ganeti.base import errors
from ganeti.daemons.masterd.methods.calls import METHODS
from ganeti.devel.sim import command as simulator
from ganeti.model import objects, opcodes
from ganeti.operations.unit_table import UNITS

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
    ("OP_BACKUP_EXPORT", "instance_name"): "needs disks; test_backup has its tests",
    ("OP_BACKUP_EXPORT", "target_node"): "needs disks; test_backup has its tests",
    ("OP_BACKUP_REMOVE", "instance_name"): "the name of an export",
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
_CREATE = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "new.example.com",
    "mode": "create",
    "disk_template": "diskless",
    "disks": [],
    "nics": [],
    "no_install": True,
    "os_type": "tiny",
    "hypervisor": "kvm",
    "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
    "ip_check": False,
    "name_check": False,
}
#: Wire form of the operations by name. All parameters of `OBJECTS` occur.
EXAMPLES = (
    {"OP_ID": "OP_BACKUP_PREPARE", "instance_name": I1, "mode": "local"},
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
    _CREATE | {"pnode": N2},
    _CREATE | {"group_name": "rack", "iallocator": "hail"},
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


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    made = named_objects.open_master(tmp_path_factory.mktemp("uuids"))
    yield made
    made.stop()


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


def test_every_call_has_a_row():
    rows = {method for method, _args in named_objects.CALLS}
    assert rows | set(named_objects.OTHER_CALLS) == set(METHODS)
    assert not rows & set(named_objects.OTHER_CALLS)


@pytest.mark.parametrize(("method", "args"), named_objects.CALLS)
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


def command_tables():
    for row in pkgutil.iter_modules(programs.__path__):
        if row.ispkg and row.name not in ("cli", "htools"):
            yield importlib.import_module(
                f"{programs.__name__}.{row.name}.table"
            ).PROGRAM


def uses_of(row):
    """Return the options of a command, and its arguments, that name objects."""
    for option in row.options:
        if option.kind in named_objects.TEXTS:
            known = [name for name in option.names if name in named_objects.OPTIONS]
            others = named_objects.OTHER_OPTIONS.intersection(option.names)
            assert known or others, f"{row.name}: may {option.names} name objects?"
            if known:
                yield option
    for argument in row.arguments:
        pair = argument.kind, argument.name
        known = pair in named_objects.ARGUMENTS
        assert known or pair in named_objects.OTHER_ARGUMENTS, pair
        if known:
            yield argument


def has_row(program, row, use):
    """Return whether a row uses an option, or has arguments."""
    for line in (*named_objects.COMMANDS, *named_objects.ON_NODES):
        first, command, *words = line.split()
        if first == program.name and program.find(command) is row:
            spellings = {word.partition("=")[0] for word in words}
            if not hasattr(use, "names") or spellings.intersection(use.names):
                return True
    return False


def test_every_command_that_names_objects_has_rows():
    missing = []
    for program in command_tables():
        for row in program.offered():
            for use in uses_of(row):
                names = getattr(use, "names", None) or (use.name or use.kind,)
                command = f"{program.name} {row.name}"
                is_other = any((command, n) in named_objects.OTHER_USES for n in names)
                if not is_other and not has_row(program, row, use):
                    missing.append((command, names))
    assert missing == []


@pytest.mark.parametrize("line", named_objects.COMMANDS)
def test_a_command_does_the_same_by_name_and_by_uuid(master, line):
    names = names_of(master.store.snapshot())
    uuids = {name: uuid for uuid, name in names.items()}
    results = []
    # The command would replace this process by the simulator.
    table = simulator.PROGRAM if line.startswith("gnt-cluster simulate") else None
    for words in (shlex.split(line), in_words(line, uuids)):
        with master.client() as client:
            done = commands.run(words, client, environ=environ(master), table=table)
        results.append((done.code, plain([done.out, done.err], names)))
    assert results[0] == results[1]
    assert "' not known" not in results[0][1]
    assert results[0][0] != USAGE


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
