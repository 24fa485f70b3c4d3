"""Locks of nodes during parts of operations that may take long."""

import pytest

from fakes import clusters, exporting
from fakes.engine import Engine, creation
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.master.locking import Level

NODE1 = clusters.node_uuid(1)
BIG = 1 << 20


def node_info(free_mib):
    return ["boot", [], [{"memory_free": free_mib, "hv_version": "7.2"}]]


def create(**changes):
    return creation(ignore_ipolicy=True) | changes


def modify(**changes):
    return {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": "web1.example.com",
        "ignore_ipolicy": True,
    } | changes


def held(eng):
    """Return level -> mode of the locks of node 1."""
    uuid, modes = NODE1, {}
    for level in (Level.NODE, Level.NODE_RES):
        if eng.locks.owns(level, [uuid], shared=0):
            modes[level] = "exclusive"
        elif eng.locks.owns(level, [uuid], shared=1):
            modes[level] = "shared"
    return modes


EXCLUSIVE = {Level.NODE: "exclusive", Level.NODE_RES: "exclusive"}
READABLE = {Level.NODE: "shared", Level.NODE_RES: "exclusive"}


def engine(*watched, wipe=False, **answers):
    """Return an engine, and the locks seen at the calls of the watched procedures."""
    seen = {}
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": node_info(BIG),
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
    } | answers
    start = clusters.snapshot(instances=0, prealloc_wipe_disks=wipe)
    eng = Engine(start, script)
    watch(eng, seen, watched)
    return eng, seen


def watch(eng, seen, names):
    """Note the locks at the first call of each of these procedures."""
    for name in names:
        payload = eng.rpc.script.get(name)
        eng.rpc.script[name] = lambda _node, _args, name=name, payload=payload: (
            (seen.setdefault(name, held(eng)) and None) or payload
        )


def test_no_node_is_locked_while_an_os_script_runs():
    eng, seen = engine("blockdev_create", "instance_os_add", "instance_start")
    eng.run(create())
    assert seen == {
        "blockdev_create": EXCLUSIVE,
        "instance_os_add": {},
        "instance_start": {},
    }
    assert eng.locks.is_idle()


@pytest.mark.parametrize("no_install", [False, True], ids=["installed", "empty"])
def test_no_node_is_locked_while_new_disks_are_activated(no_install):
    eng, seen = engine("blockdev_create", "blockdev_assemble")
    eng.run(create(no_install=no_install))
    assert seen == {"blockdev_create": EXCLUSIVE, "blockdev_assemble": {}}


def test_memory_used_by_others_during_the_script_leaves_the_instance_stopped():
    eng, _seen = engine()

    def install(_node, _args):
        eng.rpc.script["node_info"] = node_info(16)

    eng.rpc.script["instance_os_add"] = install
    with pytest.raises(
        errors.OpExecError, match=r"16 MiB free.*installed, but not sta"
    ):
        eng.run(create())
    (made,) = eng.snapshot.instances.values()
    assert made.admin_state == "down"
    assert not eng.rpc.called("instance_start")


def test_nodes_can_be_read_during_a_wipe_and_a_copy():
    eng, seen = engine("blockdev_wipe", wipe=True)
    eng.run(create(start=False))
    assert seen == {"blockdev_wipe": READABLE}
    eng, seen = engine("blockdev_convert_part")
    eng.run(create(start=False))
    eng.run(modify(disk_template="sharedfile"))
    assert seen == {"blockdev_convert_part": READABLE}


SHARED = {Level.NODE: "shared"}
STOPPED = {"admin_state": "down", "disks_active": False}


@pytest.mark.parametrize(
    ("template", "changes", "is_running", "request_", "wanted"),
    [
        ("plain", {}, True, {}, SHARED),
        ("plain", {}, True, {"shutdown": False}, SHARED),
        ("file", STOPPED, False, {}, SHARED),
        ("plain", STOPPED, False, {"remove_instance": True}, SHARED),
        # The guest gets its memory back after the copy, or if the export fails.
        ("file", {}, True, {"long_sleep": True}, READABLE),
        ("plain", {}, True, {"remove_instance": True}, READABLE),
    ],
)
def test_other_guests_start_during_the_copy_of_an_export(
    template, changes, is_running, request_, wanted
):
    """Exports of a node still wait for each other: the space of snapshots is one's."""

    def made(seen):
        guest = exporting.Guest(runs=is_running)
        eng = exporting.engine(template, changes, **guest.answers())
        watch(eng, seen, ["blockdev_snapshot", "export_start"])
        return eng

    seen, keeping = {}, KeepingCallbacks()
    op = {
        "OP_ID": "OP_BACKUP_EXPORT",
        "instance_name": "inst1",
        "target_node": "node2.example.com",
    } | request_
    eng = made(seen)
    eng.run(op, callbacks=keeping)
    assert seen["export_start"] == wanted
    assert seen.get("blockdev_snapshot", EXCLUSIVE) == EXCLUSIVE
    assert eng.locks.is_idle()
    # The same holds for an export that a restarted master daemon continues.
    prepared = next(s for s in keeping.states if s["is_prepared"])
    seen, again = {}, FakeCallbacks()
    again.resumption = prepared
    made(seen).run(op, callbacks=again)
    assert seen == {"export_start": wanted}
