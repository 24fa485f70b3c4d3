"""DRBD's states, settings and commands; texts as the tools printed them in the lab."""

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors, pathutils
from ganeti.model.objects.filled import DiskX
from ganeti.node.storage import LocalStatus, drbd_commands, drbd_state, mirrors
from ganeti.node.storage import base as storage_base

HEAD = """version: 8.4.11 (api:1/proto:86-101)
srcversion: F73C670A7EC572DB9CF3E5B
"""
PROC = (
    HEAD
    + """ 0: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----
    ns:22544 nr:0 dw:0 dr:23072 al:0 bm:0 lo:0 pe:4 ua:8 ap:0 ep:1 wo:f oos:43288
	[=======>............] sync'ed: 41.2% (43288/65536)K
	finish: 0:01:09 speed: 4,448 (4,448) K/sec
 1: cs:Connected ro:Primary/Secondary ds:Diskless/UpToDate C r-----
    ns:65536 nr:0 dw:0 dr:65536 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 2: cs:StandAlone ro:Secondary/Unknown ds:Inconsistent/DUnknown   r-----
    ns:0 nr:0 dw:0 dr:0 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:65280
 3: cs:Unconfigured
 4: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:65536 nr:0 dw:0 dr:65536 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
"""
)
SHOW = """resource resource0 {
    options {
    }
    net {
        allow-two-primaries	yes;
        cram-hmac-alg   	"md5";
        shared-secret   	"abcdef0123456789";
        after-sb-0pri   	discard-zero-changes;
    }
    _remote_host {
        address			ipv4 10.77.0.1:11000;
    }
    _this_host {
        address			ipv4 10.77.0.2:11000;
        volume 0 {
            device			minor 0;
            disk			"/dev/xenvg/d";
            meta-disk			"/dev/xenvg/m" [ 0 ];
            disk {
                disk-barrier    	yes;
                resync-rate     	2048k; # bytes/second
            }
        }
    }
}
resource other {
    options {
    }
    _this_host {
        volume 0 {
            device			minor 7;
        }
    }
}
"""
SECRET = "5ec2e7"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Set the text of the kernel."""
    path = tmp_path / "drbd"
    monkeypatch.setattr(drbd_commands, "PROC", str(path))
    path.write_text(HEAD)
    return path.write_text


def disk(port=11000, minor=0):
    children = tuple(
        DiskX(dev_type="plain", logical_id=("xenvg", name), size=size, uuid=name,
              serial_no=1)
        for name, size in (("d", 64), ("m", 128))
    )  # fmt: skip
    return DiskX(
        dev_type="drbd", logical_id=("n1", "n2", port, minor, 3, SECRET), size=64,
        uuid="u1", serial_no=1, children=children, params={"resync-rate": 1000},
        dynamic_params={"local-minor": minor, "remote-minor": 3, "port": port,
                        "local-ip": "192.0.2.1", "remote-ip": "192.0.2.2"},
    )  # fmt: skip


def device(runner, **changes):
    return mirrors.MirrorDisk(pathutils.Paths(), disk(**changes), runner)


def test_states_of_the_kernel_are_read_with_their_progress():
    state = drbd_state.parse_devices(PROC)
    assert sorted(state) == [0, 1, 2, 3, 4]
    assert (state[0].sync_percent, state[0].left_s) == (41.2, 69.0)
    assert [m.is_degraded for m in state.values()] == [True, True, True, True, False]
    assert [state[n].local_status for n in (0, 1, 2)] == [
        LocalStatus.OK, LocalStatus.FAULTY, LocalStatus.UNKNOWN
    ]  # fmt: skip
    assert not state[3].is_in_use
    assert state[2].is_standalone
    assert drbd_state.parse_version(PROC) == (8, 4, 11)


def test_settings_are_read_from_what_drbdsetup_shows():
    shown = drbd_state.parse_show(SHOW)
    assert shown["resource0"] == drbd_state.Resource(
        "resource0", (0,), "/dev/xenvg/d", "/dev/xenvg/m", "ipv4:10.77.0.2:11000",
        "ipv4:10.77.0.1:11000", two_primaries=True,
    )  # fmt: skip
    assert shown["other"] == drbd_state.Resource("other", (7,))


def test_a_disk_connects_with_its_secret_which_no_error_has(kernel):
    kernel(PROC)
    refused = (10, "", f"bad option --shared-secret={SECRET}")
    show = SHOW.replace("/dev/xenvg/d", "/dev/xenvg/d").replace(
        "        address			ipv4 10.77.0.2:11000;\n", ""
    )
    start, end = show.index("    _remote_host"), show.index("    _this_host")
    show = show[:start] + show[end:]

    def answer(argv):
        return (0, show, "") if argv[1] == "show" else refused

    runner = FakeRunner(drbdsetup=answer)
    with pytest.raises(errors.BlockDeviceError) as caught:
        device(runner).connect(two_primaries=False)
    assert SECRET not in str(caught.value)
    line = runner.lines[-1]
    assert line.startswith(
        "drbdsetup connect resource0 ipv4:192.0.2.1:11000 ipv4:192.0.2.2:11000"
    )
    assert f"--shared-secret={SECRET}" in line
    assert "--allow-two-primaries=no" in line


def test_a_minor_that_something_else_uses_is_named(kernel):
    kernel(PROC)
    runner = FakeRunner(drbdsetup=(0, SHOW, ""))
    with pytest.raises(errors.BlockDeviceError, match=r"minor 7 is in use by .*other"):
        device(runner, minor=7).connect(two_primaries=False)


def test_a_primary_without_good_peer_keeps_its_volumes(kernel):
    alone = PROC.replace("SyncSource", "WFConnection").replace(
        "UpToDate/Inconsistent", "UpToDate/DUnknown"
    )
    kernel(alone)
    with pytest.raises(errors.BlockDeviceError, match="no valid data"):
        device(FakeRunner()).detach()


def test_status_has_no_path_while_the_disk_is_not_active(kernel):
    kernel(PROC)
    active = device(FakeRunner()).status()
    assert (active.dev_path, active.major, active.sync_percent) == (
        "/dev/drbd0", 147, 41.2
    )  # fmt: skip
    kernel(HEAD)
    inactive = device(FakeRunner()).status()
    assert (inactive.dev_path, inactive.is_degraded) == ("", True)


def test_other_releases_and_an_absent_module_are_refused(kernel, monkeypatch):
    kernel("version: 8.3.11 (api:88/proto:86-96)\n")
    wrong = r"wanted version 8\.4 or 9, found 8\.3\.11"
    with pytest.raises(errors.StorageError, match=wrong):
        drbd_commands.mirrors(FakeRunner())
    monkeypatch.setattr(drbd_commands, "PROC", "/nonexistent/drbd")
    with pytest.raises(errors.StorageError, match="modprobe drbd"):
        drbd_commands.mirrors(FakeRunner())


@pytest.mark.parametrize(
    ("params", "expected", "absent"),
    [
        ({"resync-rate": 5}, "--resync-rate=5", "--c-fill-target"),
        ({"dynamic-resync": True, "c-max-rate": 9}, "--c-max-rate=9", "--resync-rate"),
        ({"disk-barriers": "bf"}, "--disk-flushes=no", "--disk-drain=no"),
        ({"meta-barriers": True}, "--md-flushes=no", "--md-flushes=yes"),
        ({"disk-custom": "--al-extents 67"}, "--al-extents 67", "--x"),
    ],
)
def test_parameters_become_options(params, expected, absent):
    commands = drbd_commands.Commands84(drbd_commands.Place("resource0", 0))
    line = " ".join(commands.attach("/dev/a", "/dev/b", params))
    assert expected in line
    assert absent not in line


#: As the tool printed it in the lab, on both nodes after a split brain.
GENERATIONS = (
    "E5F74DF80A4059DF:E3A8041D39C89945:97F856590090CFCD:97F756590090CFCD"
    ":1:1:1:0:0:0:0\n"
)


def test_generations_are_read_only_while_the_nodes_are_apart(kernel):
    asked = []

    def answer(argv):
        asked.append(argv[1:])
        return 0, GENERATIONS, ""

    kernel(PROC)
    runner = FakeRunner(drbdsetup=answer)
    status = device(runner, minor=4).status()
    assert (status.mirror.connection, status.mirror.generations) == ("Connected", ())
    assert asked == []
    status = device(runner, minor=2).status()
    assert asked == [("get-gi", "2")]
    assert status.mirror == storage_base.MirrorStatus(
        "StandAlone", "Secondary", "Inconsistent", "DUnknown",
        ("E5F74DF80A4059DF", "E3A8041D39C89945", "97F856590090CFCD",
         "97F756590090CFCD"),
    )  # fmt: skip
    assert device(runner, minor=9).status().mirror is None


@pytest.mark.parametrize("text", ["", "unknown minor", GENERATIONS.lower(), "A:B:C:D"])
def test_generations_that_cannot_be_read_are_none(text):
    assert drbd_state.parse_generations(text) == ()


def test_a_device_without_volumes_and_connection_gets_new_volumes(kernel):
    show = """resource resource3 {
    _this_host {
        volume 0 {
            device			minor 3;
        }
    }
}
"""
    kernel(PROC)
    runner = FakeRunner(
        drbdsetup=lambda argv: (0, show if argv[1] == "show" else "", ""),
        drbdmeta=(0, "", ""),
        lvchange=(0, "", ""),
        lvs=(0, "", ""),
    )
    made = device(runner, minor=3)
    for volume in (made.data, made.meta):
        volume.assemble = lambda: None
    made.replace_parts()
    assert "attach" in [argv[1] for argv, _options in runner.commands]
    show = show.replace("resource3", "resource9")
    with pytest.raises(errors.BlockDeviceError, match="in use by resource resource9"):
        made.replace_parts()
    show = ""
    with pytest.raises(errors.BlockDeviceError, match="not active on this node"):
        made.replace_parts()


SYNCING = (
    *("StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID"),
    *("SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT"),
)
TALKING = ("Connected", "VerifyS", "VerifyT", "Ahead", "Behind")
ALONE = ("StandAlone", "Disconnecting")
OTHERS = ("Unconnected", "WFConnection", "WFReportParams", "NetworkFailure", "Timeout")


@pytest.mark.parametrize("connection", [*SYNCING, *TALKING, *ALONE, *OTHERS])
def test_connections_of_the_kernel_have_their_meaning(connection):
    state = drbd_state.Mirror(0, connection, disk="Inconsistent")
    assert state.is_syncing == (connection in SYNCING)
    assert state.is_connected == (connection in SYNCING + TALKING)
    assert state.is_standalone == (connection in ALONE)
    expected = LocalStatus.SYNC if connection in SYNCING else LocalStatus.UNKNOWN
    assert state.local_status == expected
    assert state.is_in_use


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("UpToDate", LocalStatus.OK),
        *((state, LocalStatus.FAULTY) for state in ("Diskless", "Failed", "Detaching")),
        *((state, LocalStatus.UNKNOWN) for state in ("Outdated", "Consistent")),
    ],
)
def test_data_of_the_kernel_have_their_meaning(data, status):
    state = drbd_state.Mirror(0, "Connected", disk=data, peer_disk="UpToDate")
    assert state.local_status == status
    assert state.is_diskless == (status == LocalStatus.FAULTY)
    assert state.is_degraded == (data != "UpToDate")


class Polls:
    """A clock that lets the kernel's text change with each wait."""

    def __init__(self, write, texts):
        self._write, self._texts = write, list(texts)
        self.waits = 0

    def monotonic(self):
        return 0.2 * self.waits

    def wait(self, _event, _seconds):
        self.waits += 1
        if self._texts:
            self._write(self._texts.pop(0))


