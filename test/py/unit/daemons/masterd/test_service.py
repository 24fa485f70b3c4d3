"""The master daemon over its socket: jobs, queries, settings, hostile clients."""

import json
import os
import re
import socket
import threading

import pytest

from fakes import clusters
from fakes.master import Master
from fakes.patience import job_status, until
from ganeti.base import errors
from ganeti.model import objects
from ganeti.protocols.luxi import framing
from ganeti.protocols.rpc.procedure import Result

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}


@pytest.fixture
def master(tmp_path):
    answers = {
        "node_info": ["boot", None, None],
        "all_instances_info": {},
        "export_list": [],
        "set_watcher_pause": None,
    }
    made = Master(tmp_path / "node1.example.com", script=answers)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def client(master):
    with master.client() as actual:
        yield actual


def connect(sock, path):
    with framing.reachable(path) as place:
        sock.connect(place)


def test_a_change_of_an_opcode_has_its_log_lines(tmp_path):
    acts = {"hypervisor_validate_params": None, "hooks_runner": []}
    start = clusters.snapshot(
        nodes=1, enabled_hypervisors=["fake"], enabled_disk_templates=["diskless"]
    )
    create = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "mode": "create",
        "instance_name": "new.example.com",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "pnode": "node1.example.com",
        "no_install": True,
        "start": False,
        "ignore_ipolicy": True,
    }
    made = Master(tmp_path / "node1.example.com", start, acts).start()
    try:
        news = made.store.follow(made.store.snapshot().revision)
        with made.client() as client:
            job_id = client.call("SubmitJob", [[create]])
            assert job_status(client, job_id) == "success"
        changed = next(
            change_set.changes
            for change_set in news
            if any(change[0] == "instances" for change in change_set.changes)
        )
        lines = [change[2] for change in changed if change[0] == "joblogs"]
        assert any(b"adding instance new.example.com" in line for line in lines)
    finally:
        made.stop()


def test_job_from_submission_to_archive(client):
    job_id = client.call("SubmitJob", [[DELAY]])
    assert job_status(client, job_id) == "success"
    fields = ["id", "status", "opstatus", "summary", "archived"]
    wanted = [job_id, "success", ["success"], ["TEST_DELAY(0.001)"], False]
    assert client.call("QueryJobs", [[job_id], fields]) == [wanted]
    answer = client.call("Query", ["job", fields, ["==", "id", job_id]])
    assert [cell[1] for cell in answer["data"][0]] == wanted
    assert client.call("ArchiveJob", [job_id]) is True
    assert client.call("ArchiveJob", [str(job_id)]) is False
    assert client.call("QueryJobs", [None, ["id"]]) == []
    assert client.call("Query", ["job", ["id", "archived"], None])["data"] == [
        [[0, job_id], [0, True]]
    ]
    with pytest.raises(errors.JobLost):
        client.call("WaitForJobChange", [job_id, ["status"], None, None, 1])


def test_many_jobs_have_consecutive_ids(client):
    actual = client.call("SubmitManyJobs", [[[DELAY]] * 3])
    first = actual[0][1]
    assert actual == [[True, first], [True, first + 1], [True, first + 2]]
    assert job_status(client, first + 2) == "success"
    many = client.call("SubmitManyJobs", [[[DELAY]] * 60])
    assert all(ok for ok, _ in many)


def test_failed_job_reports_why(client):
    op = {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "nope", "tags": ["a"]}
    job_id = client.call("SubmitJob", [[op]])
    assert job_status(client, job_id) == "error"
    [[result]] = client.call("QueryJobs", [[job_id], ["opresult"]])
    assert result[0][0] == "OpPrereqError"
    assert result[0][1][1] == "unknown_entity"


def test_change_is_seen_by_queries_and_ssconf(master, client):
    op = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": ["blue"]}
    assert job_status(client, client.call("SubmitJob", [[op]])) == "success"
    assert client.call("QueryTags", ["cluster", ""]) == ["blue"]
    assert client.call("QueryClusterInfo")["tags"] == ["blue"]
    nodes = {clusters.node_uuid(n) for n in (1, 2, 3)}

    def has_arrived():
        pushed = master.rpc.called("write_ssconf_files")
        return nodes == {
            node for node, args in pushed if args[0].get("cluster_tags") == "blue"
        }

    until("the tag in ssconf files", has_arrived)


