"""Pages of queries: the rows of the query, in order, and what is asked of nodes."""

import random

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.decisions.jobs.records import JobOp
from ganeti.master import jqueue, query
from ganeti.master.query import Sources, Wanted, pages
from ganeti.model.objects import Disk, Update
from ganeti.protocols.rpc import Result

COUNT = 25


def start():
    extra = [
        clusters.instance(
            number, primary=number % 3 + 1, tags=["even"] if number % 2 == 0 else []
        )
        for number in range(1, COUNT + 1)
    ]
    return clusters.snapshot(nodes=3, instances=1, extra=extra)


def names_of(page):
    return [row[0][1] for row in page.answer.data]


def all_pages(snapshots, sort="", qfilter=None, limit=4, orders=None, fields=("name",)):
    """Return the names of all pages; each page is of the next of some snapshots."""
    names, cursor, orders = [], "", orders or query.Orders()
    for _turn in range(COUNT + 5):
        wanted = Wanted(sort=sort, limit=limit, cursor=cursor)
        sources = Sources(next(snapshots))
        page = query.page(sources, "instance", fields, qfilter, wanted, orders=orders)
        names += names_of(page)
        if page.next is None:
            return names
        cursor = page.next
    raise AssertionError("no end")


def forever(value):
    while True:
        yield value


@pytest.mark.parametrize(
    "sort", ["", "name", "uuid", "pnode", "status_", "os", "mtime"]
)
@pytest.mark.parametrize("qfilter", [None, ["=[]", "tags", "even"]])
def test_pages_together_are_the_rows_of_the_query(sort, qfilter):
    if sort == "status_":
        sort = "admin_state"
    snapshot = start()
    plain = query.query(Sources(snapshot), "instance", ["name"], qfilter)
    expected = [row[0][1] for row in plain.data]
    names = all_pages(forever(snapshot), sort, qfilter)
    assert sorted(names) == sorted(expected)
    assert all_pages(forever(snapshot), f"-{sort or 'name'}", qfilter) == names[::-1]
    if sort in {"", "name"}:
        assert names == expected


def change(rng, snapshot):
    """Return a snapshot with an instance added, removed, changed, or a node renamed."""
    uuids = sorted(snapshot.instances)
    kind = rng.choice(["add", "remove", "change", "change", "disk", "node"])
    record = snapshot.instances[rng.choice(uuids)]
    if kind == "add":
        number = rng.randrange(100, 250)
        record = clusters.instance(number, primary=rng.randrange(1, 4))
    elif kind == "change":
        record = record.replace(
            primary_node=clusters.node_uuid(rng.randrange(1, 4)),
            mtime=rng.random(),
            os=rng.choice(["tiny", "big"]),
        )
    elif kind == "node":
        node = snapshot.nodes[clusters.node_uuid(rng.randrange(1, 4))]
        node = node.replace(name=f"n{rng.randrange(99)}.example.com")
        return snapshot.apply([Update("nodes", node.uuid, node)])
    elif kind == "disk" and not record.disks:
        disk = Disk(
            dev_type="plain",
            logical_id=("vg", "d"),
            size=rng.randrange(9),
            uuid=f"d-{record.uuid}",
            serial_no=1,
        )
        changed = record.replace(disks=(disk.uuid,))
        return snapshot.apply(
            [
                Update("disks", disk.uuid, disk),
                Update("instances", record.uuid, changed),
            ]
        )
    elif kind == "disk":
        disk = snapshot.disks[record.disks[0]].replace(size=rng.randrange(9))
        return snapshot.apply([Update("disks", disk.uuid, disk)])
    removed = None if kind == "remove" else record
    return snapshot.apply([Update("instances", record.uuid, removed)])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sort", ["name", "-pnode", "os", "disk_usage", "-mtime"])
def test_kept_orders_equal_new_ones_after_any_change(seed, sort):
    rng, snapshot, orders = random.Random(seed), start(), query.Orders()
    wanted = Wanted(sort=sort, limit=1000)
    for _turn in range(25):
        for _change in range(rng.choice([0, 1, 1, 3])):
            snapshot = change(rng, snapshot)
        kept, new = (
            query.page(
                Sources(snapshot), "instance", ["name"], None, wanted, orders=each
            )
            for each in (orders, query.Orders())
        )
        assert names_of(kept) == names_of(new)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sort", ["name", "-name", "pnode", "-os"])
