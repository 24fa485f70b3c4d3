"""When collectors run, what the agent answers, and the helper process."""

import json
import logging
import os
import pathlib
import subprocess

import pytest

from fakes.clocks import FakeClock
from ganeti.base import errors
from ganeti.base.constants.protocols import confd, mond
from ganeti.base.constants.protocols.mond import Kind
from ganeti.base.pathutils import Paths
from ganeti.daemons import mond_agent
from ganeti.daemons.mond_agent import Agent, Application
from ganeti.node.collectors import helper
from ganeti.node.collectors.collector_table import COLLECTORS, Code, Collector, Sampler
from ganeti.node.collectors.sources import Sources
from ganeti.protocols.confd import wire

DATA = pathlib.Path(__file__).parents[3] / "data" / "mond"
KEY = b"key\n"


class Steps(Sampler):
    def __init__(self):
        self.count = 0

    def add(self, sources):
        self.count += 1

    def data(self):
        return self.count


def made(name, category, kind, collect=None, sampler=None):
    """Return a collector without texts and metrics."""
    row = mond.Row(name, "", "", category, kind)
    return Collector(row, Code(collect, sampler=sampler))


class Node:
    """An agent with collectors of the test."""

    def __init__(self, *collectors, **changes):
        self.clock = FakeClock()
        self.settings = mond_agent.Settings(**changes)
        sources = Sources(Paths(), None, None, lambda: "", lambda: ["kvm"])
        self.agent = Agent(sources, lambda: self.settings, self.clock, collectors)

    def ask(self, path, method="GET"):
        """Return status and body of a request."""
        app = Application(
            self.agent,
            hostname="node1.tst",
            key=lambda: KEY,
            metrics=mond_agent.exposition(mond_agent.NodeMetrics(self.agent)),
            clock=self.clock,
        )
        seen = []
        path, _, query = path.partition("?")
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
        (body,) = app(environ, lambda *words: seen.append(words))
        return seen[0][0], body


def counted(calls, name="lv", category="storage", kind=Kind.PERFORMANCE):
    def collect(_sources):
        calls.append(name)
        return [len(calls)]

    return made(name, category, kind, collect)


def test_a_collector_runs_once_within_its_interval():
    calls = []
    node = Node(counted(calls), intervals={"lv": 10.0})
    for wait_s, value in ((0, 1), (9, 1), (2, 2)):
        node.clock.now += wait_s
        _status, body = node.ask("/1/report/storage/lv")
        assert json.loads(body)["data"] == [value]
    assert len(calls) == 2


def test_samples_are_taken_when_they_are_due():
    node = Node(made("s", None, Kind.PERFORMANCE, sampler=Steps))
    assert node.agent.sample_due() == 5.0
    node.clock.now += 2
    assert node.agent.sample_due() == 3.0
    node.clock.now += 3
    node.agent.sample_due()
    assert json.loads(node.ask("/1/report/default/s")[1])["data"] == 2


def test_paths():
    node = Node(counted([]), counted([], "off"), inactive=frozenset({"off"}))
    assert node.ask("/") == ("200 OK", b"[1]")
    assert node.ask("/1") == node.ask("/1/") == ("200 OK", b"null")
    assert json.loads(node.ask("/1/list/collectors")[1]) == [["lv", "storage", 0]]
    (report,) = json.loads(node.ask("/1/report/all")[1])
    assert report["version"] == "B"
    assert isinstance(report["timestamp"], int)
    for path in ("/2", "/1/report/default/lv", "/1/report/storage/off", "/1/report/"):
        status, body = node.ask(path)
        assert status == "404 Not Found"
        assert body
    assert node.ask("/", "POST")[0] == "405 Method Not Allowed"


def test_a_failure_is_reported_and_counted():
    def fail(_sources):
        raise errors.OpExecError("no disk")

    node = Node(made("drbd", "storage", Kind.STATUS, fail))
    report = json.loads(node.ask("/1/report/storage/drbd")[1])
    assert report["data"] == {
        "error": "no disk",
        "status": {"code": 2, "message": "no disk"},
    }
    _status, body = node.ask("/metrics")
    assert b'ganeti_collector_up{collector="drbd"} 0.0' in body
    assert b'ganeti_collector_failures_total{collector="drbd"} 1.0' in body