def test_files_that_a_job_writes_are_written_again_behind_it(master, client):
    """A later commit may have been distributed before the job's call arrived."""
    master.rpc.script["upload_file"] = None

    def count():
        pushed = master.rpc.called("write_ssconf_files")
        return sum("node_list" in args[0] for _node, args in pushed)

    until("the first files", lambda: count() == 3)
    job_id = client.call("SubmitJob", [[{"OP_ID": "OP_CLUSTER_REDIST_CONF"}]])
    assert job_status(client, job_id) == "success"
    until("those of the job, and those of the distributor", lambda: count() == 9)


def test_jobs_outlive_a_restart(master):
    with master.client() as client:
        first = client.call("SubmitJob", [[DELAY]])
        job_status(client, first)
    master.stop()
    master.start()
    with master.client() as client:
        assert client.call("QueryJobs", [[first], ["status"]]) == [["success"]]
        assert client.call("SubmitJob", [[DELAY]]) == first + 1


def test_drained_queue_refuses(client):
    assert client.call("SetDrainFlag", [True]) is True
    with pytest.raises(errors.JobQueueDrainError):
        client.call("SubmitJob", [[DELAY]])
    assert client.call("QueryConfigValues", [["drain_flag", "huh"]]) == [True, None]
    forced = client.call("SubmitJobToDrainedQueue", [[DELAY]])
    assert client.call("SetDrainFlag", [False]) is True
    assert job_status(client, forced) == "success"


def test_cancel_and_priority_of_unknown_jobs(client):
    assert client.call("CancelJob", [99, False])[0] is False
    assert client.call("CancelJob", ["99"])[0] is False
    assert client.call("ChangeJobPriority", [99, 0])[0] is False
    assert client.call("AutoArchiveJobs", [-1, 89]) == [0, 0]
    with pytest.raises(errors.GenericError):
        client.call("PickupJob", [1])


def test_queries_of_every_resource(master, client):
    for what in ("node", "instance", "group", "network", "job", "lock", "filter"):
        names = client.call("QueryFields", [what, None])["fields"]
        fields = [row["name"] for row in names]
        answer = client.call("Query", [what, fields, None])
        assert [row["name"] for row in answer["fields"]] == fields
    master.rpc.script["export_list"] = ["web1"]
    assert client.call("QueryExports", [["node2.example.com"], False]) == [
        ["node2.example.com", "web1"]
    ]


def test_resources_of_opcodes_are_refused(client):
    for what in ("os", "cluster", "extstorage"):
        with pytest.raises(errors.GenericError, match="opcode"):
            client.call("Query", [what, ["name"], None])


def test_legacy_calls(client):
    wanted = [["node2.example.com", 0], ["node1.example.com", 2]]
    names = ["node2.example.com", "node1"]
    actual = client.call("QueryNodes", [names, ["name", "pinst_cnt"], False])
    assert actual == wanted
    with pytest.raises(errors.OpPrereqError, match="'gone' not known"):
        client.call("QueryNodes", [[*names, "gone"], ["name", "pinst_cnt"], False])
    rows = client.call("QueryInstances", [[], ["name", "uuid"], False])
    assert len(rows) == 2
    short_and_uuid = [rows[0][0].partition(".")[0], rows[1][1]]
    actual = client.call("QueryInstances", [short_and_uuid, ["name", "uuid"], False])
    assert actual == rows
    assert client.call("QueryGroups", [[], ["name"], False]) == [["default"]]
    assert client.call("QueryNetworks", [[], ["name"], False]) == []
    for method in ("QueryNodes", "QueryInstances", "QueryGroups", "QueryNetworks"):
        with pytest.raises(errors.OpPrereqError) as caught:
            client.call(method, [[], ["name"], True])
        assert caught.value.args[1] == "wrong_input"


def test_live_query_does_not_hold_up_others(master, client):
    asked, go_on = threading.Event(), threading.Event()

    def slow(_node, _args):
        asked.set()
        assert go_on.wait(60)
        return ["boot", None, None]

    master.rpc.script["node_info"] = slow
    with master.client() as other:
        actual = []
        thread = threading.Thread(
            target=lambda: actual.append(
                other.call("Query", ["node", ["bootid"], ["==", "name", "node1"]])
            )
        )
        thread.start()
        assert asked.wait(60)
        assert len(client.call("Query", ["node", ["name"], None])["data"]) == 3
        go_on.set()
        thread.join(60)
    assert actual[0]["data"] == [[[0, "boot"]]]


