"""A mirror whose nodes do not connect is activated alone only with the newest data."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
NAME = "inst1.example.com"
#: Generations of the data: one node wrote alone after both had the second one.
NEW, BOTH, NONE = "2" * 16, "4" * 16, "0" * 16
NEWER, OLDER = (NEW, BOTH, NONE, NONE), (BOTH, NONE, NONE, NONE)
NO_PEER = failure("the other node has not connected within 20 s")
ALONE = "its two nodes cannot reach each other; going on with node1"


def state(generations, *, disk="UpToDate", ldisk=1):
    return {
        "dev_path": "/dev/drbd0",
        "is_degraded": True,
        "ldisk_status": ldisk,
        "mirror": {
            "connection": "WFConnection",
            "role": "Secondary",
            "disk": disk,
            "peer_disk": "DUnknown",
            "generations": generations,
        },
    }


class Site:
    """An instance whose primary node waits for the other one in vain."""

    def __init__(
        self, own, other, *, primary=NO_PEER, secondary=None, is_attached=True
    ):
        self.calls = []
        self.primary, self.secondary = primary, secondary
        rows = {N1: [[True, own]], N2: [[True, other]]}
        disk = clusters.drbd_disk("d0", 1, 2).replace(iv_name="disk/0")
        instance = clusters.instance(
            1,
            disks=[disk.uuid] if is_attached else [],
            admin_state="down",
            disks_active=not is_attached,
        )
        start = clusters.snapshot(
            nodes=2, extra=[disk, instance], volume_group_name="xenvg"
        )
        self.engine = Engine(
            start,
            {
                **SUCCESSFUL_ACTS,
                "blockdev_getmirrorstatus_multi": lambda node, _args: rows[node],
                "blockdev_assemble": self.assemble,
                "hooks_runner": [],
                "instance_info": {},
                "node_info": [
                    "boot",
                    [],
                    [{"memory_free": 9000, "memory_total": 9999}],
                ],
            },
        )

    def assemble(self, node, args):
        values = args[0]["dynamic_params"]
        self.calls.append((node, values.get("peer-is-away", False)))
        if node == N2:
            return self.secondary or ["/dev/drbd0", None, None]
        if not values.get("peer-is-away"):
            return self.primary
        return ["/dev/drbd0", "/link", None]

    def activate(self):
        op = {"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "instance_name": NAME}
        return self.engine.run(op)

    @property
    def is_active(self):
        (instance,) = self.engine.snapshot.instances.values()
        return instance.disks_active


WAITED = [(N2, False), (N1, False)]


@pytest.mark.parametrize(("own", "other"), [(NEWER, OLDER), (OLDER, OLDER)])
def test_data_that_is_not_older_is_used_without_the_other_node(own, other):
    site = Site(state(own), state(other))
    site.activate()
    assert site.calls == [*WAITED, (N1, True)]
    assert site.is_active


def test_a_call_that_a_busy_node_rejects_says_nothing_about_the_other_node():
    busy = failure("too many calls", is_rejected=True)
    site = Site(state(NEWER), state(OLDER), primary=busy)
    with pytest.raises(errors.OpExecError, match="too many calls"):
        site.activate()
    assert site.calls == WAITED
    assert not site.is_active


def test_older_data_is_refused_and_the_disks_are_shut_down():
    site = Site(state(OLDER), state(NEWER))
    with pytest.raises(
        errors.OpExecError, match=r"node1\.example\.com.* has older data"
    ):
        site.activate()
    assert site.calls == WAITED
    assert not site.is_active
    down = [node for name, node, _args in site.engine.rpc.calls if "shutdown" in name]
    assert sorted(down) == [N1, N2]


def test_any_data_is_used_by_force():
    site = Site(state(OLDER), state(NEWER))
    op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": NAME, "force": True}
    site.engine.run(op)
    assert site.calls == [*WAITED, (N1, True)]


def test_a_failure_for_another_reason_is_reported_as_it_is():
    site = Site(state(OLDER, disk="Inconsistent", ldisk=3), state(NEWER))
    with pytest.raises(errors.OpExecError, match="has not connected within 20 s"):
        site.activate()
    assert site.calls == WAITED


def test_nobody_waits_for_a_node_that_does_not_answer():
    site = Site(state(OLDER), state(NEWER), secondary=failure("no such volume"))
    op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": NAME, "force": True}
    site.engine.run(op)
    assert site.calls == [(N2, False), (N1, True)]


def test_an_attached_disk_does_not_wait_for_a_node_that_does_not_answer():
    away = failure("no such volume")
    site = Site(state(OLDER), state(NEWER), secondary=away, is_attached=False)
    op = {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": NAME,
        "disks": [["attach", -1, {"uuid": "d0"}]],
        "force": True,
    }
    site.engine.run(op)
    assert site.calls == [(N2, False), (N1, True)]


class Many(Site):
    """The same with several disks; what each node says about each of them."""

    def __init__(self, own, other):
        super().__init__(own[0], other[0])
        disks = [
            clusters.drbd_disk(f"d{n}", 1, 2).replace(iv_name=f"disk/{n}")
            for n in range(len(own))
        ]
        instance = clusters.instance(
            1,
            disks=[disk.uuid for disk in disks],
            admin_state="down",
            disks_active=False,
        )
        states = {N1: own, N2: other}
        script = self.engine.rpc.script | {
            "blockdev_getmirrorstatus_multi": lambda node, args: [
                [True, states[node][int(wire["uuid"][1:])]] for wire in args[0]
            ]
        }
        self.engine = Engine(
            clusters.snapshot(
                nodes=2, extra=[*disks, instance], volume_group_name="xenvg"
            ),
            script,
        )
        self.waits = []

    def assemble(self, node, args):
        disk, _instance, opens, *_ = args
        if node == N1 and not opens:
            return ["/dev/drbd0", None, None]
        answer = super().assemble(node, args)
        if not isinstance(answer, list):
            self.waits.append(disk["uuid"])
        return answer


def test_one_wait_is_enough_for_all_disks_of_nodes_that_are_apart():
    site = Many([state(NEWER)] * 4, [state(OLDER)] * 4)
    site.activate()
    assert site.waits == ["d0"]
    assert site.calls.count((N1, True)) == 4
    assert site.is_active


def test_each_disk_is_compared_although_one_has_waited():
    own = [state(NEWER), state(NEWER), state(OLDER)]
    site = Many(own, [state(OLDER), state(OLDER), state(NEWER)])
    with pytest.raises(errors.OpExecError, match=r"disk/2: .* has older data"):
        site.activate()
    assert site.waits == ["d0"]
    assert site.calls.count((N1, True)) == 2
    assert not site.is_active