def diagnosing(data):
    return made(mond.DIAGNOSE, "node", Kind.STATUS, lambda _sources: data)


def test_a_challenge_is_signed_with_the_name_of_the_node():
    node = Node(diagnosing({"status": "evacuate"}))
    for query, further in (
        ("", {}),
        ("?challenge=a-1", {"node": "node1.tst", "challenge": "a-1"}),
    ):
        answer = json.loads(node.ask("/1/report/node/diagnose" + query)[1])
        text = (answer["salt"] + answer["msg"]).encode()
        purpose = confd.PURPOSE_REPORT if query else b""
        assert wire.signer(wire.MAGIC_SHA1, KEY)(purpose + text) == answer["hmac"]
        report = json.loads(answer["msg"])
        assert report["data"] == {"status": "evacuate"}
        members = {name: report.get(name) for name in further}
        assert members == further
    assert node.ask("/1/report/node/diagnose?challenge=a/b")[0] == "400 Bad Request"


def test_any_report_is_signed_for_those_who_send_a_challenge():
    load = {"cpu_number": 1, "cpus": [0.5], "cpu_total": 0.5}
    node = Node(made("cpu-avg-load", None, Kind.PERFORMANCE, lambda _s: load))
    path = "/1/report/default/cpu-avg-load"
    assert json.loads(node.ask(path)[1])["data"] == load
    answer = json.loads(node.ask(f"{path}?challenge=c1")[1])
    text = confd.PURPOSE_REPORT + (answer["salt"] + answer["msg"]).encode()
    assert wire.signer(wire.MAGIC_SHA1, KEY)(text) == answer["hmac"]
    report = json.loads(answer["msg"])
    assert (report["node"], report["challenge"]) == ("node1.tst", "c1")
    assert report["data"] == load


def test_malformed_settings_are_left_out():
    rows = {
        "lv": {"active": False, "interval": 2_500_000},
        "drbd": {"active": True, "interval": 1},
        "bad": 7,
        "worse": {"interval": "x"},
    }
    present = mond_agent.parse(rows, 7)
    assert present.inactive == {"lv"}
    assert present.interval_s("lv") == 2.5
    assert present.interval_s("drbd") == 0.5
    assert present.interval_s("worse") == 5.0
    assert present.diagnose == ""
    assert mond_agent.parse(None, "x") == mond_agent.Settings(diagnose="x")


def test_settings_stay_while_confd_is_silent():
    def connect():
        raise errors.ConfdClientError("nobody")

    follower = mond_agent.Follower(connect)
    follower.present = mond_agent.Settings(diagnose="x")
    assert not follower.refresh()
    assert follower.present.diagnose == "x"


def test_metrics_of_every_collector_are_well_formed(tmp_path):
    from ganeti.node.collectors import block_devices

    drbd = pathlib.Path(__file__).with_name("test_mond_parsers.py").read_text()

    text = drbd.partition('DRBD = """\\\n')[2].partition('"""')[0]
    recorded = json.loads((DATA / "reports.json").read_text())
    data = {report["name"]: report["data"] for report in recorded} | {
        "cpu-avg-load": {"cpu_number": 2, "cpus": [0.5, 0.5], "cpu_total": 1.0},
        "diskstats": [
            {"name": "sda", "readsNum": 1, "writes": 2, "secRead": 2}
            | {"secWritten": 4, "timeIO": 500}
        ],
        "drbd": block_devices.parse_drbd(text, {0: "web1.tst"}),
        "inst-status-xen": {"instances": [{"name": "w", "status": {"code": 4}}]},
        "diagnose": {"status": "evacuate"},
    }
    assert set(data) == {item.name for item in COLLECTORS}
    node = Node(
        *(
            Collector(row, Code(lambda _s, n=row.name: data[n], code.metrics))
            for row, code in COLLECTORS
        )
    )
    body = node.ask("/metrics")[1].decode()
    for line in (
        'ganeti_disk_read_bytes_total{device="sda"} 1024.0',
        'ganeti_disk_io_seconds_total{device="sda"} 0.5',
        'ganeti_node_health{state="evacuate"} 1.0',
        'ganeti_drbd_out_of_sync_bytes{instance="",minor="2"} 696320.0',
        'ganeti_instance_status{instance="w"} 4.0',
    ):
        assert (
            line in body
            or line.replace('instance="",minor="2"', 'minor="2",instance=""') in body
        )
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=body,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture
def helped(tmp_path):
    """A virtual node and its helper process."""
    paths = Paths(str(tmp_path / "node1.tst"), "node1.tst")
    os.makedirs(paths.data_dir)
    pathlib.Path(paths.hmac_key).write_bytes(KEY)
    directory = pathlib.Path(paths.conf_dir, helper.DIAGNOSE_COMMANDS)
    directory.mkdir(parents=True, mode=0o755)
    ends = []
    process = helper.Helper(helper.start(paths), lambda: ends.append(1))
    yield process, directory, ends
    process.close()


