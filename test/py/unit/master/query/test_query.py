"""Questions to a small cluster: values, statuses, order, filters, live data."""

import json

import msgspec
import pytest

from fakes import clusters
from fakes.rpc import FakeRunner
from ganeti.base import errors
from ganeti.decisions.jobs.records import JobOp
from ganeti.master import jqueue, query
from ganeti.master.locking import LockInfo
from ganeti.master.query import ClusterFacts, Sources
from ganeti.model import objects
from ganeti.protocols.rpc.procedure import Result
from ganeti.store import CopyState

NODE_INFO = [
    "boot-1",
    [{"type": "file", "name": "/srv", "storage_free": 500.7, "storage_size": 1000}],
    [
        {
            "memory_total": 4096,
            "memory_free": 1024,
            "memory_dom0": 512,
            "cpu_total": 8,
            "cpu_dom0": 2,
            "cpu_nodes": 1,
            "cpu_sockets": 1,
        }
    ],
]


def disk(number, **changes):
    data = {
        "dev_type": "plain",
        "logical_id": ("xenvg", f"disk{number}"),
        "size": 1024,
        "uuid": f"disk-{number}",
        "serial_no": 1,
        "nodes": (clusters.node_uuid(1),),
    }
    return objects.Disk(**{**data, **changes})


NIC = objects.Nic(
    mac="aa:00:00:00:00:01", nicparams={"link": "br7"}, uuid="nic-1", ip="192.0.2.77"
)


@pytest.fixture
def snapshot():
    mirrored = disk(
        2,
        dev_type="drbd",
        nodes=(clusters.node_uuid(1), clusters.node_uuid(3)),
        name="data",
    )
    first = clusters.instance(
        1,
        disks=["disk-1", "disk-2"],
        beparams={"maxmem": 512},
        hvparams={"acpi": False},
        tags=["a", "b"],
    ).replace(nics=(NIC,))
    extra = [
        disk(1),
        mirrored,
        first,
        clusters.node(4, offline=True, master_candidate=False),
    ]
    extra.append(clusters.instance(10, primary=4))
    return clusters.snapshot(nodes=3, instances=2, extra=extra)


def sources(snapshot, script=None, **more):
    return Sources(snapshot, FakeRunner(lambda: snapshot, script), **more)


def ask(source, what, fields, qfilter=None):
    return query.query(source, what, fields, qfilter).data


def values(source, what, fields, qfilter=None):
    return [[cell[1] for cell in row] for row in ask(source, what, fields, qfilter)]


def test_names_come_in_natural_order(snapshot):
    actual = values(sources(snapshot), "instance", ["name"])
    assert actual == [[f"inst{n}.example.com"] for n in (1, 2, 10)]


def test_request_for_names_keeps_its_order(snapshot):
    wanted = ["|", ["==", "name", "inst10"], ["==", "name", "inst1.example.com"]]
    actual = values(sources(snapshot), "instance", ["name"], wanted)
    assert actual == [["inst10.example.com"], ["inst1.example.com"]]


def test_unknown_name_is_refused(snapshot):
    with pytest.raises(errors.OpPrereqError) as caught:
        ask(sources(snapshot), "node", ["name"], ["==", "name", "node9"])
    assert caught.value.args[1] == "unknown_entity"


def test_uuid_as_name_finds_nothing(snapshot):
    wanted = ["==", "name", clusters.node_uuid(1)]
    assert ask(sources(snapshot), "node", ["name"], wanted) == []


def test_unknown_field_is_answered_as_such(snapshot):
    answer = query.query(sources(snapshot), "node", ["name", "huh"], None)
    assert answer.fields[1]["kind"] == "unknown"
    assert {row[1] for row in answer.data} == {(1, None)}


def test_unknown_resource_is_refused(snapshot):
    with pytest.raises(errors.OpPrereqError):
        ask(sources(snapshot), "nothing", ["name"])


