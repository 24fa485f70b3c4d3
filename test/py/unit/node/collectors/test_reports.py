"""The reports and metrics of a node with devices of all kinds, as they are sent.

``RECORD_TRANSCRIPTS=1`` writes what the code makes now.
"""

import json
import os
import pathlib

import pytest

from fakes.clocks import FakeClock
from ganeti.base.constants import versions
from ganeti.base.pathutils import Paths
from ganeti.daemons import mond_agent
from ganeti.daemons.mond_agent import Agent, Application
from ganeti.node.collectors import block_devices, processors, reports, xen
from ganeti.node.collectors.collector_table import COLLECTORS, Sampler
from ganeti.node.collectors.sources import Sources

FOLDER = pathlib.Path(__file__).parents[4] / "data" / "mond"
PROC_DRBD = """version: 8.4.11 (api:1/proto:86-101)
srcversion: F73C670A7EC572DB9CF3E5B
 0: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----
    ns:22544 nr:1 dw:2 dr:23072 al:3 bm:4 lo:5 pe:6 ua:8 ap:9 ep:1 wo:f oos:43288
	[=======>............] sync'ed: 41.2% (43288/65536)K
	finish: 0:01:09 speed: 4,448 (4,449) want: 5,000 K/sec
 1: cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown C r-----
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 2: cs:StandAlone ro:Secondary/Unknown ds:Inconsistent/DUnknown   r-----
    ns:0 nr:0 dw:0 dr:0 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:b oos:65280
 3: cs:Unconfigured
 4: cs:SyncTarget ro:Secondary/Primary ds:Inconsistent/UpToDate A r-----
    ns:1 nr:65536 dw:0 dr:65536 al:0 bm:x lo:0 pe:0 ua:0 ap:0 ep:1 wo:n oos:7
	[>...................] sync'ed:  0.5% (10240/10245)M
	finish: 12:00:00 speed: 1,000 (999) K/sec
"""
DISKSTATS = """   8       0 sda 1 2 3 4 5 6 7 8 9 10 11
 253       1 dm-1 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
"""
VOLUME = {
    "lv_uuid": "l-1",
    "lv_name": "a",
    "lv_attr": "-wi-ao----",
    "lv_major": "-1",
    "lv_minor": "-2",
    "lv_kernel_major": "253",
    "lv_kernel_minor": "1",
    "lv_size": "4194304",
    "seg_count": "2",
    "lv_tags": "one,two",
    "lv_modules": "",
    "vg_uuid": "v-1",
    "vg_name": "xenvg",
    "segtype": "linear",
    "seg_start": "3",
    "seg_start_pe": "",
    "seg_size": "5",
    "seg_tags": "t",
    "seg_pe_ranges": "/dev/sda:0-3",
    "devices": "/dev/sda(0)",
}
LVS = json.dumps(
    {
        "report": [
            {"seg": [VOLUME, VOLUME | {"lv_name": "b", "vg_name": "other"}]},
            {"lv": [VOLUME | {"lv_name": "c", "lv_size": ""}]},
        ]
    }
)
XL_LIST = """Name                ID   Mem VCPUs      State   Time(s)
Domain-0             0  1024     4     r-----    1000.0
web1                 3   512     1     -b----      42.5
db1                  4   512     1     ------      1.0
sick                 5   512     1     ---s--      2.0
dead                 6   512     1     ----c-      3.0
"""
XL_UPTIME = """Name                                ID Uptime
web1                                 3 10:20:30
db1                                  4  2 days, 10:20:30
"""
PRIMARIES = [
    {"name": name, "uuid": f"u-{name}", "admin_state": state}
    for name, state in (
        *(("web1", "up"), ("db1", "down"), ("sick", "up"), ("dead", "down")),
        *(("gone", "up"), ("off", "down"), ("away", "offline")),
    )
]
CPU = """cpu  {0} 1 2 {1} 4 5 6 7 8 9
cpu0 {0} 1 2 {1} 4 5 6 7 8 9
cpu1 {1} 1 2 {0} 4 5 6 7 8 9
"""


class Processors(Sampler):
    def add(self, sources):
        raise AssertionError("no sample is due")

    def data(self):
        window = processors.LoadWindow()
        for now in (0.0, 10.0, 20.0):
            busy, idle = int(100 + 20 * now), int(100 + 60 * now)
            window.add(now, processors.parse_processors(CPU.format(busy, idle)))
        return window.data()


class Domains(Processors):
    def data(self):
        loads = xen.DomainLoads()
        for now in (0.0, 10.0):
            text = XL_LIST.replace("42.5", str(42.5 + now / 2))
            loads.add(now, xen.parse_list(text))
        return loads.data()


OF_TEXTS = {
    "diskstats": lambda: block_devices.parse_counters(DISKSTATS),
    "drbd": lambda: block_devices.parse_drbd(PROC_DRBD, {0: "web1", 4: "db"}),
    "inst-status-xen": lambda: xen.instance_status(
        PRIMARIES, xen.parse_list(XL_LIST), xen.parse_uptime(XL_UPTIME)
    ),
    "lv": lambda: block_devices.parse_volumes(
        LVS,
        block_devices.volumes_of(
            "web1", [{"dev_type": "plain", "logical_id": ["xenvg", "a"]}]
        ),
    ),
    "kvm-inst-rss": lambda: {"web2": 100, "web3": 0},
    "load-average": lambda: processors.parse_load("0.52 0.25 0.1 3/417 99\n"),
    "diagnose": lambda: reports.parse_diagnosis(
        '{"status": "evacuate", "details": "x"}'
    ),
}
SAMPLERS = {"cpu-avg-load": Processors, "xen-cpu-avg-load": Domains}


