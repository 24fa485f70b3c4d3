"""Ends the master daemon during operations on instances; checks that they continue.

The daemons are those of `crash_points`, with the fake hypervisor and files as disks: the
master daemon ends in place of its n-th durable act. After its restart the job has its
effect, or nothing was done and the same command succeeds; and nothing is left on a node.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable

from fakes.crash_points import CREATE, MASTERD, MORE_S, CrashCluster, wait_for_job
from ganeti.base import errors

NAME, OTHER = "web1.vc.test", "web2.vc.test"
_SIZE = 1 << 20


@dataclasses.dataclass(frozen=True)
class State:
    """An instance as it is recorded and on its nodes.

    Attributes:
        names: of all instances.
        node: its primary node.
        admin_state: as recorded.
        sizes: recorded sizes of its disks, in bytes.
        present: sizes of the files at these places, None for one that is missing.
        written: how many bytes of each file take space, as wiped ones do.
        runs_on: nodes with its guest.
    """

    names: tuple[str, ...]
    node: str = ""
    admin_state: str = ""
    sizes: tuple[int, ...] = ()
    present: tuple[int | None, ...] = ()
    written: tuple[int, ...] = ()
    runs_on: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation.

    Attributes:
        name: of the case.
        op: the opcode.
        is_done: returns whether a state is that after the operation.
        template: of the disk.
        start: whether the instance runs before.
        prepare: called before the operation.
    """

    name: str
    op: dict
    is_done: Callable[[State], bool]
    template: str = "file"
    start: bool = False
    prepare: Callable[["OperationCluster"], None] = lambda _cluster: None

    def __str__(self):
        return self.name


def _op(name, **fields):
    return {"OP_ID": f"OP_INSTANCE_{name}", "instance_name": NAME} | fields


def _has_disk(state, mib):
    wanted = (mib * _SIZE,)
    return state.sizes == state.present == wanted and state.written >= wanted


def _lose(cluster):
    [disk] = cluster.files("node2")
    os.unlink(disk)


CASES = [
    Case(
        "grow",
        _op("GROW_DISK", disk=0, amount=3, ignore_ipolicy=True),
        lambda state: _has_disk(state, 4),
    ),
    Case(
        "recreate",
        _op("RECREATE_DISKS", disks=[[0, {"size": 2}]]),
        lambda state: _has_disk(state, 2),
        prepare=_lose,
    ),
    Case(
        "rename",
        _op("RENAME", new_name=OTHER, name_check=False, ip_check=False),
        lambda state: state.names == (OTHER,) and _has_disk(state, 1),
    ),
    Case(
        "stop",
        _op("SHUTDOWN", timeout=5),
        lambda state: (state.admin_state, state.runs_on) == ("down", ()),
        start=True,
    ),
    Case(
        "failover",
        _op("FAILOVER", target_node="node3.vc.test", ignore_ipolicy=True),
        lambda state: state.node == "node3" and state.runs_on == ("node3",),
        template="sharedfile",
        start=True,
    ),
    Case("remove", _op("REMOVE"), lambda state: state.names == (), start=True),
]


class CutCluster(CrashCluster):
    """A cluster whose master daemon ends during an operation."""

    def do(self, op):
        """Run a job that must succeed."""
        with self.client() as client:
            job = int(client.call("SubmitJob", [[{"reason": [], **op}]]))
            status, _end = wait_for_job(client, job)
            [[result, log]] = client.call("QueryJobs", [[job], ["opresult", "oplog"]])
        assert status == "success", f"{op}: {result} {log}"
        return result[0]

    def acts_during(self, op):
        """Run a job that must succeed; return how many durable acts it takes."""
        victim = self.daemons[MASTERD, "node1"]
        before = victim.count
        self.do(op)
        return victim.count - before

    def cut_job(self, op, acts):
        """End the daemon in place of an act of a job; return the act after all jobs ended."""
        victim = self.daemons[MASTERD, "node1"]
        victim.end_after(acts)
        with contextlib.suppress(errors.GenericError), self.client() as client:
            job = int(client.call("SubmitJob", [[{"reason": [], **op}]]))
            wait_for_job(client, job)
        victim.has_ended(MORE_S)
        what = victim.what()
        victim.kill()
        self.start(MASTERD, "node1")
        self.wait_for_master()
        with self.client() as client:
            for number, _status in client.call("QueryJobs", [None, ["id", "status"]]):
                wait_for_job(client, number)
        return what


