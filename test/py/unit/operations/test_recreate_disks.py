"""Lost disks are made again, on another node if one is named or chosen."""

import json

import pytest

from fakes import clusters, mirror_site
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.locking import Level
from ganeti.model import objects

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
NAME = "inst1.example.com"


def disk(number):
    return objects.Disk(
        uuid=f"d{number}",
        dev_type="file",
        logical_id=("loop", f"/srv/ganeti/file-storage/{NAME}/disk{number}"),
        size=64,
        iv_name=f"disk/{number}",
        serial_no=1,
        nodes=(N1,),
    )


def engine(*chosen, old_node=None, **changes):
    reported = {"success": True, "info": "fine", "result": list(chosen)} | changes
    script = {
        **SUCCESSFUL_ACTS,
        "blockdev_find": None,
        "iallocator_runner": json.dumps(reported),
        "all_instances_info": {},
        "instance_info": {},
        "node_info": ["boot", [], [{"memory_free": 1}]],
        "hooks_runner": [],
    }
    down = clusters.instance(
        1, disks=["d0", "d1"], admin_state="down", disks_active=False
    )
    first = clusters.node(1, **(old_node or {}))
    return Engine(
        clusters.snapshot(extra=[disk(0), disk(1), down, first], master_node=N2),
        script,
    )


def recreate(**changes):
    return {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "instance_name": NAME} | changes


def created(eng):
    return [(node, args[1]) for node, args in eng.rpc.called("blockdev_create")]


def test_an_allocator_chooses_the_node_for_all_disks():
    eng = engine("node3.example.com")
    eng.run(recreate(iallocator="mine", disks=[0, [1, {"size": 96}]]))
    assert created(eng) == [(N3, 64), (N3, 96)]
    (instance,) = eng.snapshot.instances.values()
    assert instance.primary_node == N3
    assert {d.nodes for d in eng.snapshot.instance_disks(instance)} == {(N3,)}
    ((_node, (_name, text, _options)),) = eng.rpc.called("iallocator_runner")
    asked = json.loads(text)
    # Allocators know it as a new instance, and count it once.
    assert asked["instances"] == {}
    asked = asked["request"]
    assert asked["type"] == "allocate"
    assert (asked["name"], asked["disk_template"]) == (NAME, "file")
    assert [disk["size"] for disk in asked["disks"]] == [64, 96]
    assert asked["group_name"] == "default"
    assert "not removed" in eng.callbacks.text()


def test_the_choice_locks_all_nodes_and_keeps_two():
    eng = engine("node3.example.com")
    held = []
    eng.rpc.script["blockdev_create"] = lambda node, args: held.append(
        {level: set(eng.locks.owned(level)) for level in (Level.NODE, Level.NODE_RES)}
    )
    eng.run(recreate(iallocator="mine"))
    modes = eng.locks.modes()
    assert modes[Level.NODE] == modes[Level.NODE_RES] == (None, False)
    assert held == [{Level.NODE: {N1, N3}, Level.NODE_RES: {N1, N3}}] * 2


def test_the_choice_may_be_the_old_node():
    eng = engine("node1.example.com")
    eng.run(recreate(iallocator="mine"))
    assert created(eng) == [(N1, 64), (N1, 64)]
    assert "not removed" not in eng.callbacks.text()


def test_disks_of_a_lost_node_are_made_elsewhere():
    eng = engine("node2.example.com", old_node={"offline": True})
    eng.run(recreate(iallocator="mine"))
    assert created(eng) == [(N2, 64), (N2, 64)]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (recreate(iallocator="mine", nodes=["node2"]), "an allocator or nodes"),
        (recreate(iallocator="mine", disks=[1]), "recreates all disks"),
        (recreate(nodes=["node2"], disks=[1]), "recreates all disks"),
        (recreate(iallocator="."), "the cluster has no default allocator"),
    ],
)
def test_contradictions_are_refused(request_, text):
    eng = engine("node2.example.com")
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(request_)
    assert eng.snapshot is before


def test_an_allocator_without_a_node_is_a_refusal():
    eng = engine(success=False, info="all full")
    with pytest.raises(errors.OpPrereqError, match="mine: all full"):
        eng.run(recreate(iallocator="mine"))
    assert created(eng) == []


def standing(*numbers):
    """Return an answer of nodes on which some disks exist."""
    paths = [disk(number).logical_id[1] for number in numbers]
    return lambda _node, args: {"dev": 1} if args[0]["logical_id"][1] in paths else None


def refused(eng, request_):
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError) as caught:
        eng.run(request_)
    assert eng.snapshot is before
    assert created(eng) == []
    return caught.value.args