def test_changes_between_pages_neither_repeat_nor_skip_other_rows(seed, sort):
    rng, first = random.Random(seed), start()
    steady = {r.name for r in first.instances.values() if r.tags}
    touched = [r for r in first.instances.values() if not r.tags]

    def changing():
        snapshot = first
        while True:
            yield snapshot
            record = touched.pop() if touched else None
            if record is not None:
                new = record.replace(primary_node=clusters.node_uuid(1), os="big")
                update = rng.choice([None, new])
                snapshot = snapshot.apply([Update("instances", record.uuid, update)])
            number = rng.randrange(60, 250)
            added = clusters.instance(number, primary=rng.randrange(1, 4))
            snapshot = snapshot.apply([Update("instances", added.uuid, added)])

    names = [n for n in all_pages(changing(), sort, limit=3) if n in steady]
    undisturbed = [n for n in all_pages(forever(first), sort) if n in steady]
    assert names == undisturbed


def test_a_small_change_sorts_nothing_again(monkeypatch):
    snapshot, orders = start(), query.Orders()
    all_pages(forever(snapshot), "os", orders=orders)
    record = snapshot.instances[clusters.instance_uuid(7)].replace(os="a")
    changed = snapshot.apply([Update("instances", record.uuid, record)])

    def refuse(items, key=None):
        assert key is None
        return list(items)

    monkeypatch.setattr(pages, "sorted", refuse, raising=False)
    assert all_pages(forever(changed), "os", orders=orders)[0] == record.name


def test_only_few_orders_are_kept():
    orders = query.Orders()
    for name in ("name", "os", "pnode", "uuid", "mtime", "ctime", "admin_state"):
        all_pages(forever(start()), name, orders=orders)
        all_pages(forever(start()), f"-{name}", orders=orders)
    for name in ("hypervisor", "serial_no", "admin_state_source"):
        all_pages(forever(start()), name, orders=orders)
    assert len(orders._kept) == pages._MAX_ORDERS


