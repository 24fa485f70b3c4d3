"""Conversions between plain disks and mirrors, whatever ends in between.

The nodes refuse what DRBD and LVM would refuse, and know what is on each volume.
"""

import contextlib
import copy
import json

import pytest

from fakes import clusters
from fakes.mirror_nodes import MirrorNodes
from fakes.mirror_site import MirrorSite, mirrored_disks
from ganeti.base import errors
from ganeti.master import config
from ganeti.master.config import MadeDisk
from ganeti.master.locking import Level
from ganeti.model import objects

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
NODE2, NODE3 = "node2.example.com", "node3.example.com"
TO_DRBD = {"disk_template": "drbd", "remote_node": NODE2}
TO_PLAIN = {"disk_template": "plain"}
TO_FILE = {"disk_template": "file", "ignore_ipolicy": True}


def plain_disks():
    return [
        objects.Disk(
            uuid=f"p{n}", dev_type="plain", logical_id=("xenvg", f"p{n}.disk{n}"),
            size=1024, nodes=(N1,), serial_no=1, iv_name=f"disk/{n}",
        )
        for n in (0, 1)
    ]  # fmt: skip


class Site(MirrorSite):
    """Three nodes and an instance that is stopped."""

    OP_ID = "OP_INSTANCE_SET_PARAMS"

    def __init__(self, disks, *, is_active=False, **changes):
        policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
        cluster = {"enabled_disk_templates": ["plain", "drbd"], "ipolicy": policy}
        super().__init__(
            disks,
            is_active=is_active,
            instance={"admin_state": "down"},
            cluster=cluster | changes,
        )
        self.before = self.contents()

    def contents(self):
        """Return the content of the disks by index, on each of their nodes."""
        (instance,) = self.snapshot.instances.values()
        rows = []
        for uuid in instance.disks:
            disk = self.snapshot.disks[uuid]
            data = disk.children[0] if disk.children else disk
            key = "/".join(data.logical_id)
            rows.append([self.nodes.volumes[node, key].content for node in disk.nodes])
        return rows

    def require_data(self):
        """No content may be lost; copies are equal."""
        for before, after in zip(self.before, self.contents(), strict=True):
            assert len(set(after)) == 1
            assert after[0] >= before[0]

    @property
    def kinds(self):
        return {disk.dev_type for disk in self.snapshot.disks.values()}


def site_for(request, **options):
    is_back = request["disk_template"] == "plain"
    return Site(mirrored_disks() if is_back else plain_disks(), **options)


@pytest.mark.parametrize("is_active", [False, True])
def test_plain_disks_become_mirrors_with_the_data_that_they_have(is_active):
    site = Site(plain_disks(), is_active=is_active)
    site.run(TO_DRBD)
    site.require_right()
    site.require_data()
    disks = list(site.snapshot.disks.values())
    assert {disk.nodes for disk in disks} == {(N1, N2)}
    assert len({disk.logical_id[2] for disk in disks} - {None}) == 2
    places = [[child.logical_id[1] for child in disk.children] for disk in disks]
    assert sorted(places) == [[f"p{n}.disk{n}", f"p{n}.disk{n}_meta"] for n in (0, 1)]
    assert not any(data for key, data in site.documents.items() if "disks/" in key[1])


@pytest.mark.parametrize("is_active", [False, True])
def test_mirrors_become_the_volumes_of_the_primary_node(is_active):
    site = Site(mirrored_disks(), is_active=is_active)
    site.run(TO_PLAIN)
    site.require_right()
    site.require_data()
    disks = list(site.snapshot.disks.values())
    assert {disk.nodes for disk in disks} == {(N1,)}
    assert site.snapshot.cluster.tcpudp_port_pool == (11000, 11001)
    assert not site.nodes.devices