@pytest.mark.parametrize("resource", ["node", "instance", "group", "network"])
def test_all_fields_have_documented_types(snapshot, resource):
    network = objects.Network(
        name="blue",
        network="192.0.2.8/29",
        uuid="net-1",
        serial_no=1,
        gateway="192.0.2.9",
        reservations="00010000",
        ext_reservations="11000001",
    )
    state = snapshot.apply([objects.Update("networks", "net-1", network)])
    script = {
        "node_info": NODE_INFO,
        "all_instances_info": {},
    }
    answer = query.query(
        sources(state, script), resource, sorted(query.RESOURCES[resource].fields), None
    )
    types = {
        "text": str,
        "bool": bool,
        "number": int,
        "unit": int,
        "float": (int, float),
        "timestamp": (int, float),
    }
    assert answer.data
    for row in answer.data:
        for field, (status, value) in zip(answer.fields, row, strict=True):
            if status == 0 and field["kind"] in types:
                assert isinstance(value, types[field["kind"]]), field["name"]
            if status:
                assert value is None
    json.loads(msgspec.json.encode(answer.to_dict()))


def test_parameters_are_filled(snapshot):
    fields = ["be/maxmem", "be/memory", "be/vcpus", "vcpus", "hv/acpi", "hv/pae"]
    row = ask(sources(snapshot), "instance", fields, ["==", "name", "inst1"])[0]
    assert row[0] == row[1] == (0, 512)
    assert row[2] == row[3]
    assert row[4] == (0, False)
    # A parameter of another hypervisor.
    assert row[5] == (3, None)


def test_disks_and_nics(snapshot):
    fields = [
        "disk.count",
        "disk.size/0",
        "sdb_size",
        "disk.size/2",
        "disk.name/0",
        "disk.names",
        "disk_template",
        "disk_usage",
        "disk.total",
        "nic.bridge/0",
        "bridge",
        "ip",
        "nic.vlan/0",
        "nic.ip/1",
        "nic.modes",
        "snodes",
        "network_port",
    ]
    row = ask(sources(snapshot), "instance", fields, ["==", "name", "inst1"])[0]
    assert row == [
        (0, 2),
        (0, 1024),
        (0, 1024),
        (3, None),
        (3, None),
        (0, [None, "data"]),
        (0, "mixed"),
        (0, 1024 + 1024 + 128),
        (0, 1024 + 1024),
        (0, "br7"),
        (0, "br7"),
        (0, "192.0.2.77"),
        (3, None),
        (3, None),
        (0, ["bridged"]),
        (0, ["node3.example.com"]),
        (3, None),
    ]


def test_node_roles_and_counts(snapshot):
    fields = [
        "name",
        "role",
        "pinst_cnt",
        "pinst_list",
        "sinst_cnt",
        "group",
        "powered",
    ]
    actual = ask(sources(snapshot), "node", fields)
    assert [row[1][1] for row in actual] == ["M", "C", "C", "O"]
    assert actual[0][3] == (0, ["inst1.example.com", "inst2.example.com"])
    assert [row[2][1] for row in actual] == [2, 0, 0, 1]
    assert actual[2][4] == (0, 1)
    assert actual[0][5] == (0, "default")
    assert actual[0][6] == (3, None)


