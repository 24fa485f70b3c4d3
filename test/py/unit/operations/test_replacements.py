"""Replaced mirrors: what nodes and records have afterwards, whatever ends in between.

The nodes refuse what DRBD and LVM would refuse, and a guest writes all the time.
"""

import types

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.mirror_site import MirrorSite, mirrored_disks
from ganeti.base import errors
from ganeti.master.locking import Level
from ganeti.operations.instance.disks import replace_secondary
from ganeti.protocols.rpc import calls, encode

N1, N2, N3 = (clusters.node_uuid(number) for number in (1, 2, 3))
NAME = "inst1.example.com"
ON_PRIMARY = {"mode": "replace_on_primary"}
ON_SECONDARY = {"mode": "replace_on_secondary"}
TO_NODE3 = {"mode": "replace_new_secondary", "remote_node": "node3.example.com"}
EARLY = {"early_release": True}
#: name: the request, and whether the disks are active.
CASES = {
    "primary": (ON_PRIMARY, True),
    "secondary": (ON_SECONDARY, True),
    "secondary-early": (ON_SECONDARY | EARLY, True),
    "one-disk": (ON_SECONDARY | {"disks": [1]}, True),
    "new": (TO_NODE3, True),
    "new-early": (TO_NODE3 | EARLY, True),
    "inactive": (ON_SECONDARY, False),
    "inactive-new": (TO_NODE3, False),
}


class Site(MirrorSite):
    """A cluster of three nodes and an instance with two mirrors; masters come and go."""

    OP_ID = "OP_INSTANCE_REPLACE_DISKS"

    def __init__(self, *, is_active=True, **changes):
        super().__init__(mirrored_disks(), is_active=is_active, **changes)


def test_the_primary_node_keeps_its_place_in_a_mirror():
    """DRBD 9 numbers the nodes by it, and has written the number to the metadata."""
    numbers = types.SimpleNamespace(reserve_minors=lambda _owner, _nodes: [7])
    ctx = types.SimpleNamespace(config=numbers, owner="job")
    disk = clusters.drbd_disk("d0", 1, 2)
    for number, pair, minors in ((1, (N1, N3), (0, 7)), (2, (N3, N2), (7, 0))):
        instance = clusters.instance(1, primary_node=clusters.node_uuid(number))
        (made,) = replace_secondary.new_records(ctx, instance, N3, [(0, disk)])
        assert made.logical_id == (*pair, 11000, *minors, "secret")
        assert {part.nodes for part in (made, *made.children)} == {pair}


@pytest.mark.parametrize("case", CASES)
def test_a_replacement_leaves_what_is_recorded_and_nothing_else(case):
    request, is_active = CASES[case]
    site = Site(is_active=is_active)
    before = dict(site.snapshot.disks)
    pairs = {key: volume.pair for key, volume in site.nodes.volumes.items()}
    site.run(request)
    site.require_right()
    assert not [
        key for key, data in site.documents.items() if "disks/" in key[1] and data
    ]
    steps = [line for line in site.log.splitlines() if line.startswith("STEP")]
    assert [line[:8] for line in steps] == [
        f"STEP {number}/6" for number in range(1, 7)
    ]
    is_early = request.get("early_release", False)
    assert ("Remove" in steps[4], "Remove" in steps[5]) == (is_early, not is_early)
    if "remote_node" not in request:
        # The records stay, and exactly the volumes of the named side are new.
        assert dict(site.snapshot.disks) == before
        side = N1 if request["mode"] == "replace_on_primary" else N2
        wanted = {
            f"xenvg/d{n}.{k}"
            for n in request.get("disks") or (0, 1)
            for k in ("data", "meta")
        }
        new = {
            key
            for key, volume in site.nodes.volumes.items()
            if pairs[key] != volume.pair
        }
        assert new == {(side, name) for name in wanted}
        return
    for uuid, disk in site.snapshot.disks.items():
        first, second, port, minor, _new, secret = disk.logical_id
        assert (first, second) == (N1, N3)
        old = before[uuid].logical_id
        assert (port, minor, secret) == (old[2], old[3], old[5])


@pytest.mark.parametrize("handshake", [3, 25])
@pytest.mark.parametrize("request_", [ON_PRIMARY, ON_SECONDARY, TO_NODE3])
def test_disks_that_were_inactive_have_time_to_connect(request_, handshake):
    """The kernel tries every ten seconds; the first two times may be too early."""
    site = Site(is_active=False)
    site.nodes.handshake = handshake
    site.run(request_)
    assert site.sweep()
    site.require_right()


