"""Data of collectors, from texts of the kernel and of tools."""

import json

import pytest

from ganeti.base import errors
from ganeti.node.collectors import block_devices, processors, reports, xen
from ganeti.protocols.confd import wire

KEY = b"3b7f60c2d9e84a15b6c0f1a29d5e7788c4d3e2f1\n"
DRBD = """\
version: 8.4.11 (api:1/proto:86-101)
srcversion: 0123456789ABCDEF01234567

 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:7 nr:0 dw:12 dr:3 al:1 bm:0 lo:0 pe:2 ua:0 ap:0 ep:1 wo:f oos:0
 1: cs:Unconfigured
 2: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:d oos:680
\t[=====>..............] sync'ed: 33.5% (340/1020)M
\tfinish: 0:02:10 speed: 4,096 (4,000) want: 5,120 K/sec
 3: cs:WFConnection ro:Secondary/Unknown ds:UpToDate/DUnknown C r-----
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:4
 4: cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----
    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:8
"""


def test_drbd_devices_with_their_instances():
    data = block_devices.parse_drbd(DRBD, {0: "web1.tst"})
    version = {"version": "8.4.11", "api": "1", "proto": "86-101"}
    assert data["versionInfo"] == version
    first, unused, syncing, waiting, alone = data["deviceInfos"]
    assert first["instance"] == "web1.tst"
    assert first["localRole"] == "Primary"
    assert first["remoteState"] == "UpToDate"
    assert (first["replicationProtocol"], first["ioFlags"]) == ("C", "r-----")
    assert first["perfIndicators"] == {
        **dict.fromkeys(("networkReceive", "bitMap", "localCount", "outOfSync"), 0),
        **dict.fromkeys(("unacknowledged", "applicationPending"), 0),
        "networkSend": 7,
        "diskWrite": 12,
        "diskRead": 3,
        "activityLog": 1,
        "pending": 2,
        "epochs": 1,
        "writeOrder": "f",
    }
    assert unused == {"minor": 1, "connectionState": "Unconfigured"}
    assert syncing["syncStatus"] == {
        "percentage": 33.5,
        "progress": "340/1020",
        "progressUnit": "MegaByte",
        "timeToFinish": "00:02:10",
        "speed": 4096,
        "speedUnit": "KiloByte/Second",
        "want": 5120,
    }
    assert waiting["instance"] is None
    assert alone["connectionState"] == "StandAlone"
    # The worst one counts; messages name the minor.
    assert data["status"]["code"] == 4
    assert [line[:3] for line in data["status"]["message"].splitlines()] == [
        "3: ",
        "4: ",
    ]


def test_a_synchronization_is_no_fault():
    text = "\n".join(DRBD.splitlines()[:10])
    assert block_devices.parse_drbd(text, {})["status"] == {"code": 0, "message": ""}
    with pytest.raises(ValueError, match="no version"):
        block_devices.parse_drbd("", {})


def test_disk_counters_of_old_and_new_kernels():
    old = "   8       0 sda 10 0 80 4 3 1 24 2 0 5 6\n"
    wanted = {
        "major": 8,
        "minor": 0,
        "name": "sda",
        "readsNum": 10,
        "mergedReads": 0,
        "secRead": 80,
        "timeRead": 4,
        "writes": 3,
        "mergedWrites": 1,
        "secWritten": 24,
        "timeWrite": 2,
        "ios": 0,
        "timeIO": 5,
        "wIOmillis": 6,
    }
    assert block_devices.parse_counters(old) == [wanted]
    assert block_devices.parse_counters(old.rstrip() + " 1 2 3 4 5 6\n") == [wanted]
    with pytest.raises(ValueError, match="4 words"):
        block_devices.parse_counters("8 0 sda 1")


STAT = "cpu  9 9 9 9\ncpu0 {} 0 0 {} 0 0 0 0 0 0\ncpu1 0 0 {} {} 0 0 0 0\nintr 5\n"


def test_the_load_is_the_busy_part_of_the_window():
    window = processors.LoadWindow()
    assert "error" in window.data()
    window.add(0.0, processors.parse_processors(STAT.format(100, 100, 0, 0)))
    assert "error" in window.data()
    window.add(100.0, processors.parse_processors(STAT.format(131, 169, 12, 88)))
    assert window.data() == {
        "cpu_number": 2,
        "cpus": [0.31, 0.12],
        "cpu_total": pytest.approx(0.43),
    }
    # Samples older than ten minutes do not count any more.
    window.add(650.0, processors.parse_processors(STAT.format(131, 669, 12, 588)))
    assert window.data()["cpu_total"] == 0
    with pytest.raises(ValueError, match="no line"):
        processors.parse_processors("intr 5\n")


def row(**values):
    names = [name for name in block_devices._LVS_FIELDS if name not in values]
    return {**dict.fromkeys(names, ""), "vg_name": "xenvg", **values}