def test_live_data_of_nodes_and_its_absence(snapshot):
    def node_info(node, _args):
        if node == clusters.node_uuid(2):
            return Result("node_info", "node2", fail_msg="down")
        if node == clusters.node_uuid(3):
            return ["boot-3", None, None]
        return NODE_INFO

    state = snapshot.apply(
        [
            objects.Update(
                "nodes",
                clusters.node_uuid(5),
                clusters.node(5, vm_capable=False),
            )
        ]
    )
    source = sources(state, {"node_info": node_info})
    actual = ask(source, "node", ["mfree", "dfree", "bootid", "sptotal", "ctotal"])
    assert actual == [
        [(0, 1024), (0, 500), (0, "boot-1"), (3, None), (0, 8)],
        [(2, None)] * 5,
        [(3, None), (3, None), (0, "boot-3"), (3, None), (3, None)],
        [(4, None)] * 5,
        [(3, None)] * 5,
    ]
    asked = [node for node, _ in source.rpc.called("node_info")]
    assert sorted(asked) == [clusters.node_uuid(n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("changes", "units"),
    [
        ({"enabled_disk_templates": ["diskless"]}, []),
        (
            {"enabled_disk_templates": ["diskless", "file"], "file_storage_dir": "/f"},
            [["file", "/f", []]],
        ),
        (
            {"enabled_disk_templates": ["drbd", "file"], "volume_group_name": "vg"},
            [["lvm-vg", "vg", [False]], ["lvm-pv", "vg", [False]]],
        ),
    ],
)
def test_space_of_the_first_template_that_has_some(changes, units):
    source = sources(clusters.snapshot(nodes=1, **changes), {"node_info": NODE_INFO})
    ask(source, "node", ["dfree"])
    [(_node, args)] = source.rpc.called("node_info")
    assert args[0] == units
    assert args[1][0][0] == "kvm"


def test_nobody_is_asked_without_need(snapshot):
    source = sources(snapshot)
    ask(source, "instance", ["name", "pnode", "be/maxmem"], ["?", "admin_up"])
    ask(source, "node", ["name", "pinst_cnt"])
    assert source.rpc.calls == []


def test_filter_on_configuration_saves_questions(snapshot):
    source = sources(snapshot, {"node_info": NODE_INFO})
    wanted = ["&", ["==", "name", "node2"], [">", "mfree", 1000]]
    assert values(source, "node", ["name"], wanted) == [["node2.example.com"]]
    assert [node for node, _ in source.rpc.called("node_info")] == [
        clusters.node_uuid(2)
    ]
    wanted[2][2] = 2000
    assert values(source, "node", ["name"], wanted) == []


def test_one_question_per_node_for_all_live_fields(snapshot):
    running = {"memory": 256, "vcpus": 1, "state": 0, "time": 1.0}
    source = sources(snapshot, {"all_instances_info": {"inst1.example.com": running}})
    fields = ["status", "oper_ram", "oper_state", "oper_vcpus"]
    actual = ask(source, "instance", fields)
    asked = [node for node, _ in source.rpc.called("all_instances_info")]
    assert sorted(asked) == [clusters.node_uuid(1), clusters.node_uuid(3)]
    # Node 3 claims to run it as well.
    assert actual[0][0] == (0, "ERROR_wrongnode")
    assert actual[1] == [(0, "ERROR_down"), (3, None), (0, False), (3, None)]
    assert actual[2] == [(0, "ERROR_nodeoffline"), (4, None), (4, None), (4, None)]


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (
            {"memory": 256, "vcpus": 2, "state": 0},
            [(0, "running"), (0, 256), (0, True)],
        ),
        (
            {"memory": 256, "vcpus": 2, "state": 1},
            [(0, "ERROR_down"), (3, None), (0, False)],
        ),
        (None, [(0, "ERROR_down"), (3, None), (0, False)]),
        ("down", [(0, "ERROR_nodedown"), (2, None), (2, None)]),
    ],
)
def test_live_data_of_an_instance(snapshot, answer, wanted):
    def info(node, _args):
        if node != clusters.node_uuid(1):
            return {}
        if answer == "down":
            return Result("all_instances_info", "node1", fail_msg="down")
        return {} if answer is None else {"inst1.example.com": answer}

    source = sources(snapshot, {"all_instances_info": info})
    fields = ["status", "oper_ram", "oper_state"]
    assert ask(source, "instance", fields, ["==", "name", "inst1"]) == [wanted]


def test_console(snapshot):
    running = {"inst1.example.com": {"memory": 1, "vcpus": 1, "state": 0}}
    source = sources(snapshot, {"all_instances_info": running})
    actual = ask(source, "instance", ["console"])
    assert actual[1:] == [[(0, None)], [(4, None)]]
    ((status, console),) = actual[0]
    assert status == 0
    assert (console["kind"], console["user"]) == ("ssh", "root")
    assert console["host"] == snapshot.nodes[clusters.node_uuid(1)].primary_ip
    assert console["command"][1] == "inst1.example.com"