def whole(marked_kib, connection="Connected", peer="UpToDate"):
    return (
        f"{HEAD} 0: cs:{connection} ro:Primary/Secondary ds:UpToDate/{peer} C r-----\n"
        f"    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f"
        f" oos:{marked_kib}\n"
    )


COPYING = whole(65536, "SyncSource", "Inconsistent")


@pytest.mark.parametrize(
    ("before", "after", "later", "waits"),
    [
        # The other node enlarges its device a moment later, or has copied at once.
        (whole(0), whole(65536), [whole(65536), COPYING], 2),
        (whole(0), whole(65536), [whole(0)], 1),
        (whole(0), COPYING, [], 0),
        # Blocks that a verification has marked are not copied.
        (whole(8), whole(8), [], 0),
        (
            whole(0, "StandAlone", "DUnknown"),
            whole(64, "StandAlone", "DUnknown"),
            [],
            0,
        ),
        # The call ends although nothing happens.
        (whole(0), whole(65536), [], 50),
    ],
)
def test_a_growth_ends_when_the_new_part_is_being_copied(
    kernel, before, after, later, waits
):
    def drbdsetup(argv):
        if argv[1] == "resize":
            kernel(after)
        return FakeRunner.DONE

    kernel(before)
    grown = device(FakeRunner(drbdsetup=drbdsetup))
    grown.drbd.clock = Polls(kernel, later)
    grown.grow(64, dryrun=False, backingstore=False)
    assert grown.drbd.clock.waits == waits