@pytest.mark.parametrize("request_", [ON_PRIMARY, ON_SECONDARY, TO_NODE3])
def test_nodes_that_connected_late_have_time_to_compare_their_data(request_):
    site = Site(is_active=False)
    site.nodes.handshake, site.nodes.comparing = 25, 3
    site.run(request_)
    assert site.sweep()
    site.require_right()


@pytest.mark.parametrize("cut", [None, 20])
def test_the_data_of_the_secondary_node_is_given_up_after_a_split_brain(cut):
    site = Site()
    site.nodes.split(N1, N2)
    if site.run(ON_SECONDARY, cut=cut):
        site.run(ON_SECONDARY, resumption=site.resumption)
    assert site.sweep()
    site.require_right()


@pytest.mark.parametrize("request_", [ON_PRIMARY, ON_SECONDARY])
def test_data_that_may_be_old_is_not_the_only_copy(request_):
    site = Site()
    site.nodes.split(N1, N2)
    if request_ is ON_SECONDARY:
        # The connection was ended, and only the secondary node has been written to.
        site.nodes.generations = {
            N1: ("4" * 16, "0" * 16, "0" * 16, "0" * 16),
            N2: ("2" * 16, "4" * 16, "0" * 16, "0" * 16),
        }
    with pytest.raises(errors.OpExecError, match="may be old"):
        site.run(request_)


@pytest.mark.parametrize("again", [None, 1, 4])
@pytest.mark.parametrize("case", CASES)
def test_a_killed_master_goes_on_from_any_step(case, again):
    request, is_active = CASES[case]
    cut, is_cut = 0, True
    while is_cut:
        cut += 1
        site = Site(is_active=is_active)
        is_cut = site.run(request, cut=cut)
        resumed = site.resumption
        if is_cut and resumed is not None:
            if again:
                site.run(request, cut=again, resumption=resumed)
                resumed = site.resumption
            site.run(request, resumption=resumed)
        elif not is_active:
            # A job that had not begun to change mirrors may leave them active.
            site.run({"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS"})
        assert site.sweep()
        site.require_right()
    assert cut > 20


