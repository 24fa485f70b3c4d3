"""Every node call: what reaches the node, what a plan shows of it, which answers count.

``test/data/rpc/calls.txt`` has three lines per call. They are written from requests that
the runner makes, and from steps of a dry run, so that a difference in that file is a
difference of what nodes get. Calls of Ganeti are compared with its table as well.
"""

import json
import pathlib
from typing import Any

import msgspec
import pytest

from fakes import cluster
from ganeti.base.pathutils import Paths
from ganeti.operations.mcpu import dry_run, simulated_nodes
from ganeti.protocols import rpc
from ganeti.protocols.http import client
from ganeti.protocols.rpc import calls, runner, wire
from ganeti.protocols.rpc.procedure import TIMEOUTS

DATA = pathlib.Path(__file__).parents[4] / "data"
CALLS = (DATA / "rpc" / "calls.txt").read_text()
CONTRACT = {
    row["name"]: row
    for row in json.loads((DATA / "spec" / "rpc.json").read_text())["procedures"]
}
#: Classes of time limits that the contract writes in another way.
CLASSES = {"1 day": "1d", "4 hours": "4h"}
SECONDS = {"4 hours": 4 * 3600, "1 day": 24 * 3600}


class Recorder:
    """An HTTP client that keeps requests."""

    def __init__(self):
        self.requests = []

    def perform(self, requests, _on_start=None, _on_answer=None):
        self.requests += requests
        return [client.Response(200, b"[true, null]") for _request in requests]


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Return a function that makes a call, and the request that it becomes."""
    recorder = Recorder()
    monkeypatch.setattr(client, "Client", lambda: recorder)
    snapshot = cluster.example()
    uuid = next(iter(snapshot.nodes))
    paths = Paths(root=str(tmp_path / "n"), hostname="n")
    made = rpc.NetworkRunner(lambda: snapshot, paths, 3, port=1811)

    def send(procedure, args):
        made.call(procedure, [uuid], args)
        return recorder.requests.pop()

    return send


def lines(row, request):
    """Return what a call is: its form, the request, and the step of a plan."""
    many = "many nodes" if row.multi else "one node"
    yield f"{row.name}({', '.join(row.args)})"
    silence = f", {request.silence_s:g} s of silence" if request.silence_s else ""
    parts = [
        f"{many}{' even if offline' if row.accept_offline else ''}",
        f"lane {row.lane}",
        f"{request.timeout_s:g} s, probe after {request.probe_after_s:g} s{silence}",
        f"{request.max_answer // (1 << 20)} MiB",
        *(["can be aborted"] if len(request.headers) > 1 else []),
        *(["private parameters"] if row.private else []),
        *(["cloud-init seed"] if row.starts else []),
        # Calls that only read are repeatable.
        *(["repeatable"] if request.is_repeatable != row.reads else []),
    ]
    yield f"    {request.path}: {'; '.join(parts)}"
    if row.reads:
        yield "    planned: is sent"
        return
    shown = dry_run.describe(row.name, [f"<{name}>" for name in row.args])
    answer = row.answer_from or json.dumps(simulated_nodes.answer(row, ()))
    sends = f"is sent if {row.reads_if}; else " if row.reads_if else ""
    yield f"    planned: {sends}shows {' '.join(shown) or 'nothing'}; answer {answer}"


def test_calls_and_plans_of_them_are_those_of_the_list(sent):
    actual = []
    for row in calls.PROCEDURES.values():
        args = [2.5 if name == "duration" else f"<{name}>" for name in row.args]
        request = sent(row.name, args)
        assert json.loads(request.body) == args
        assert request.timeout_s == TIMEOUTS[row.timeout] + (
            2.5 if row.timeout == "duration" else 0
        )
        actual += lines(row, request)
    assert actual == CALLS.splitlines()


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_calls_of_ganeti_have_its_time_limit_and_offline_rule(name):
    row, wanted = calls.PROCEDURES[name], CONTRACT[name]
    text = wanted["timeout"]
    assert row.timeout == CLASSES.get(text, text.split()[0])
    if text in SECONDS:
        assert TIMEOUTS[row.timeout] == SECONDS[text]
    elif text.split()[-1].isdigit():
        assert TIMEOUTS[row.timeout] == int(text.split()[-1])
    assert row.accept_offline == (wanted["offline_nodes"] != "skipped")


GUEST = {"memory": 512, "vcpus": 1, "state": "running", "time": 1.5, "other": None}
HOST = {"memory_total": "2048", "memory_free": 1.5, "cpu_total": 4, "name": "x"}
SPACE = {"type": "lvm-vg", "name": "xenvg", "storage_free": 5, "storage_size": None}
OS = ["tiny", "/srv/os", True, "", ["default"], [["a", "b"]], [20], False]
#: Procedure, answers that the master takes, and those that it refuses.
ANSWERS = [
    (
        "all_instances_info",
        [{}, {"i": GUEST}],
        [[], {"i": {"memory": "512"}}, {"i": {"stuck": 10**400}}],
    ),
    ("bdev_sizes", [{"sda": 5}], [{"sda": "5"}, [5]]),
    ("blockdev_assemble", [["/dev/x", None, 1, True]], ["/dev/x", [["/dev/x"]]]),
    ("blockdev_find", [None, {"a": [1]}], ["text", 5, [1, {}]]),
    ("blockdev_getdimensions", [[[1, 2], [1.5, None], None]], [[[1]], [["1", 2]], 5]),
    (
        "blockdev_getmirrorstatus_multi",
        [
            [[True, {}]],
            [[True, None], [False, "no such volume"]],
            [[True, {"ldisk_status": 4, "sync_percent": 12.5, "is_degraded": True}]],
            [[True, {"dev_path": "/dev/drbd0", "estimated_time": 7, "mirror": None}]],
        ],
        [
            [[1, {}]],
            [[True]],
            {},
            [[True, [1]]],
            [[True, {"ldisk_status": "faulty"}]],
            [[True, {"ldisk_status": [1]}]],
            [[True, {"ldisk_status": 5}]],
            [[True, {"sync_percent": 10**400}]],
            [[True, {"is_degraded": "no"}]],
            [[True, {"mirror": "up"}]],
        ],
    ),
    *(
        (name, ["", "text"], [None, 5])
        for name in (
            *("drbd_helper", "os_export", "repair_command", "restricted_command"),
            *("store_dump", "store_scan"),
        )
    ),
    ("drbd_needs_activation", [[], ["uuid"]], [None, [1], "uuid"]),
    ("helper_image_add", [1024], [None, "1024"]),
    ("node_ssh_key_add", [[], [["n1", "text"]]], [None, [["n1"]], ["n1"]]),
    ("node_ssh_key_remove", [[], ["text"]], [None, [["n1", "text"]]]),
    ("export_info", ["text"], [None, ["text"]]),
    ("export_list", [[], ["web1"]], ["web1", [None], [["web1"]]]),
    (
        "extstorage_diagnose",
        [[["p", "/path", True, "ok", None]], [["p", None, False, 5, [["a", 1]]]]],
        [
            *([["p", "/path", 1, "ok", None]], [["p", "/path", True, "ok"]], {}),
            # Neither the master nor gnt-storage can take these parameters apart.
            *([["p", "/p", True, "", each]] for each in ([5], ["ab"], [["a", 1, 2]])),
        ],
    ),
    (
        "get_file_info",
        [[True, {"size": 5}], [False, {}]],
        [[True], [1, {}], [True, []]],
    ),
    ("get_watcher_pause", [None, 5, 1.5], ["5", []]),
    ("guest_addresses", [{"web1": [["eth0", "", []]]}], [[], {"web1": "x"}]),
    ("guest_firmware", [["", "eJw="]], [None, "eJw=", ["eJw="], [1, ""]]),
    ("guest_thaw", [True, False], [None, 1]),
    (
        "helper_result",
        [["none", None, []], ["ended", 255, ["a"] * 20]],
        [
            None,
            ["other", None, []],
            ["ended", 256, []],
            ["ended", "0", []],
            ["ended", 0, ["a"] * 21],
            ["ended", 0, ["a" * 2001]],
            ["ended", 0, [None]],
            ["ended", 0],
        ],
    ),
    ("hooks_runner", [[], [["a", 1, "text"]]], [[["a", "1", "text"]], [["a", 1]], {}]),
    ("iallocator_runner", ["{}"], [{}, None]),
    (
        "impexp_status",
        [[None, {"progress": 1, "exit_status": 0, "listen_port": 4711}]],
        [
            [5],
            {},
            [],
            [{"listen_port": "4711"}],
            [{"listen_port": 70000}],
            [{"exit_status": "0"}],
            [{"recent_output": [1]}],
            [{"progress_mbytes": "1"}],
            [{"error_message": 1}],
        ],
    ),
    ("instance_get_migration_status", [{"status": "active"}], ["active", None]),
    ("instance_info", [{}, GUEST], [None, {"vcpus": "1"}, {"time": "1"}]),
    ("instance_left", [{}, GUEST], [None, {"vcpus": "1"}, {"time": "1"}]),
    ("instance_list", [["web1"]], [{"web1": 1}, [1]]),
    ("lv_list", [{"a/b": ["5", True, False], "a/c": [5, False, True]}], [{"a": 5}]),
    ("master_node_name", ["n1"], [None, ["n1"]]),
    ("node_crypto_tokens", [[["ssl", "AA"]]], [[["ssl"]], [["ssl", None]], "AA"]),
    ("node_has_ip_address", [True, False], [1, "yes", None]),
    (
        "node_heartbeats",
        [[], [None, ["0f" * 16, 7]]],
        [None, [7], [["0f", 7]], [["0f" * 16, -1]], [["0f" * 16, "7"]]],
    ),
    ("node_reaches", [[], [[True, False]]], [None, [True], [[1, 0]], [[True]]]),
    (
        "node_info",
        [["boot", None, None], [5, [SPACE, None], [HOST, None]]],
        [["boot", None], ["boot", [5], None], ["boot", None, [{"cpu_total": "x"}]]],
    ),
    (
        "node_status",
        [
            {
                "release": "3.1",
                "guests": {"i": GUEST},
                "host": HOST,
                "certificates": {"client.pem": 5.5},
            },
        ],
        [
            None,
            {},
            {"release": 3, "guests": {}, "host": {}, "certificates": {}},
            {"release": "x" * 101, "guests": {}, "host": {}, "certificates": {}},
            {"release": "3", "guests": ["i"], "host": {}, "certificates": {}},
            {"release": "3", "guests": {}, "host": [], "certificates": {}},
            {"release": "3", "guests": {}, "host": {}, "certificates": {"a": "5"}},
            {
                "release": "3",
                "guests": {},
                "host": {},
                "certificates": {f"{n}": 5 for n in range(21)},
            },
        ],
    ),
    ("node_verify", [{"nodelist": 1}], [[], None]),
    ("node_verify_light", [{"nodelist": 1}], [[], None]),
    ("node_volumes", [[{"name": "a"}]], [[{"name": []}], {}]),
    ("os_diagnose", [[OS]], [[OS[:7]], [[*OS[:2], 1, *OS[3:]]], {}]),
    ("os_validate", [True], [None, 1]),
    ("run_oob_many", [[[True, "on"]]], [[[1, "on"]], {}]),
    ("storage_list", [[["sda", 5, None]]], [["sda"], [[[5]]]]),
    *(
        (name, [{"revision": 1, "digest": "ab"}], [{"revision": []}, [], None])
        for name in ("store_apply", "store_install", "store_promise", "store_status")
    ),
    ("term_confirm", [True], [None, 1]),
    ("term_review", ["text"], [None, 5]),
    ("store_changes", [None, "text"], [5, ["text"]]),
    ("term_vouch", [False], [None, 0]),
    ("call_abort", [True], [None, 1]),
    ("version", [3010000], ["3.1", None]),
    ("vg_list", [{"xenvg": 5.5}], [{"xenvg": "5"}, ["xenvg"]]),
    ("x509_cert_create", [["name", "pem"]], [["name"], ["name", None]]),
]


@pytest.mark.parametrize(
    ("name", "good", "bad"), ANSWERS, ids=[name for name, _good, _bad in ANSWERS]
)
def test_an_answer_of_another_shape_is_a_failed_call(name, good, bad):
    for payload in good:
        body = json.dumps([True, payload]).encode()
        result = runner.read_answer(name, "n1", client.Response(200, body))
        assert result.fail_msg is None
        assert result.payload == msgspec.convert(payload, calls.PROCEDURES[name].shape)
    for payload in bad:
        body = json.dumps([True, payload]).encode()
        result = runner.read_answer(name, "n1", client.Response(200, body))
        assert result.fail_msg.startswith("RPC layer error: unexpected answer: ")
        assert (result.payload, result.is_lost) == (None, True)
        assert (result.call, result.node) == (name, "n1")


def test_each_shape_has_examples():
    read = {name for name, row in calls.PROCEDURES.items() if row.shape is not Any}
    assert {name for name, _good, _bad in ANSWERS} == read


def test_every_node_of_a_cluster_reads_the_headers():
    assert (wire.TERM_HEADER, wire.CALL_HEADER) == ("X-Ganeti-Term", "X-Ganeti-Call")
    assert (wire.STATUS_DEPOSED, wire.STATUS_BUSY) == (409, 503)
    assert wire.MAX_UNPACKED == 64 << 20