def test_rows_are_counted_before_and_after_the_cursor():
    orders, counts = query.Orders(), []
    for qfilter in (None, ["=[]", "tags", "even"]):
        cursor = ""
        for _turn in range(2):
            wanted = Wanted(limit=5, count=True, cursor=cursor)
            page = query.page(
                Sources(start()), "instance", ["name"], qfilter, wanted, orders=orders
            )
            counts.append(page.total)
            cursor = page.next
    assert counts == [COUNT, COUNT, COUNT // 2, COUNT // 2]


class Nodes(FakeRunner):
    """Notes the nodes that were asked."""

    def __init__(self, snapshot, memory):
        super().__init__(lambda: snapshot)
        self.asked = []
        self.snapshot, self.memory = snapshot, memory

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        del args, timeout_s
        self.asked.append(sorted(nodes))
        info = {"vcpus": 1, "state": 0, "time": 1.0}
        instances = self.snapshot.instances
        return {
            node: Result(
                procedure,
                node,
                {
                    instances[uuid].name: {**info, "memory": self.memory(uuid)}
                    for uuid in self.snapshot.primary_instances(node)
                },
            )
            for node in nodes
        }


def test_only_the_nodes_of_the_page_are_asked():
    snapshot = start()
    nodes = Nodes(snapshot, lambda uuid: 5)
    page = query.page(
        Sources(snapshot, nodes),
        "instance",
        ["name", "oper_ram"],
        None,
        Wanted(sort="pnode", limit=3),
        orders=query.Orders(),
    )
    assert [row[1] for row in page.answer.data] == [(0, 5)] * 3
    assert nodes.asked == [[clusters.node_uuid(1)]]


def test_values_of_nodes_can_filter_and_sort_a_bounded_number_of_rows(monkeypatch):
    snapshot = start()
    nodes = Nodes(snapshot, lambda uuid: int(uuid[-2:], 16))

    def ask(sort, qfilter):
        wanted = Wanted(sort=sort, limit=2, count=True)
        sources = Sources(snapshot, nodes)
        return query.page(
            sources,
            "instance",
            ["name", "oper_ram"],
            qfilter,
            wanted,
            orders=query.Orders(),
        )

    page = ask("-oper_ram", ["<", "oper_ram", 20])
    assert [row[1][1] for row in page.answer.data] == [19, 18]
    assert page.total == 19
    assert page.next is not None
    monkeypatch.setattr(pages, "MAX_LIVE_SORT", COUNT - 1)
    assert ask("name", ["<", "oper_ram", 20]).total == 19
    assert ask("oper_ram", ["=[]", "tags", "even"]).total == COUNT // 2
    with pytest.raises(errors.OpPrereqError, match="at most 24 objects, found 25"):
        ask("oper_ram", None)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"limit": 0}, "limit: wanted a number from 1 to 1000, found 0"),
        ({"limit": 1001}, "limit: wanted a number from 1 to 1000, found 1001"),
        ({"sort": "nam"}, "sort: unknown field 'nam'"),
        ({"sort": "--name"}, "sort: unknown field '-name'"),
        ({"sort": "tags"}, "sort: the values of tags have no order"),
        ({"cursor": "AAAA"}, "cursor: wanted that of a page"),
    ],
)
def test_wrong_pages_are_refused(changes, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        query.page(
            Sources(start()),
            "instance",
            ["name"],
            None,
            Wanted(**changes),
            orders=query.Orders(),
        )


def test_named_rows_are_those_of_the_query():
    names = ["inst3", "inst12.example.com", "inst2"]
    qfilter = ["|", *(["==", "name", name] for name in names)]
    assert [n.split(".")[0] for n in all_pages(forever(start()), "-name", qfilter)] == [
        *("inst12", "inst3", "inst2")
    ]
    with pytest.raises(errors.OpPrereqError, match="nobody"):
        all_pages(forever(start()), "", ["==", "name", "nobody"])
    with pytest.raises(errors.ParameterError, match="unknown field nam"):
        all_pages(forever(start()), "", ["==", "nam", "nobody"])


class Queue:
    """Jobs by id; notes the ids that are read one by one."""

    def __init__(self, ids):
        self.known = {number: job(number) for number in ids}
        self.read = []

    def job(self, job_id):
        self.read.append(job_id)
        return self.known.get(job_id)

    def jobs(self, *, with_logs=True):
        del with_logs
        return list(self.known.values())

    def ids(self):
        return sorted(self.known)

    def archived_jobs(self):
        return [job(2)]


def job(number):
    ops = (JobOp(input=b'{"OP_ID": "OP_CLUSTER_VERIFY"}'),)
    return jqueue.Job(id=number, ops=ops, received_timestamp=(number, 0))


def job_ids(queue, **wanted):
    page = query.page(
        Sources(start(), jobs=queue),
        "job",
        ["id", "status"],
        wanted.pop("qfilter", None),
        Wanted(**wanted),
        orders=query.Orders(),
    )
    return [row[0][1] for row in page.answer.data], page.next


def test_only_the_jobs_of_a_page_are_read():
    queue = Queue([3, 9, 10, 11, 200])
    ids, cursor = job_ids(queue, sort="-id", limit=2)
    assert (ids, queue.read) == ([200, 11], [200, 11])
    del queue.known[9]
    assert job_ids(queue, sort="-id", limit=2, cursor=cursor) == ([10, 3], None)
    assert job_ids(queue, sort="received_ts", limit=2)[0] == [3, 10]
    assert job_ids(queue, qfilter=[">", "id", 10])[0] == [11, 200]
    assert job_ids(queue, qfilter=["?", "archived"])[0] == []


@pytest.mark.parametrize("what", sorted(set(query.RESOURCES) - {"extstorage"}))
def test_every_kind_has_pages(what):
    snapshot = start()
    runner = FakeRunner(lambda: snapshot, {"export_list": ["e1"], "os_diagnose": []})
    sources = Sources(snapshot, runner, jobs=Queue([1, 2]))
    fields = list(query.RESOURCES[what].fields)[:1]
    whole = query.query(sources, what, fields, None)
    wanted = Wanted(limit=1000)
    page = query.page(sources, what, fields, None, wanted, orders=query.Orders())
    assert page.answer == whole
    assert page.to_dict()["count"] is None