def test_there_and_back_again_to_another_node():
    site = Site(plain_disks())
    for request in (TO_DRBD, TO_PLAIN, TO_DRBD | {"remote_node": NODE3}, TO_PLAIN):
        site.run(request)
        assert site.sweep()
        site.require_right()
        site.require_data()
    (instance,) = site.snapshot.instances.values()
    names = [site.snapshot.disks[uuid].logical_id[1] for uuid in instance.disks]
    assert names == ["p0.disk0", "p1.disk1"]


@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("again", [None, 1, 3])
@pytest.mark.parametrize("request_", [TO_DRBD, TO_PLAIN], ids=["drbd", "plain"])
def test_a_conversion_that_was_cut_short_is_undone_or_completed(
    request_, again, is_active
):
    cut, is_cut, ends = 0, True, set()
    while is_cut:
        cut += 1
        site = site_for(request_, is_active=is_active)
        is_cut = site.run(request_, cut=cut)
        resumed = site.resumption
        if is_cut and resumed is not None:
            if again:
                _resume(site, request_, resumed, cut=again)
                resumed = site.resumption
            _resume(site, request_, resumed)
        elif not is_active:
            site.run({"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS"})
        ends |= site.kinds
        assert site.sweep()
        site.require_right()
        site.require_data()
        if site.kinds != {request_["disk_template"]}:
            site.run(request_)
            site.require_right()
            site.require_data()
    assert cut > 12
    assert ends == {"plain", "drbd"}


class FileNodes(MirrorNodes):
    """Nodes that have files, too; what is in them is not looked at."""

    def __init__(self, nodes):
        super().__init__()
        self.__dict__.update(nodes.__dict__)
        self.files = set()

    def do_file_storage_dir_create(self, _node, _args):
        return None

    do_file_storage_dir_remove = do_blockdev_convert_part = do_file_storage_dir_create

    def do_blockdev_create(self, node, args):
        if args[0]["dev_type"] != "file":
            return super().do_blockdev_create(node, args)
        self.files.add((node, args[0]["logical_id"][1]))
        return list(args[0]["logical_id"])

    def do_blockdev_remove(self, node, args):
        if args[0]["dev_type"] != "file":
            return super().do_blockdev_remove(node, args)
        self.files.discard((node, args[0]["logical_id"][1]))
        return None


def test_mirrors_become_files_wherever_the_master_is_killed():
    cut, is_cut, ends, request_ = 0, True, set(), TO_FILE
    templates = ["plain", "drbd", "file"]
    while is_cut:
        cut += 1
        site = Site(mirrored_disks(), enabled_disk_templates=templates)
        site.nodes = FileNodes(site.nodes)
        is_cut = site.run(request_, cut=cut)
        if is_cut and site.resumption is not None:
            _resume(site, request_, site.resumption)
        elif is_cut and site.kinds == {"drbd"}:
            site.run({"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS"})
        ends |= site.kinds
        assert site.sweep()
        if site.kinds != {"file"}:
            site.run(request_)
        assert site.kinds == {"file"}
        assert config.verify(site.snapshot) == []
        assert (site.nodes.volumes, site.nodes.devices) == ({}, {})
        assert len(site.nodes.files) == 2
    assert set(ends) == {"drbd", "plain", "file"}


def test_the_error_of_a_killed_conversion_names_the_disks_that_there_are():
    """Files become plain disks first, and these become mirrors."""
    cut, is_cut, texts = 0, True, []
    while is_cut:
        cut += 1
        site = Site(plain_disks(), enabled_disk_templates=["plain", "drbd", "file"])
        site.nodes = FileNodes(site.nodes)
        site.run(TO_FILE)
        is_cut = site.run(TO_DRBD, cut=cut)
        if is_cut and site.resumption is not None:
            texts += _error_of(site, TO_DRBD)
    assert site.kinds == {"drbd"}
    assert texts
    for kind, text in texts:
        assert f"the disks are {kind}, with all data; repeat the command" in text


def _error_of(site, request):
    """Continue a conversion; return the template that is left, and the error, if any."""
    try:
        site.run(request, resumption=site.resumption)
    except errors.OpExecError as err:
        (kind,) = site.kinds
        return [(kind, str(err))]
    return []


