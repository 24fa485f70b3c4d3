"""How far a step has come: when it is reported, and how it reads."""

import types

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base.text import units
from ganeti.model import objects
from ganeti.operations import progress
from ganeti.operations.instance.disks import mirror_states


class Log:
    def __init__(self):
        self.entries = []

    def entry(self, kind, payload):
        self.entries.append((kind, payload))


def context():
    return types.SimpleNamespace(clock=FakeClock(), log=Log())


def test_short_steps_report_nothing():
    ctx = context()
    shown = progress.Progress(ctx, "wiping disk/0", 100)
    ctx.clock.now += 1.9
    shown.at(99)
    assert ctx.log.entries == []


def test_rate_and_rest_follow_from_what_was_done():
    ctx = context()
    shown = progress.Progress(ctx, "wiping disk/0", 1000)
    ctx.clock.now += 4
    shown.at(100)
    assert ctx.log.entries == [
        ("progress", "wiping disk/0: 100 of 1000 MiB, 10 %, 25.0 MiB/s, 36 s left")
    ]


def test_an_hour_is_reported_a_few_hundred_times_at_most():
    ctx = context()
    shown = progress.Progress(ctx, "copying", 3600)
    for second in range(3600):
        ctx.clock.now += 1
        shown.at(second)
    assert 300 < len(ctx.log.entries) < 450


def test_times_are_readable():
    assert units.format_duration(9.7) == "10 s"
    assert units.format_duration(64) == "1:04 min"
    assert units.format_duration(3723) == "1:02:03"
    assert progress.line("x", 0, 0, None, None) == "x: 0 of 0 MiB"


def test_a_conversion_reports_its_progress():
    disk = objects.Disk(
        uuid="d1",
        dev_type="file",
        logical_id=("loop", "/srv/ganeti/file-storage/inst1/disk0"),
        size=1000,
        serial_no=1,
        iv_name="disk/0",
        nodes=(clusters.node_uuid(1),),
    )
    down = clusters.instance(1, disks=["d1"], admin_state="down", disks_active=False)
    eng = Engine(clusters.snapshot(extra=[disk, down]), dict(SUCCESSFUL_ACTS))
    pieces = []

    def copy(_node, args):
        pieces.append(args[2:])
        eng.clock.now += 3

    eng.rpc.script |= {"blockdev_convert_part": copy, "instance_info": {}}
    eng.run(
        {
            "OP_ID": "OP_INSTANCE_SET_PARAMS",
            "ignore_ipolicy": True,
            "instance_name": "inst1.example.com",
            "disk_template": "sharedfile",
        }
    )
    assert pieces == [(0, 256), (256, 256), (512, 256), (768, 232)]
    reported = [text for kind, text in eng.callbacks.entries if kind == "progress"]
    assert reported[0].startswith("copying disk/0: 256 of 1000 MiB, 26 %, 85.3 MiB/s")


# Times that are left, as an operation prints them.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m 0s"),
        (125, "2m 5s"),
        (3600, "1h 0m 0s"),
        (3660, "1h 1m 0s"),
        (90_061, "25h 1m 1s"),
    ],
)
def test_a_time_is_printed_in_its_units(seconds, text):
    assert mirror_states._span(seconds) == text