#: As ``drbdsetup status --json`` of drbd-utils 9 prints it, with all its members.
STATUS9 = """[
{
  "name": "resource0",
  "node-id": 0,
  "role": "Primary",
  "suspended": false,
  "write-ordering": "flush",
  "devices": [
    {
      "volume": 0,
      "minor": 0,
      "disk-state": "UpToDate",
      "client": false,
      "quorum": true,
      "size": 65536,
      "read": 672,
      "written": 548525,
      "al-writes": 4,
      "bm-writes": 0,
      "upper-pending": 0,
      "lower-pending": 0
    } ],
  "connections": [
    {
      "peer-node-id": 1,
      "name": "node1",
      "connection-state": "Connected",
      "congested": false,
      "peer-role": "Secondary",
      "ap-in-flight": 18446744073709551608,
      "rs-in-flight": 0,
      "peer_devices": [
        {
          "volume": 0,
          "replication-state": "Established",
          "peer-disk-state": "UpToDate",
          "peer-client": false,
          "resync-suspended": "no",
          "received": 0,
          "sent": 548525,
          "out-of-sync": 0,
          "pending": 0,
          "unacked": 0,
          "has-sync-details": false,
          "has-online-verify-details": false,
          "percent-in-sync": 100.00
        } ]
    } ]
}
]
"""
SYNC9 = (
    '"out-of-sync": 819200, "percent-in-sync": 18.48,'
    ' "estimated-seconds-to-finish": 213, "zero": 0'
)