def test_logical_volumes_have_their_instances():
    rows = [
        row(lv_name="a.disk0", lv_size="1048576", lv_tags="x,y", seg_count="2"),
        row(lv_name="other", lv_size="7"),
    ]
    text = json.dumps({"report": [{"seg": rows}]})
    meta = {"dev_type": "plain", "logical_id": ["xenvg", "a.meta"]}
    data = {"dev_type": "plain", "logical_id": ["xenvg", "a.disk0"]}
    drbd = {"dev_type": "drbd", "logical_id": [], "children": [data, meta]}
    owners = block_devices.volumes_of("web1.tst", [drbd])
    assert owners["xenvg", "a.meta"] == "web1.tst"
    first, other = block_devices.parse_volumes(text, owners)
    assert first["instance"] == "web1.tst"
    assert (first["size"], first["seg_count"], first["tags"]) == (
        1048576,
        2,
        ["x", "y"],
    )
    assert first["major"] is None
    assert other["instance"] is None
    for bad in ("", "{}", '{"report": [{"seg": [{}]}]}', "[]"):
        with pytest.raises((ValueError, errors.ParseError)):
            block_devices.parse_volumes(bad, {})


XL = """\
Name                 ID   Mem VCPUs      State   Time(s)
Domain-0              0  1024     2     r-----     400.0
web1.tst              1   128     1     -b----     {}
web2.tst              2   128     1     ---s--       3.0
web3.tst              3   128     1     ------       4.0
"""


def test_wanted_and_actual_states_of_xen_instances():
    domains = xen.parse_list(XL.format("5.5"))
    up = xen.parse_uptime(
        "Name  ID Uptime\nDomain-0 0 9 days, 1:00:00\nweb1.tst 1 1 day,  2:03:04\n"
    )
    names = {"web1.tst": "up", "web2.tst": "up", "web3.tst": "down", "web4.tst": "down"}
    names["web5.tst"] = "offline"
    instances = [
        {"name": name, "uuid": name, "admin_state": state, "mtime": 1.5}
        for name, state in names.items()
    ]
    data = xen.instance_status(instances, domains, up)
    rows = {item["name"]: item for item in data["instances"]}
    codes = {name: item["status"]["code"] for name, item in rows.items()}
    assert codes == {
        "web1.tst": 0,
        "web2.tst": 4,
        "web3.tst": 4,
        "web4.tst": 0,
        "web5.tst": 2,
    }
    assert rows["web1.tst"]["uptime"] == "1 day, 2:03:04"
    assert rows["web1.tst"]["actualState"] == "blocked"
    assert data["status"]["code"] == 4
    assert len(data["status"]["message"].splitlines()) == 3


def test_the_load_of_domains_begins_again_after_a_restart():
    loads = xen.DomainLoads()
    loads.add(0.0, xen.parse_list(XL.format("50")))
    assert "error" in loads.data()
    loads.add(10.0, xen.parse_list(XL.format("2")))
    loads.add(20.0, xen.parse_list(XL.format("10")))
    assert loads.data() == {"web1.tst": 0.8, "web2.tst": 0.0, "web3.tst": 0.0}


def test_the_signature_is_that_of_the_documented_example():
    report = reports.report(
        "diagnose",
        "node",
        reports.Kind.STATUS,
        {"status": "evacuate", "details": {"part": "psu2"}},
        1700000400.0,
    )
    sealed = reports.sealed(report, KEY, 1700000400.7)
    assert sealed["salt"] == "1700000400"
    assert sealed["hmac"] == "88b6937482a238729d8880b612e81f5e6a997825"
    # Any change of the text is noticed.
    changed = sealed["salt"] + sealed["msg"].replace("psu2", "psu1")
    assert wire.signer(wire.MAGIC_SHA1, KEY)(changed.encode()) != sealed["hmac"]


def test_merged_status_and_data_that_is_no_object():
    worst = reports.merged(
        [reports.Status(), reports.Status(1, "a"), reports.Status(4, "b")]
    )
    assert worst == reports.Status(4, "a\nb")
    assert reports.with_status([1], worst)["data"] == [1]
    assert reports.merged([]) == reports.Status()


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"status": NaN}', "NaN"),
        ("[" * 10000, "not JSON"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "nested"),
        (r'{"status": "evacuate", "a": "\ud800"}', "not JSON"),
        ('{"status": "evacuate", "a": 1e999}', "not JSON"),
    ],
)
def test_output_without_a_diagnosis_counts_as_ok(printed, why):
    data = reports.parse_diagnosis(printed)
    assert data["status"] == "Ok"
    assert why in data["details"]


def test_a_diagnosis_is_passed_on_unchanged():
    printed = '{"status": "live-repair", "command": "fix", "details": [1, null]}'
    assert reports.parse_diagnosis(printed) == json.loads(printed)