def script(directory, name, text, mode=0o755):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


def test_the_helper_does_its_tasks_and_no_others(helped):
    process, directory, _ends = helped
    assert process.ask("key") == "key\n"
    assert process.ask("guests") == {}
    with pytest.raises(errors.OpExecError):
        process.ask("shell", "id")
    script(directory, "good", """echo '{"status": "Ok"}'; cat""")
    assert process.ask("diagnose", "good") == '{"status": "Ok"}\n'


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x", "valid command name"),
        ("..", "valid command name"),
        (" ", "valid command name"),
        ("absent", "not allowed"),
        ("writable", "mode allows more"),
        ("plain", "not executable"),
        ("link", "wrong type"),
        ("failing", "exited with code 3"),
        ("endless", "printed too much"),
    ],
)
def test_a_diagnose_command_that_is_refused_or_fails(helped, name, why):
    process, directory, _ends = helped
    script(directory, "writable", "echo {}", 0o775)
    script(directory, "plain", "echo {}", 0o644)
    script(directory, "failing", "exit 3")
    script(directory, "endless", "exec yes")
    (directory / "link").symlink_to("/bin/true")
    with pytest.raises(errors.OpExecError, match=why):
        process.ask("diagnose", name)


def test_a_directory_that_others_may_write_is_refused(helped):
    process, directory, _ends = helped
    script(directory, "good", "echo {}")
    directory.chmod(0o777)
    with pytest.raises(errors.OpExecError, match="mode allows more"):
        process.ask("diagnose", "good")


def test_the_loss_of_the_helper_is_noticed(helped):
    process, _directory, ends = helped
    process._sock.shutdown(2)
    with pytest.raises(errors.OpExecError, match="has ended"):
        process.ask("key")
    assert ends == [1]


def test_a_command_that_cannot_be_used_is_logged_once_and_named_to_who_asks(caplog):
    """The public report is that of a node in order."""
    caplog.set_level(logging.INFO)
    answers = [errors.OpExecError("check is not allowed"), '{"status": "Ok"}']

    def ask(_task, _text):
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    sources = Sources(Paths(), ask, None, lambda: "check", lambda: ["kvm"])
    node = Node()
    node.agent = Agent(sources, lambda: node.settings, node.clock, COLLECTORS)

    def sealed(query=""):
        _status, body = node.ask(f"/1/report/node/diagnose{query}")
        return json.loads(json.loads(body)["msg"])

    data = {"status": "Ok", "details": "check is not allowed"}
    assert (sealed()["data"], "problem" in sealed()) == (data, False)
    asked = sealed("?challenge=c1")
    assert (asked["data"], asked["problem"]) == (data, "check is not allowed")
    _status, body = node.ask("/metrics")
    assert b'ganeti_collector_up{collector="diagnose"} 0.0' in body
    assert b'ganeti_node_health{state="Ok"} 1.0' in body
    node.clock.now += 10
    sealed()
    del answers[0]
    node.clock.now += 10
    assert "problem" not in sealed("?challenge=c1")
    shown = [text for text in caplog.messages if text.startswith("diagnose: ")]
    assert shown == ["diagnose: check is not allowed", "diagnose: works"]