def test_odd_answer_is_no_data(snapshot):
    script = {
        "node_info": Result("node_info", "x", None),
        "all_instances_info": Result("all_instances_info", "x", ["inst1"]),
        "export_list": Result("export_list", "x", 5),
    }
    source = sources(snapshot, script)
    assert ask(source, "node", ["bootid"], ["==", "name", "node1"]) == [[(2, None)]]
    wanted = ["==", "name", "inst1"]
    assert ask(source, "instance", ["status"], wanted) == [[(0, "ERROR_nodedown")]]
    assert ask(source, "export", ["export"])[0] == [(2, None)]


def test_filter_on_live_data_counts_silence_as_true(snapshot):
    source = sources(
        snapshot,
        {"all_instances_info": Result("all_instances_info", "x", fail_msg="down")},
    )
    assert len(ask(source, "instance", ["name"], ["?", "oper_state"])) == 3
    assert ask(source, "instance", ["name"], ["!", ["?", "oper_state"]]) == []


@pytest.mark.parametrize(
    ("qfilter", "wanted"),
    [
        (["==", "owner", "web"], ["held"]),
        (["!=", "owner", "web"], ["kept", "inst1"]),
        (["==", "owner", ""], ["kept", "inst1"]),
        (["=~", "owner", "w.b"], ["held"]),
        (["==", "reservation_priority", "high"], ["held"]),
        (["==", "request_key", "k1"], ["held"]),
        (["<", "expires", 2000], ["held"]),
        ([">", "expires", 2000], ["kept", "inst1"]),
    ],
)
def test_filters_on_terms_of_reservations_leave_out_what_has_none(qfilter, wanted):
    extra = [
        clusters.instance(20).replace(
            name="held.example.com",
            forthcoming=True,
            reservation=objects.Reservation(
                owner="web", expires=1000.0, priority="high"
            ),
            request=objects.CreationRequest(key="k1", digest=""),
        ),
        clusters.instance(21).replace(
            name="kept.example.com",
            forthcoming=True,
            reservation=objects.Reservation(),
        ),
    ]
    snapshot = clusters.snapshot(nodes=1, instances=1, extra=extra)
    actual = values(sources(snapshot), "instance", ["name"], qfilter)
    assert {name for (name,) in actual} == {f"{name}.example.com" for name in wanted}
    # The values that a filter compares are not shown.
    actual = values(sources(snapshot), "instance", ["owner", "expires"])
    assert sorted(map(str, actual)) == ["['web', 1000.0]", *2 * ["[None, None]"]]


def test_misfit_is_reported_even_without_rows():
    empty = clusters.snapshot(nodes=1)
    with pytest.raises(errors.ParameterError):
        ask(sources(empty), "instance", ["name"], ["==", "be/vcpus", "two"])
    with pytest.raises(errors.ParameterError):
        ask(sources(empty), "instance", ["name"], ["?", "nonsense"])


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            "instance",
            (
                "filter: unknown field odd of resource instance,"
                " see gnt-instance list-fields"
            ),
        ),
        ("lock", "filter: unknown field odd of resource lock; there are "),
    ],
)
def test_unknown_field_of_a_filter_says_where_the_names_are(what, text):
    empty = clusters.snapshot(nodes=1)
    with pytest.raises(errors.ParameterError) as caught:
        ask(sources(empty), what, ["name"], ["==", "odd", 1])
    assert str(caught.value).startswith(text)


def test_groups(snapshot):
    fields = [
        "name",
        "node_cnt",
        "pinst_cnt",
        "pinst_list",
        "alloc_policy",
        "ndp/ssh_port",
    ]
    assert values(sources(snapshot), "group", fields) == [
        [
            "default",
            4,
            3,
            [f"inst{n}.example.com" for n in (1, 2, 10)],
            "preferred",
            22,
        ]
    ]