def _resume(site, request, resumed, **options):
    with contextlib.suppress(errors.OpExecError):
        site.run(request, resumption=resumed, **options)


@pytest.mark.parametrize("request_", [TO_DRBD, TO_PLAIN], ids=["drbd", "plain"])
def test_a_conversion_that_goes_on_has_the_locks_of_both_nodes(request_):
    cut, is_cut, count = 0, True, 0
    while is_cut:
        cut += 1
        site = site_for(request_)
        is_cut = site.run(request_, cut=cut)
        if is_cut and site.resumption is not None:
            _resume(site, request_ | {"remote_node": None}, site.resumption)
            count += 1
            names, is_shared = site.engine.locks.modes()[Level.NODE]
            assert names == {N1, N2}
            assert not is_shared
    assert count > 5


#: A step that fails: procedure, node.
BROKEN = [
    *(("blockdev_create", node) for node in (N1, N2)),
    ("blockdev_getdimensions", N1),
    ("blockdev_find", N2),
]


@pytest.mark.parametrize("step", BROKEN)
def test_a_step_that_fails_leaves_the_plain_disks(step):
    site = Site(plain_disks())
    site.nodes.broken[step] = "io error"
    with pytest.raises(errors.OpExecError, match="io error"):
        site.run(TO_DRBD)
    site.nodes.broken.clear()
    assert site.sweep()
    site.require_right()
    site.require_data()
    site.run(TO_DRBD)
    site.require_right()


@pytest.mark.parametrize("request_", [TO_DRBD, TO_PLAIN], ids=["drbd", "plain"])
def test_what_a_node_could_not_remove_is_removed_later(request_):
    site = site_for(request_)
    site.nodes.broken["blockdev_remove", N2] = "no answer"
    if request_ is TO_DRBD:
        site.nodes.broken["blockdev_create", N1] = "no space"
        with pytest.raises(errors.OpExecError, match="no space"):
            site.run(request_)
    else:
        site.run(request_)
    assert not site.sweep()
    # The same volumes are not made again while they are to be removed.
    site.nodes.broken.clear()
    if request_ is TO_PLAIN:
        with pytest.raises(errors.OpExecError, match="exists on node"):
            site.run(TO_DRBD)
    assert site.sweep()
    site.require_right()
    site.require_data()


def test_mirrors_whose_primary_node_may_have_old_data_are_not_converted():
    site = Site(mirrored_disks(), is_active=True)
    site.nodes.split(N1, N2)
    with pytest.raises(errors.OpExecError, match="may be old there"):
        site.run(TO_PLAIN)
    assert site.kinds == {"drbd"}
    assert len(site.nodes.devices) == 4