def test_job_filters(client):
    reason = [["gnt:user", "maintenance", 1]]
    predicates = [["jobid", [">", "id", "watermark"]]]
    key = client.call("ReplaceFilter", [None, 5, predicates, "PAUSE", reason])
    [row] = client.call(
        "QueryFilters", [[key], ["priority", "action", "predicates", "reason_trail"]]
    )
    assert row[:3] == [5, "PAUSE", predicates]
    assert row[3][0] == reason[0]
    assert row[3][1][0] == "gnt:daemon:luxid"
    paused = client.call("SubmitJob", [[DELAY]])
    assert client.call("WaitForJobChange", [paused, ["status"], None, None, 1])[0] == [
        "queued"
    ]
    assert client.call("ReplaceFilter", [key, 1, [], ["RATE_LIMIT", 2], []]) == key
    assert job_status(client, paused) == "success"
    assert client.call("DeleteFilter", [key]) is None
    with pytest.raises(errors.GenericError):
        client.call("DeleteFilter", [key])


def test_a_malformed_uuid_of_a_job_filter_is_a_malformed_request(client):
    with pytest.raises(errors.RequestError):
        client.call("ReplaceFilter", ["no-uuid", 1, [], "PAUSE", []])


def wrong_filters():
    """Yield (priority, predicates, action, part of the error)."""
    yield -1, [], "PAUSE", "priority: wanted 0 or more, found -1"
    for action in ("pause", ["RATE_LIMIT", 0], ["RATE_LIMIT", True], ["PAUSE", 1]):
        yield 1, [], action, "action: wanted one of ACCEPT, PAUSE,"
    for action in (["RATE_LIMIT"], ["RATE_LIMIT", 1, 1], ["RATE_LIMIT", "1"]):
        yield 1, [], action, "or [RATE_LIMIT, n], found ['RATE_LIMIT'"
    for predicate in ("jobid", ["jobid"], ["jobid", ["?", "id"], 1]):
        yield 1, [predicate], "PAUSE", "predicate: wanted [kind, filter], found"
    for kind in ("huh", 1):
        yield 1, [[kind, ["?", "id"]]], "PAUSE", f"{kind!r} is not a kind of predicate"
    yield (
        1,
        [["opcode", None]],
        "PAUSE",
        "predicate opcode: wanted a filter, found null",
    )
    yield 1, [["opcode", ["huh"]]], "PAUSE", "predicate opcode: "
    many = ["|", *(["=~", "osparams.x", f"[ab]*a[ab]{{9}}{n}"] for n in range(200))]
    text = "predicates: filter: too many regular expressions"
    yield 1, [["opcode", many], ["opcode", many]], "PAUSE", text
    for kind in ("jobid", "reason"):
        predicate = [kind, ["==", "name", 1]]
        yield 1, [predicate], "PAUSE", f"predicate {kind}: unknown field name"


@pytest.mark.parametrize(
    ("priority", "predicates", "action", "text"), list(wrong_filters())
)
def test_wrong_job_filters_are_refused(client, priority, predicates, action, text):
    with pytest.raises(errors.OpPrereqError, match=re.escape(text)):
        client.call("ReplaceFilter", [None, priority, predicates, action, []])


def test_predicates_of_each_kind_are_taken(client):
    predicates = [
        ["jobid", [">", "id", "watermark"]],
        ["reason", ["|", ["==", "source", "cli"], ["==", "reason", "x"]]],
        ["opcode", ["==", "OP_ID", "OP_TEST_DELAY"]],
    ]
    key = client.call("ReplaceFilter", [None, 0, predicates, ["RATE_LIMIT", 1], []])
    rows = client.call("QueryFilters", [[key], ["predicates", "action"]])
    assert rows == [[predicates, ["RATE_LIMIT", 1]]]


def test_one_call_returns_all_jobs_that_have_changed(client):
    first, second = (client.call("SubmitJob", [[DELAY]]) for _ in range(2))
    for job in (first, second):
        job_status(client, job)
    fields = ["status"]
    both = [[first, None, None], [second, None, None]]
    changes = client.call("WaitForJobChanges", [both, fields, 60.0])
    assert changes == [[job, [["success"], []]] for job in (first, second)]
    with pytest.raises(errors.RequestError, match="wanted 1 to 10000 jobs, found 0"):
        client.call("WaitForJobChanges", [[], ["status"], 0.0])