def test_networks(snapshot):
    network = objects.Network(
        name="blue",
        network="192.0.2.8/29",
        uuid="net-1",
        serial_no=1,
        reservations="00010000",
        ext_reservations="11000001",
    )
    link = {"mode": "bridged", "link": "br7", "vlan": ""}
    used = snapshot.instances[clusters.instance_uuid(2)].replace(
        nics=(NIC.replace(network="net-1"),)
    )
    state = snapshot.apply(
        [
            objects.Update("networks", "net-1", network),
            objects.Update(
                "nodegroups", clusters.GROUP, clusters.group(networks={"net-1": link})
            ),
            objects.Update("instances", used.uuid, used),
        ]
    )
    fields = ["map", "free_count", "reserved_count", "external_reservations"]
    fields += ["gateway", "group_list", "inst_list", "inst_cnt"]
    assert ask(sources(state), "network", fields) == [
        [
            (0, "XX.X...X"),
            (0, 4),
            (0, 4),
            (0, "192.0.2.8, 192.0.2.9, 192.0.2.15"),
            (3, None),
            (0, [["default", "bridged", "br7", ""]]),
            (0, ["inst2.example.com"]),
            (0, 1),
        ]
    ]
    name = ask(
        sources(state), "instance", ["nic.network.name/0"], ["==", "name", "inst2"]
    )
    assert name == [[(0, "blue")]]


def test_exports(snapshot):
    def exports(node, _args):
        if node == clusters.node_uuid(2):
            return Result("export_list", "node2", fail_msg="down")
        return ["web10", "web2"] if node == clusters.node_uuid(1) else []

    source = sources(snapshot, {"export_list": exports})
    assert query.legacy(source, "export", ["node1"], ["node", "export"]) == [
        ["node1.example.com", "web2"],
        ["node1.example.com", "web10"],
    ]
    actual = ask(source, "export", ["node", "export"])
    assert actual == [
        [(0, "node1.example.com"), (0, "web2")],
        [(0, "node1.example.com"), (0, "web10")],
        [(0, "node2.example.com"), (2, None)],
        [(0, "node4.example.com"), (4, None)],
    ]


def test_operating_systems(snapshot):
    entry = ["tiny", "/srv/os/tiny", True, "", ["b", "a"], [["p", "text"]], [20], True]
    other = ["tiny", "/srv/os/tiny", True, "", ["a"], [["p", "text"]], [15, 20], False]
    broken = ["odd", "/srv/os/odd", False, "no scripts", [], [], [], False]

    def diagnose(node, _args):
        return [entry, broken] if node == clusters.node_uuid(1) else [other]

    source = sources(snapshot, {"os_diagnose": diagnose})
    fields = ["name", "valid", "variants", "parameters", "api_versions", "trusted"]
    assert values(source, "os", fields) == [
        ["odd", False, [], [], [], False],
        ["tiny", True, ["a"], [("p", "text")], [20], False],
    ]
    status = values(source, "os", ["node_status"], ["==", "name", "odd"])[0][0]
    assert status[clusters.node_uuid(1)] == [broken[1:]]
    assert status[clusters.node_uuid(2)] == []
    hidden = snapshot.cluster.replace(hidden_os=("tiny+a",))
    state = snapshot.apply([objects.Update("cluster", "", hidden)])
    source = sources(state, {"os_diagnose": diagnose})
    assert values(source, "os", ["name"], ["?", "hidden"]) == [["tiny"]]


def test_external_storage(snapshot):
    def diagnose(node, _args):
        ok = node != clusters.node_uuid(3)
        return [["shelf", "/srv/es/shelf", ok, "", [["tier", "text"]]]]

    source = sources(snapshot, {"extstorage_diagnose": diagnose})
    fields = ["name", "nodegroup_status", "parameters"]
    assert values(source, "extstorage", fields) == [["shelf", {"default": False}, []]]


def test_cluster(snapshot):
    facts = ClusterFacts(True, None, ("64bits", "x86_64"), "build")
    source = sources(snapshot, cluster_facts=lambda: facts)
    fields = ["name", "master_node", "drain_flag", "watcher_pause", "architecture"]
    assert values(source, "cluster", fields) == [
        [
            snapshot.cluster.cluster_name,
            "node1.example.com",
            True,
            None,
            ("64bits", "x86_64"),
        ]
    ]