REFUSED = {
    "no-node": (
        TO_PLAIN | {"disk_template": "drbd"},
        {},
        "name a node or an allocator",
    ),
    "two-choices": (TO_DRBD | {"iallocator": "hail"}, {}, "not both"),
    "node-for-plain": (TO_DRBD | {"disk_template": "file"}, {}, "goes with the disk"),
    "one-node": (TO_DRBD | {"remote_node": "node1.example.com"}, {}, "must differ"),
    "not-enabled": (TO_DRBD, {"enabled_disk_templates": ["plain"]}, "is not enabled"),
    "already": (TO_PLAIN, {}, "already has disk template plain"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_conversion_that_is_not_possible_is_refused(case):
    request, changes, words = REFUSED[case]
    site = Site(plain_disks(), **changes)
    with pytest.raises(errors.OpPrereqError, match=words):
        site.run(request)


# Notes
@pytest.mark.parametrize("request_", [TO_DRBD, TO_PLAIN], ids=["drbd", "plain"])
def test_no_note_names_the_data_on_the_primary_node(request_):
    """Whoever reads it, the data stays: a replacement, or an earlier release."""
    site = site_for(request_)
    is_noted, cut, data = False, 0, {key[1] for key in site.nodes.volumes}
    data = {key for key in data if not key.endswith("meta")}
    while site.run(request_, cut=(cut := cut + 1)):
        for made in site.master().config.disk_notes.all_disks():
            is_noted = is_noted or N1 in made.nodes
            names = {"/".join(volume) for volume in made.volumes}
            assert N1 not in made.nodes or not names & data
            parts = made.disk.children or (made.disk,)
            assert N1 not in made.nodes or [part.dev_type for part in parts] == [
                "plain"
            ]
        site = site_for(request_)
    assert is_noted


@pytest.mark.parametrize("request_", [TO_DRBD, TO_PLAIN], ids=["drbd", "plain"])
def test_minors_of_a_conversion_that_was_cut_short_are_not_given_to_others(request_):
    cut, count = 0, 0
    site = site_for(request_)
    while site.run(request_, cut=(cut := cut + 1)):
        if site.resumption is None:
            pass
        elif request_ is TO_PLAIN and not site.master().config.disk_notes.all_disks():
            # It was all but done.
            assert not site.nodes.devices
        else:
            minors = site.master().config.reserve_minors("9/0", [N1, N2])
            assert minors == [2, 2]
            count += 1
        site = site_for(request_)
    assert count > 5


def test_a_sweep_keeps_what_a_running_opcode_makes_in_the_places_of_remains():
    site = Site(plain_disks())
    site.run(TO_DRBD)
    (mirror, _other) = sorted(site.snapshot.disks.values(), key=lambda d: d.iv_name)
    remains = mirror.replace(uuid="old", logical_id=(N1, N3, 1, 8, 8, "s"))
    engine_notes = site.master().config.disk_notes
    engine_notes.add("8/0", config.DiskNote("web", (MadeDisk(remains, (N3,)),)))
    engine_notes.leave("8/0")
    assert engine_notes.begin_sweep("disks/8/0/0") is not None
    claim = config.DiskNote("web", (MadeDisk(mirror, (N3,)),))
    with pytest.raises(errors.ConfigurationError, match="is being removed"):
        engine_notes.add("9/0", claim)
    engine_notes.end_sweep("disks/8/0/0", is_clean=False)
    engine_notes.add("9/0", claim)

    def is_claimed(node, *, ended):
        made = MadeDisk(remains, (node,))
        return engine_notes.is_claimed(made, node, has_ended=lambda _job: ended)

    assert is_claimed(N3, ended=True)
    assert not is_claimed(N2, ended=True)
    engine_notes.leave("9/0")
    assert is_claimed(N3, ended=False)
    assert not is_claimed(N3, ended=True)
    # Their record may be durable, though no opcode goes on.
    engine_notes.add("10/0", claim)
    engine_notes.hold("10/0")
    assert is_claimed(N3, ended=True)


@pytest.mark.parametrize("name", ["mine", None])
def test_an_allocator_chooses_the_node_of_the_second_copies(name):
    site = Site(plain_disks(), default_iallocator="mine")
    asked = []

    def allocator(_node, args):
        asked.append(json.loads(args[1])["request"])
        return json.dumps({"success": True, "info": "", "result": NODE3})

    site.nodes.do_iallocator_runner = allocator
    site.nodes.do_all_instances_info = lambda _node, _args: {}
    site.run({"disk_template": "drbd"} | ({"iallocator": name} if name else {}))
    site.require_right()
    assert {disk.nodes for disk in site.snapshot.disks.values()} == {(N1, N3)}
    assert asked == [{"type": "allocate-secondary", "name": "inst1.example.com"}]
    # The locks of nodes that were not chosen are free again.
    assert site.engine.locks.is_idle()


def test_the_disks_stay_active_if_the_synchronisation_is_not_waited_for():
    site = Site(plain_disks())
    site.nodes.is_stuck = True
    site.run(TO_DRBD | {"wait_for_sync": False})
    assert "the disks stay active" in site.log
    (instance,) = site.snapshot.instances.values()
    assert instance.disks_active
    assert len(site.nodes.devices) == 4