def test_watcher_pause(master, client):
    until = 4_000_000_000
    assert client.call("SetWatcherPause", [until]) == until
    assert client.call("QueryConfigValues", [["watcher_pause"]]) == [until]
    asked = master.rpc.called("set_watcher_pause")
    assert {node for node, _ in asked} == {clusters.node_uuid(n) for n in (2, 3)}
    with pytest.raises(errors.OpPrereqError, match="within the next 100 years"):
        client.call("SetWatcherPause", [2.0**60])
    assert client.call("QueryConfigValues", [["watcher_pause"]]) == [until]
    assert client.call("SetWatcherPause", [None]) is None
    assert client.call("QueryConfigValues", [["watcher_pause"]]) == [None]


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("NoSuchMethod", []),
        ("SubmitJob", []),
        ("SubmitJob", [[], 1]),
        ("SubmitJob", [[{"OP_ID": "OP_NONSENSE"}]]),
        ("SubmitJob", [[{"OP_ID": "OP_TEST_DELAY", "huh": 1}]]),
        ("SubmitManyJobs", [[[DELAY], [{"OP_ID": "OP_NONSENSE"}]]]),
        ("SubmitManyJobs", [[[DELAY]] * 60 + [[5]]]),
        ("Query", ["node", ["name"], ["??"]]),
        ("Query", ["nothing", ["name"], None]),
        ("QueryTags", ["nothing", "x"]),
        ("CancelJob", ["abc", False]),
        ("CancelJob", ["9" * 5000, False]),
        ("QueryJobWaits", ["abc"]),
        ("SetDrainFlag", ["yes"]),
    ],
)
def test_malformed_requests_get_a_text(client, method, args):
    with pytest.raises(errors.RequestError, match="Failed to parse request") as caught:
        client.call(method, args)
    assert isinstance(caught.value.args[0], str)


@pytest.mark.parametrize("job_id", [2**63, 10**30])
def test_no_job_has_a_huge_number(client, job_id):
    unknown = client.call("QueryJobs", [[999], ["status"]])
    assert client.call("QueryJobs", [[job_id], ["status"]]) == unknown
    assert client.call("QueryJobWaits", [job_id]) == []


def test_the_socket_of_the_remote_api_has_its_calls_alone(master, client):
    assert client.call("QueryConfigValues", [["drain_flag"]]) == [False]
    with master.client(master.paths.rapi_socket) as remote:
        assert remote.call("QueryClusterInfo")["name"]
        assert remote.call("QueryJobs", [None, ["id"]]) == []
        for method, args in [
            ("SetDrainFlag", [True]),
            ("QueryConfigValues", [["drain_flag"]]),
            ("SubmitManyJobs", [[[DELAY]]]),
            ("SubmitJobToDrainedQueue", [[DELAY]]),
            ("ArchiveJob", [1]),
            ("RecordRound", [{"round": "r1", "automaton": "watcher"}]),
            ("ChangeMaintenance", [1, {}, []]),
            ("ChangeNodeDeaths", [1, {}, [], {"round": "r1", "automaton": "x"}]),
        ]:
            with pytest.raises(errors.OpPrereqError, match=f"method '{method}'"):
                remote.call(method, args)
        destroy = {"OP_ID": "OP_CLUSTER_DESTROY"}
        tags = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["x"]}
        text = "user ann, address ::1, request 0123456789ab"
        named = tags | {"reason": [["gnt:daemon:rapi", text, 1]]}
        for ops in (
            [tags],
            [destroy],
            [named, destroy],
            [DELAY],
            [{}],
            [{"OP_ID": None}],
        ):
            for method in ("SubmitJob", "PlanJob"):
                with pytest.raises(errors.OpPrereqError, match="not available to the"):
                    remote.call(method, [ops])
        assert remote.call("PlanJob", [[named]])["opcodes"][0]["error"] is None
        assert remote.call("SubmitJob", [[named]]) == 1
        for method, args in (
            ("QueryJobs", [[1], ["ops"]]),
            ("Query", ["job", ["ops"], None]),
            ("QueryObjects", ["job", [], ["ops"], False]),
            ("WaitForJobChange", [1, ["ops"], None, None, 10]),
        ):
            shown = str(remote.call(method, args))
            assert "request 0123456789ab" in shown
            assert "user ann" not in shown
        assert text in str(client.call("QueryJobs", [[1], ["ops"]]))
    for ops in (7, [7], [[destroy]]):
        # Malformed data ends the connection, as on the other sockets.
        with (
            master.client(master.paths.rapi_socket) as remote,
            pytest.raises(errors.RequestError),
        ):
            remote.call("SubmitJob", [ops])
    assert client.call("QueryJobs", [None, ["id"]]) == [[1]]