class OperationCluster(CutCluster):
    """A cluster on whose second node an instance is made for each point."""

    def __init__(self, directory):
        super().__init__(directory)
        self.do({"OP_ID": "OP_CLUSTER_SET_PARAMS", "prealloc_wipe_disks": True})

    def files(self, node):
        """Return the files of disks on a node."""
        places = (
            self.layout.host_path(self.layout.node(node), f"/srv/ganeti/{name}")
            for name in ("file-storage", "shared-file-storage")
        )
        return sorted(
            str(path)
            for place in places
            for path in pathlib.Path(place).rglob("*")
            if path.is_file()
        )

    def state(self):
        """Return the present state."""
        query = {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [], "static": True}
        rows = self.do(query | {"use_locking": False})
        names = tuple(rows)
        if not names:
            return State(names)
        [row] = rows.values()
        node = self.layout.node(row["pnode"])
        paths = [
            self.layout.host_path(node, disk["logical_id"][1]) for disk in row["disks"]
        ]
        stats = [os.stat(path) if os.path.exists(path) else None for path in paths]
        running = [
            member.short for member in self.layout.nodes if list(self._guests(member))
        ]
        return State(
            names,
            node.short,
            row["config_state"],
            tuple(disk["size"] * _SIZE for disk in row["disks"]),
            tuple(None if each is None else each.st_size for each in stats),
            tuple(0 if each is None else each.st_blocks * 512 for each in stats),
            tuple(running),
        )

    def _guests(self, member):
        place = self.layout.host_path(member, "/var/run/ganeti/fake-hypervisor")
        with contextlib.suppress(FileNotFoundError):
            yield from pathlib.Path(place).iterdir()

    # Points
    def prepare(self, case):
        """Make the instance of a case."""
        self.do(
            CREATE
            | {"instance_name": NAME, "pnode": self.layout.node("node2").name}
            | {"disk_template": case.template, "os_type": "tiny+default"}
        )
        if case.start:
            self.do(_op("STARTUP"))
            assert self.state().runs_on == ("node2",)
        case.prepare(self)

    def clean(self):
        """Remove what a case has made."""
        for name in self.state().names:
            self.do({"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": name})
        left = [path for node in ("node2", "node3") for path in self.files(node)]
        assert left == [], left

    def acts_of(self, case):
        """Return how many acts an operation takes."""
        self.prepare(case)
        acts = self.acts_during(case.op)
        assert case.is_done(self.state()), self.state()
        self.clean()
        return acts

    def cut(self, case, acts):
        """End the daemon in place of an act; check; return the act."""
        self.prepare(case)
        before = self.state()
        what = self.cut_job(case.op, acts)
        after = self.state()
        if not case.is_done(after):
            assert after == before, f"{before}, then {after}"
            self.do(case.op)
            assert case.is_done(self.state()), self.state()
        self.clean()
        return what


def run(cluster, cases, chance, count, show=lambda _text: None):
    """End the daemon at some points of each case; return the acts at which it ended.

    Args:
        cluster: a cluster with `acts_of` and `cut`; it is ended.
        cases: of that cluster.
        chance: chooses the points.
        count: points per case; None for all.
        show: gets a line per point.

    Raises:
        AssertionError: names case and point.
    """
    ended = []
    try:
        for case in cases:
            acts = cluster.acts_of(case)
            points = list(range(1, acts + 1))
            if count is not None and count < acts:
                points = sorted(chance.sample(points, count))
            for point in points:
                try:
                    what = cluster.cut(case, point)
                except Exception as err:
                    raise AssertionError(
                        f"{case}, act {point} of {acts}: {err}"
                    ) from err
                ended.append(what)
                show(f"{case} {point} of {acts}: {what}")
    finally:
        if os.environ.get("KEEP_VCLUSTER"):
            show(f"kept: {cluster.directory} {cluster.work}")
        else:
            cluster.close()
    return [what for what in ended if what]