class Jobs:
    def __init__(self, *jobs, archived=()):
        self._jobs, self._archived = jobs, archived

    def job(self, job_id):
        actual = [j for j in (*self._jobs, *self._archived) if j.id == job_id]
        return actual[0] if actual else None

    def jobs(self, *, with_logs=True):
        return self._jobs

    def archived_jobs(self):
        return self._archived


def job(job_id, **changes):
    op = JobOp(input=msgspec.Raw(b'{"OP_ID": "OP_CLUSTER_VERIFY"}'))
    return jqueue.Job(id=job_id, ops=(op,), **changes)


def test_jobs(snapshot):
    jobs = Jobs(
        job(12, received_timestamp=(100, 5)),
        job(7),
        archived=[job(3, is_archived=True)],
    )
    source = sources(snapshot, jobs=jobs)
    assert values(source, "job", ["id", "status"]) == [[7, "queued"], [12, "queued"]]
    assert values(source, "job", ["id", "archived"]) == [
        [3, True],
        [7, False],
        [12, False],
    ]
    assert values(source, "job", ["id"], [">=", "received_ts", 100]) == [[12]]
    wanted = ["|", ["==", "id", 99], ["==", "id", 3]]
    assert ask(source, "job", ["id", "opstatus"], wanted) == [
        [(0, 99), (3, None)],
        [(0, 3), (0, ["queued"])],
    ]


def test_locks(snapshot):
    row = LockInfo(
        "node/a",
        "exclusive",
        ("Jq3/Job812/I_STARTUP",),
        (("shared", ("watcher",)),),
        (12.34567,),
    )
    source = sources(snapshot, locks=lambda: [row])
    assert values(source, "lock", ["name", "mode", "owner", "pending"]) == [
        ["node/a", "exclusive", ["812"], [["shared", ['"watcher"']]]]
    ]
    assert values(source, "lock", ["held"]) == [[[12.346]]]


def test_legacy_calls(snapshot):
    source = sources(snapshot)
    assert query.legacy(source, "node", [], ["name", "powered"])[0] == [
        "node1.example.com",
        None,
    ]
    wanted = [clusters.node_uuid(3), "node1.example.com", "node2"]
    assert query.legacy(source, "node", wanted, ["name"]) == [
        ["node3.example.com"],
        ["node1.example.com"],
        ["node2.example.com"],
    ]
    with pytest.raises(errors.OpPrereqError, match="Node 'gone' not known"):
        query.legacy(source, "node", ["gone"], ["name"])
    with pytest.raises(errors.OpPrereqError) as caught:
        query.legacy(source, "node", [], ["huh"])
    assert caught.value.args[1] == "wrong_input"
    jobs = sources(snapshot, jobs=Jobs(job(7)))
    assert query.legacy(jobs, "job", [99, 7], ["id", "status"]) == [
        [99, None],
        [7, "queued"],
    ]


def test_filter_rules(snapshot):
    rules = [
        objects.FilterRule(
            uuid=f"rule-{n}",
            watermark=5,
            priority=priority,
            predicates=(),
            action="PAUSE",
            reason_trail=(),
        )
        for n, priority in enumerate((4, 2))
    ]
    state = snapshot.apply(
        [objects.Update("filters", rule.uuid, rule) for rule in rules]
    )
    assert values(sources(state), "filter", ["uuid", "priority"]) == [
        ["rule-1", 2],
        ["rule-0", 4],
    ]
    assert query.legacy(sources(state), "filter", ["rule-0"], ["action"]) == [["PAUSE"]]


def test_copies_on_candidates_and_their_lag():
    snapshot = clusters.snapshot(nodes=3).at(9, 1)
    copies = {
        clusters.node_uuid(2): CopyState(True, 9),
        clusters.node_uuid(3): CopyState(False, 4, "no answer"),
    }
    source = sources(snapshot, copies=lambda: copies)
    actual = ask(source, "node", ["copy_state", "copy_lag"])
    assert actual == [
        [(0, "master"), (3, None)],
        [(0, "current"), (0, 0)],
        [(0, "behind"), (0, 5)],
    ]