def test_garbage_costs_the_others_nothing(master, client):
    for garbage in (b"\x00\x01\x03", b"{}\x03", b"[[[[\x03", os.urandom(500) + b"\x03"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            connect(sock, master.paths.master_socket)
            sock.sendall(garbage)
            data = sock.recv(65536)
            assert json.loads(data.split(b"\x03")[0])["success"] is False
    assert client.call("QueryConfigValues", [["master_node"]]) == ["node1.example.com"]


def test_hundred_clients_wait_for_one_job(master, client):
    client.call("ReplaceFilter", [None, 5, [], "PAUSE", []])
    [[key]] = client.call("QueryFilters", [None, ["uuid"]])
    job_id = client.call("SubmitJob", [[DELAY]])
    threads = threading.active_count()
    socks = []
    for _ in range(100):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        connect(sock, master.paths.query_socket)
        request = {
            "method": "WaitForJobChange",
            "args": [job_id, ["status"], ["queued"], None, 60],
        }
        sock.sendall(json.dumps(request).encode() + b"\x03")
        socks.append(sock)
    assert client.call("QueryJobs", [[job_id], ["status"]]) == [["queued"]]
    assert threading.active_count() <= threads + 2
    client.call("DeleteFilter", [key])
    for sock in socks:
        answer = json.loads(sock.recv(65536)[:-1])
        assert answer["success"] is True
        assert answer["result"][0][0] != "queued"
        sock.close()


def test_one_call_waits_for_many_jobs(client):
    actual = client.call("SubmitManyJobs", [[[DELAY]] * 3])
    left = {job_id: [job_id, None, None] for _, job_id in actual}
    while left:
        args = [list(left.values()), ["status"], 60]
        for job_id, ((status,), _log) in client.call("WaitForJobChanges", args):
            left[job_id][1] = [status]
            if status == "success":
                del left[job_id]
    [first] = client.call("WaitForJobChanges", [[[10**6]], ["status"], 1])
    assert first == [10**6, None]


def test_nodes_that_fail_get_their_files_later(tmp_path):
    state = clusters.snapshot(nodes=2, instances=0)
    failures = [Result("write_ssconf_files", "node2", fail_msg="down")]
    done = threading.Event()

    def write(node, _args):
        if node == clusters.node_uuid(2):
            if failures:
                return failures.pop()
            done.set()
        return None

    made = Master(
        tmp_path / "node1.example.com", state, {"write_ssconf_files": write}
    ).start()
    try:
        record = made.store.snapshot().cluster.replace(tags=("x",))
        made.store.commit([objects.Update("cluster", "", record)])
        assert done.wait(60)
    finally:
        made.stop()


def test_refusal_by_a_node_deposes_nobody(master, client):
    master.rpc.script["node_info"] = Result(
        "node_info", "node1", fail_msg="term 1 is over", deposed=True
    )
    client.call("Query", ["node", ["bootid"], None])
    client.call("SubmitJob", [[DELAY]])
    assert not master.deposed.is_set()


def test_deposed_master_says_so(tmp_path):
    made = Master(tmp_path / "node1.example.com").start()
    other = Master(tmp_path / "node1.example.com")
    try:
        from ganeti import store
        from ganeti.base import clock

        newer = store.open_master(
            other.paths.store_db, replicate=None, clock=clock.SystemClock()
        )
        newer.close()
        refused = pytest.raises(errors.OpExecError, match="no longer the master")
        with made.client() as client, refused:
            client.call("SubmitJob", [[DELAY]])
        assert made.deposed.wait(60)
    finally:
        made.stop()


def test_plans_hold_up_nobody(tmp_path):
    asked, gate = threading.Semaphore(0), threading.Event()

    def slow(_node, _args):
        asked.release()
        gate.wait(120)
        return {}

    free = ["boot", [], [{"memory_free": 65536}]]
    one = Master(tmp_path, script={"instance_info": slow, "node_info": free}).start()
    op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "inst1.example.com"}
    plans = []

    def ask():
        with one.client() as own:
            plans.append(own.call("PlanJob", [[op]]))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    try:
        revision = one.store.snapshot().revision
        for thread in threads:
            thread.start()
        assert asked.acquire(timeout=60)
        with one.client() as other:
            # The others are served, also where plans wait, and no plan holds a lock.
            assert other.call("QueryConfigValues", [["cluster_name"]])
            assert other.call("Query", ["lock", ["name"], None])["data"] == []
        gate.set()
        for thread in threads:
            thread.join(60)
        assert len(plans) == len(threads)
        assert [plan["opcodes"][0]["error"] for plan in plans] == [None] * 5
        assert one.store.snapshot().revision == revision
        assert one.service.deps.queue.jobs() == []
        assert not [row for row in one.rpc.calls if row[0] == "instance_start"]
    finally:
        gate.set()
        one.stop()