@pytest.mark.parametrize("case", ["primary", "secondary", "new", "new-early"])
def test_what_cannot_go_on_is_repeated(case):
    request, _is_active = CASES[case]
    cut, is_cut = 0, True
    while is_cut:
        cut += 1
        site = Site()
        is_cut = site.run(request, cut=cut)
        site.sweep()
        if "remote_node" in request and _has_moved(site):
            with pytest.raises(errors.OpPrereqError, match="already its secondary"):
                site.run(request)
            site.run({"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "wait_for_sync": True})
        else:
            site.run(request)
        assert site.sweep()
        site.require_right()


def _has_moved(site):
    return all(N3 in disk.nodes for disk in site.snapshot.disks.values())


#: A step that fails: procedure, node.
FAILURES = [
    (ON_PRIMARY, "blockdev_create", N1),
    (ON_PRIMARY, "blockdev_removechildren", N1),
    (ON_PRIMARY, "blockdev_addchildren", N1),
    (ON_SECONDARY, "blockdev_create", N2),
    (ON_SECONDARY, "blockdev_removechildren", N2),
    (ON_SECONDARY, "blockdev_rename", N2),
    (ON_SECONDARY, "blockdev_addchildren", N2),
    (TO_NODE3, "blockdev_create", N3),
    (TO_NODE3, "blockdev_assemble", N3),
    (TO_NODE3, "drbd_disconnect_net", N1),
]


@pytest.mark.parametrize(("request_", "procedure", "node"), FAILURES)
def test_a_failed_step_is_undone(request_, procedure, node):
    site = Site()
    before = dict(site.snapshot.disks)
    site.nodes.broken[procedure, node] = "out of order"
    with pytest.raises(errors.OpExecError, match="out of order"):
        site.run(request_)
    site.nodes.broken.clear()
    # The old volumes are connected again and get what was written in between.
    while not _is_complete(site):
        pass
    site.sweep()
    assert dict(site.snapshot.disks) == before
    site.require_right()
    site.run(request_)
    site.require_right()


@pytest.mark.parametrize(
    ("request_", "procedure", "node"),
    [*FAILURES, (ON_PRIMARY, "blockdev_rename", N1)],
)
def test_a_step_whose_answer_is_lost_leaves_whole_disks(request_, procedure, node):
    """Volumes that are in use already keep their names."""
    site = Site()
    before = dict(site.snapshot.disks)
    site.nodes.unheard[procedure, node] = "no answer"
    with pytest.raises(errors.OpExecError, match="no answer"):
        site.run(request_)
    assert "no volumes in use" not in site.log
    is_too_late = procedure == "blockdev_addchildren"
    assert ("uses its new volumes" in site.log) == is_too_late
    site.run({"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "wait_for_sync": True})
    site.sweep()
    assert dict(site.snapshot.disks) == before
    site.require_right()
    site.run(request_)
    site.require_right()


def _is_complete(site):
    engine = Engine(site.snapshot, site.nodes.script())
    disks = list(site.snapshot.disks.values())
    wires = [encode.disk(site.snapshot, disk) for disk in disks]
    rows = engine.rpc.call_node(N1, calls.blockdev_getmirrorstatus_multi(wires)).payload
    return not any(status.is_degraded for _ok, status in rows)


def test_old_volumes_stay_until_the_new_ones_are_complete():
    site = Site()
    site.nodes.is_stuck = True
    kept = {key: volume.pair for key, volume in site.nodes.volumes.items()}
    assert site.run(TO_NODE3, cut=_cut_at(site, TO_NODE3, "STEP 5/6"))
    assert not site.sweep()
    assert {key for key in kept if key[0] == N2} <= set(site.nodes.volumes)
    site.nodes.is_stuck = False
    while not _is_complete(site):
        pass
    assert site.sweep()
    site.require_right()


def _cut_at(site, request, line):
    """Return the number of steps until a line of the log."""
    for cut in range(1, 200):
        probe = Site()
        probe.nodes.is_stuck = True
        probe.run(request, cut=cut)
        if line in probe.log:
            return cut
    raise AssertionError(line)


def test_a_node_that_was_left_can_be_returned_to():
    """Its remains have the names that the new volumes get."""
    site = Site()
    site.nodes.broken["blockdev_remove", N2] = "no answer"
    site.run(TO_NODE3)
    assert "the master removes them" in site.log
    back = TO_NODE3 | {"remote_node": "node2.example.com"}
    with pytest.raises(errors.OpExecError, match="cannot be removed"):
        site.run(back)
    site.nodes.broken.clear()
    site.run(back)
    assert site.sweep()
    site.require_right()


def test_an_older_note_removes_no_copy_that_is_still_needed():
    site = Site()
    site.nodes.broken["blockdev_remove", N2] = "no answer"
    site.run(TO_NODE3)
    assert not site.sweep()
    site.nodes.broken.clear()
    kept = {key for key in site.nodes.volumes if key[0] == N3}
    site.nodes.is_stuck = True
    # The copy never ends: the master is killed during it.
    assert site.run(TO_NODE3 | {"remote_node": "node2.example.com"}, cut=120)
    assert "STEP 5/6" in site.log
    assert not site.sweep()
    assert kept <= set(site.nodes.volumes)


def test_minors_of_remains_are_not_given_to_others():
    site = Site()
    site.nodes.broken["blockdev_remove", N2] = "no answer"
    site.run(TO_NODE3)
    minors = site.engine.config.reserve_minors("9/0", [N2, N2])
    assert minors == [2, 3]


def test_a_foreign_volume_is_not_touched():
    site = Site()
    site.nodes.add(clusters.drbd_disk("d1", 3, 2).replace(nodes=(N3, N2)))
    for name in ("data", "meta"):
        site.nodes.volumes[N3, f"xenvg/d1.{name}"].pair = "foreign"
    with pytest.raises(errors.OpExecError, match=r"xenvg/d1.data exists on node node3"):
        site.run(TO_NODE3)
    assert {key[1] for key in site.nodes.volumes if key[0] == N3} == {
        "xenvg/d1.data",
        "xenvg/d1.meta",
    }


def _disconnect(site):
    for device in site.nodes.devices.values():
        device.port = None


def _detach(site, node):
    for (place, _minor), device in site.nodes.devices.items():
        if place == node:
            device.data = device.meta = None


def _fail_apart(site):
    """Have the primary node lose its disks after its connection, and the guest end."""
    _detach(site, N1)
    for (place, _minor), device in site.nodes.devices.items():
        device.is_primary = False
        if place == N2:
            device.port = None


def _write_on_secondary(site):
    """Have the secondary node go on alone, as after a migration that was cut short."""
    site.nodes.split(N1, N2)
    site.nodes.generations[N1] = tuple(digit * 16 for digit in "4000")


def _use_on_secondary(site):
    """Have both nodes written to alone, and the guest on the secondary one."""
    site.nodes.split(N1, N2)
    for (node, _minor), device in site.nodes.devices.items():
        device.is_primary = node == N2


def _lose(site, node):
    """Have a node that was restarted without its volumes."""
    for key in [key for key in site.nodes.devices if key[0] == node]:
        del site.nodes.devices[key]
    for key in [key for key in site.nodes.volumes if key[0] == node]:
        del site.nodes.volumes[key]


@pytest.mark.parametrize(
    ("prepare", "request_", "words"),
    [
        (_disconnect, ON_PRIMARY, "may be old, since the nodes are not connected"),
        (_disconnect, ON_SECONDARY, "may be old, since the nodes are not connected"),
        (_write_on_secondary, TO_NODE3, "has older data than node node2.example.com"),
        (_use_on_secondary, ON_SECONDARY, "may be old, since the nodes are not conn"),
        (_fail_apart, ON_PRIMARY, "may be old, since the nodes are not connected"),
        (lambda s: _detach(s, N2), ON_PRIMARY, "the only complete copy would be lost"),
        (lambda s: _detach(s, N1), TO_NODE3, "not up to date on its primary node"),
        (lambda s: _lose(s, N2), ON_PRIMARY, "it is not active"),
    ],
)
def test_the_only_copy_of_data_is_never_replaced(prepare, request_, words):
    site = Site()
    prepare(site)
    state = dict(site.nodes.volumes), dict(site.nodes.devices)
    with pytest.raises(errors.OpExecError, match=words):
        site.run(request_)
    assert (site.nodes.volumes, site.nodes.devices) == state


@pytest.mark.parametrize(
    ("prepare", "request_"),
    [
        (lambda s: _detach(s, N2), {"mode": "replace_auto"}),
        (lambda s: _detach(s, N1), {"mode": "replace_auto"}),
        (lambda s: _detach(s, N1), ON_PRIMARY),
        (lambda s: _lose(s, N2), ON_SECONDARY),
        (lambda s: _lose(s, N2), TO_NODE3),
        (_disconnect, TO_NODE3),
    ],
)
def test_lost_disks_are_replaced(prepare, request_):
    site = Site()
    prepare(site)
    site.run(request_)
    assert site.sweep()
    site.require_right()


def test_a_failed_activation_leaves_active_disks_with_their_second_copies():
    """As by the watcher, while the guest runs."""
    site = Site()
    site.nodes.broken["blockdev_assemble", N2] = "no answer"
    with pytest.raises(errors.OpExecError, match="no answer"):
        site.run({"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS"})
    site.require_right()


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("op", ["STARTUP", "ACTIVATE_DISKS"])
def test_no_guest_goes_on_with_data_that_is_older_than_the_other_copy(op, is_used):
    """As by the watcher, after a migration that was cut short."""
    site = Site()
    _write_on_secondary(site)
    for (node, _minor), device in site.nodes.devices.items():
        device.is_primary = is_used and node == N2
    with pytest.raises(errors.OpPrereqError, match="run gnt-instance startup --force"):
        site.run({"OP_ID": f"OP_INSTANCE_{op}"})
    assert not site.engine.rpc.called("blockdev_assemble")


def test_nothing_is_done_without_a_faulty_disk():
    site = Site()
    site.run({"mode": "replace_auto"})
    assert "to replace: none" in site.log
    assert not site.engine.rpc.called("blockdev_create")


def test_an_offline_secondary_is_left_and_its_volumes_later():
    site = Site(also=[clusters.node(2, offline=True)])
    _disconnect(site)
    site.run(TO_NODE3)
    assert "marked offline, so its locks are released early" in site.log
    assert not site.sweep()
    site.snapshot = clusters.changed(site.snapshot, clusters.node(2))
    assert site.sweep()
    site.require_right()


def test_locks_are_released_while_the_data_is_copied():
    held = {}
    for name, request in (("late", TO_NODE3), ("early", TO_NODE3 | EARLY)):
        site = Site()
        engine = Engine(site.snapshot, site.nodes.script())
        inner = engine.rpc.script["blockdev_getmirrorstatus_multi"]

        def look(node, args, inner=inner, engine=engine, name=name):
            held[name] = [
                engine.locks.is_owned(level)
                for level in (Level.INSTANCE, Level.NODE, Level.NODE_RES)
            ]
            return inner(node, args)

        engine.rpc.script["blockdev_getmirrorstatus_multi"] = look
        engine.run(
            {"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": NAME} | request
        )
    assert held["late"] == [True, False, True]
    assert held["early"] == [True, False, False]