@pytest.fixture
def application():
    """Return an application with all collectors over fixed texts."""

    def fixed(item):
        if item.name in SAMPLERS:
            code = item.code._replace(sampler=SAMPLERS[item.name])
        else:
            code = item.code._replace(collect=lambda _sources: OF_TEXTS[item.name]())
        return item._replace(code=code._replace(is_applicable=lambda _sources: True))

    sources = Sources(Paths(), None, None, lambda: "", lambda: ["kvm"])
    clock = FakeClock()
    agent = Agent(
        sources, mond_agent.Settings, clock, tuple(fixed(item) for item in COLLECTORS)
    )
    return Application(
        agent,
        hostname="node1.tst",
        key=lambda: b"key\n",
        metrics=mond_agent.exposition(mond_agent.NodeMetrics(agent)),
        clock=clock,
    )


def asked(application, path, method="GET", accept=""):
    """Return status, headers and body of an answer."""
    seen = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_ACCEPT": accept}
    (body,) = application(environ, lambda *words: seen.append(words))
    ((status, headers),) = seen
    return status, dict(headers), body.decode()


def check(name, text):
    """Compare with a file, or record it."""
    path = FOLDER / name
    if os.environ.get("RECORD_TRANSCRIPTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_reports_are_those_of_the_record(application):
    status, headers, body = asked(application, "/1/report/all")
    assert status == "200 OK"
    assert headers == {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    check("reports.json", json.dumps(json.loads(body), indent=1) + "\n")


def test_metrics_are_those_of_the_record(application, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda _name: 4096)
    status, headers, body = asked(application, "/metrics")
    assert (status, headers["Content-Type"].partition(";")[0]) == (
        "200 OK",
        "text/plain",
    )
    body = body.replace(versions.RELEASE_VERSION, "RELEASE")
    check("metrics.txt", body)


def test_collectors_are_listed(application):
    _status, _headers, body = asked(application, "/1/list/collectors")
    check("collectors.json", json.dumps(json.loads(body), indent=1) + "\n")


@pytest.mark.parametrize(
    ("path", "method", "status", "body"),
    [
        ("/", "GET", "200 OK", "[1]"),
        ("/1", "GET", "200 OK", "null"),
        ("/1/", "GET", "200 OK", "null"),
        ("/2", "GET", "404 Not Found", "no such resource\n"),
        ("/1/report", "GET", "404 Not Found", "no such resource\n"),
        (
            *("/1/report/storage/none", "GET", "404 Not Found"),
            "no such collector, or not active\n",
        ),
        ("/", "POST", "405 Method Not Allowed", "only GET is possible\n"),
    ],
)
def test_other_paths_and_methods(application, path, method, status, body):
    actual = asked(application, path, method)
    assert (actual[0], actual[2]) == (status, body)
    assert actual[1].get("Allow") == ("GET" if method == "POST" else None)


def test_an_error_of_the_agent_has_no_details(application, monkeypatch):
    def fail():
        raise LookupError("secret")

    monkeypatch.setattr(application._agent, "active", fail)
    status, headers, body = asked(application, "/1/report/all")
    assert status == "500 Internal Server Error"
    assert body == "LookupError; the log has more\n"
    assert headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("output", "details"),
    [
        ("{", "the output of the diagnose command is not JSON: "),
        ('{"a": NaN}', "the output of the diagnose command is not JSON: NaN is not"),
        ('{"a": "\\ud800"}', "the output of the diagnose command is not JSON: "),
        ('{"a": 1e999}', "the output of the diagnose command is not JSON: "),
        ("[1]", "the output of the diagnose command is not a JSON object"),
        ("[" * 100_000, "the output of the diagnose command is not JSON: "),
        (
            '{"a":' * 31 + "1" + "}" * 31,
            "the output is nested more than 30 deep",
        ),
    ],
)
def test_an_output_that_cannot_be_used_needs_nothing(output, details):
    data = reports.parse_diagnosis(output)
    assert data["status"] == "Ok"
    assert data["details"].startswith(details)
    assert len(data["details"]) <= 500


def test_the_deepest_output_is_read():
    output = '{"a":' * 30 + "1" + "}" * 30
    assert reports.parse_diagnosis(output) == json.loads(output)
    assert reports.in_order("x" * 600) == {"status": "Ok", "details": "x" * 500}
    states = [state.value for state in reports.NodeHealth]
    assert states == ["Ok", "live-repair", "evacuate", "evacuate-failover"]


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (
            block_devices.parse_counters,
            "8 0 sda 1 2\n",
            r"^line of 5 words: '8 0 sda 1 2'$",
        ),
        (processors.parse_load, "1 2 3 4\n", r"^no load averages: '1 2 3 4"),
        (processors.parse_load, "1 2 3 4 5\n", r"^no load averages: '1 2 3 4 5"),
        (xen.parse_list, "Name\nweb1 3 512 1 r\n", r"^line of 5 words: 'web1 3 512 1"),
        (lambda text: block_devices.parse_drbd(text, {}), "x", "^no version of DRBD$"),
        (
            lambda text: block_devices.parse_volumes(text, {}),
            "{}",
            "^no report of lvs: KeyError",
        ),
        (
            lambda text: block_devices.parse_volumes(text, {}),
            "[]",
            "^no report of lvs: TypeError",
        ),
        (
            lambda text: block_devices.parse_volumes(text, {}),
            '{"report": [5]}',
            "^no report of lvs: AttributeError",
        ),
    ],
)
def test_texts_of_another_form_are_refused(parse, text, problem):
    with pytest.raises(ValueError, match=problem):
        parse(text)


def test_blank_lines_are_left_out():
    assert block_devices.parse_counters("\n \n") == []
    assert xen.parse_list("Name\n\n") == {}