@pytest.mark.parametrize(
    ("link", "replication", "connection"),
    [
        ("Connected", "Established", "Connected"),
        ("Connected", "SyncTarget", "SyncTarget"),
        ("Connected", "PausedSyncS", "PausedSyncS"),
        ("Connected", "Off", "WFReportParams"),
        ("Connecting", "Off", "WFConnection"),
        ("StandAlone", "Off", "StandAlone"),
        ("Unconnected", "Off", "Unconnected"),
    ],
)
def test_states_of_drbd_9_become_those_of_8(link, replication, connection):
    text = STATUS9.replace('state": "Connected', f'state": "{link}')
    text = text.replace("Established", replication).replace('"out-of-sync": 0', SYNC9)
    mirror = drbd_state.parse_status_9(text)[0]
    assert (mirror.connection, mirror.role, mirror.disk) == (
        connection, "Primary", "UpToDate"
    )  # fmt: skip
    assert mirror.out_of_sync_kib == 819200
    is_copied = "Sync" in connection
    assert (mirror.left_s, mirror.is_syncing) == (
        213 if is_copied else None, is_copied
    )  # fmt: skip


@pytest.mark.parametrize(
    ("disk", "connection"), [("Diskless", "Unconfigured"), ("UpToDate", "StandAlone")]
)
def test_a_device_of_drbd_9_without_connections_is_alone(disk, connection):
    text = (
        '[{"name":"resource7","node-id":0,"role":"Secondary","devices":'
        f'[{{"volume":0,"minor":7,"disk-state":"{disk}"}}],"connections":[]}}]'
    )
    assert drbd_state.parse_status_9(text)[7].connection == connection
    assert drbd_state.parse_status_9("") == {}


@pytest.mark.parametrize("text", ["no json", "{}", '[{"name":"r","devices":5}]'])
def test_a_status_that_cannot_be_read_is_an_error(text):
    with pytest.raises(errors.StorageError, match="drbdsetup status: its output"):
        drbd_state.parse_status_9(text)


SHOW9 = """resource "resource0" {
    options {
        auto-promote    	no;
        quorum          	off;
    }
    _this_host {
        node-id			0;
        volume 0 {
            device			minor 0;
            disk			"/dev/xenvg/d";
            meta-disk			"/dev/xenvg/m";
            disk {
                on-io-error     	detach;
            }
        }
    }
    connection {
        _peer_node_id 1;
        path {
            _this_host ipv4 10.77.0.2:11000;
            _remote_host ipv4 10.77.0.1:11000;
        }
        net {
            allow-two-primaries	yes;
            cram-hmac-alg   	"md5";
            shared-secret   	"abcdef0123456789";
            _name           	"node1";
        }
        volume 0 {
            disk {
                resync-rate     	2048k; # bytes/second
            }
        }
    }
}

"""


def test_settings_are_read_from_what_drbdsetup_9_shows():
    assert drbd_state.parse_show_9(SHOW9) == {
        "resource0": drbd_state.Resource(
            "resource0", (0,), "/dev/xenvg/d", "/dev/xenvg/m", "ipv4:10.77.0.2:11000",
            "ipv4:10.77.0.1:11000", two_primaries=True, peer_id=1,
        )
    }  # fmt: skip