def test_a_disk_that_is_there_is_refused_before_anything_is_done():
    eng = engine()
    eng.rpc.script["blockdev_find"] = standing(0, 1)
    text, code = refused(eng, recreate())
    assert code == "already_exists"
    for part in (NAME, "disk/0", "disk/1", disk(1).logical_id[1], "node1.example.com"):
        assert part in text
    assert "--disk" not in text


def test_the_lost_disks_among_others_can_be_named_alone():
    eng = engine()
    eng.rpc.script["blockdev_find"] = standing(0)
    text, _code = refused(eng, recreate())
    assert "disk/1" not in text
    assert "--disk 1" in text
    eng.run(recreate(disks=[1]))
    assert created(eng) == [(N1, 64)]


def test_disks_are_looked_for_where_they_would_be_made():
    eng = engine()
    eng.rpc.script["blockdev_find"] = lambda node, _args: (
        {"dev": 1} if node == N1 else None
    )
    eng.run(recreate(nodes=["node2"]))
    assert created(eng) == [(N2, 64), (N2, 64)]
    text, _code = refused(eng, recreate(nodes=["node1"]))
    assert "node1.example.com" in text


def test_a_node_that_does_not_know_is_a_refusal():
    eng = engine()
    eng.rpc.script["blockdev_find"] = failure("found something else")
    text, code = refused(eng, recreate())
    assert "found something else" in text
    assert code == "environment_error"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (["/dev/x", None, None], "only lost disks are recreated"),
        (failure("too many calls", is_rejected=True), "too many calls"),
    ],
)
def test_external_storage_is_lost_only_if_its_provider_says_so(answer, text):
    eng = engine()
    with eng.config.edit("test") as edit:
        for number in (0, 1):
            external = disk(number).replace(
                dev_type="ext", logical_id=("box", f"v{number}")
            )
            edit.update(external)
        cluster = edit.snapshot.cluster
        edit.update(cluster.replace(enabled_disk_templates=("ext",)))
    eng.rpc.script["blockdev_assemble"] = answer
    assert text in refused(eng, recreate())[0]
    eng.rpc.script["blockdev_assemble"] = failure("no such volume")
    eng.run(recreate())
    assert len(created(eng)) == 2


class LostSite(mirror_site.MirrorSite):
    """A stopped instance whose mirrors are lost on both nodes."""

    OP_ID = "OP_INSTANCE_RECREATE_DISKS"

    def __init__(self):
        super().__init__(
            mirror_site.mirrored_disks(),
            is_active=False,
            instance={"admin_state": "down"},
            cluster={
                "prealloc_wipe_disks": True,
                "enabled_disk_templates": ["drbd"],
            },
        )
        self.nodes.volumes.clear()
        self.nodes.do_blockdev_create = self.create

    def create(self, node, args):
        """Create a disk, perhaps again: nobody needs what was written to another."""
        self.nodes.written.clear()
        return type(self.nodes).do_blockdev_create(self.nodes, node, args)


TO_NODE3 = {"nodes": ["node1.example.com", "node3.example.com"]}


def test_remains_of_an_earlier_job_are_not_taken_for_the_new_disks():
    site = LostSite()
    # An earlier job could not remove its copy from the third node, which was silent.
    remains = [
        config.MadeDisk(disk.replace(nodes=(N1, N3)), (N3,))
        for disk in site.snapshot.disks.values()
    ]
    earlier = site.master()
    earlier.config.disk_notes.add("8/0", config.DiskNote("inst1", tuple(remains)))
    earlier.config.disk_notes.leave("8/0")
    site.documents = dict(earlier.store.documents)
    sweeps = []

    def wipe(_node, _args):
        sweeps.append(site.sweep(site.engine))

    site.nodes.do_blockdev_wipe = wipe
    site.run(TO_NODE3)
    assert sweeps
    assert not any(sweeps)
    site.require_right()
    assert site.sweep()
    site.require_right()


def test_disks_for_other_nodes_that_have_no_record_yet_leave_nothing_behind():
    cut, is_cut = 0, True
    while is_cut:
        cut += 1
        site = LostSite()
        site.nodes.do_blockdev_wipe = lambda _node, _args: None
        is_cut = site.run(TO_NODE3, cut=cut)
        if is_cut and site.resumption is not None:
            site.run(TO_NODE3, resumption=site.resumption)
            is_moved = True
        else:
            is_moved = not is_cut
        assert site.sweep()
        # Without a record nothing may stay on the third node.
        on_third = {key for key in site.nodes.volumes if key[0] == N3}
        assert bool(on_third) == is_moved
    assert cut > 10


def test_spindles_need_exclusive_storage_of_all_nodes():
    for changes in ({}, {"nodes": ["node3.example.com"]}):
        eng = engine()
        request = recreate(disks=[[0, {"spindles": 2}], [1, {}]], **changes)
        with pytest.raises(
            errors.OpPrereqError, match="disk 0: spindles can only be given with excl"
        ):
            eng.run(request)
        assert created(eng) == []
