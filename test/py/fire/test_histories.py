"""Clusters under seeded faults keep the commit rule; see `fakes.histories`.

Each commit plays others. A failure names its seed, the faults and the command that plays
them again; ``HISTORY_SEED`` sets the first seed, ``HISTORIES`` the number.
``test/bench/run histories 10000`` plays more.
"""

import contextlib
import gc
import os
import pathlib

import pytest

from fakes import seeds
from fakes.histories import machines, play, schedule
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster.nodes import NodeControl

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    # Machines outlive whoever starts them, usually a program that ends at once.
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]
COUNT = int(os.environ.get("HISTORIES", "30"))
#: No history begins after this; the last ones take another minute.
MINUTES = float(os.environ.get("FIRE_MINUTES", "2"))


@pytest.mark.timeout(1200)
def test_histories_keep_the_commit_rule(record_property):
    seed = seeds.given("HISTORY_SEED")
    figures, _texts = play.run(COUNT, seed, minutes=MINUTES, show=print)
    record_property("figures", f"seed {seed}: {figures}")
    # A slow machine plays fewer.
    assert figures.histories >= min(COUNT, 2)
    assert figures.jobs > figures.histories
    assert figures.answers > figures.histories
    gc.collect()


@pytest.fixture(scope="module")
def pair():
    with contextlib.closing(machines.Machines(2, 2)) as made:
        yield made
    gc.collect()


def on(pair, node, *words):
    control = NodeControl(pair.layout, SystemRunner())
    # As daemons are started: with the library.
    library = f"LD_PRELOAD={pair.directory}/fault_shim.so"
    return control.run(pair.nodes[node], ["env", library, *words])


def begun(pair, kind, **changes):
    return pair.play(schedule.Fault(0.0, kind, (1,), **changes))


def test_a_bent_clock_is_seen_on_its_node_alone(pair):
    def second(node):
        return int(on(pair, node, "date", "+%s").stdout)

    begun(pair, "skew", seconds=5000.0)
    assert 4900 < second(1) - second(0) < 5100
    pair.heal()
    assert abs(second(1) - second(0)) < 100


PROBE = """
import os, sys
fd = os.open("/var/lib/ganeti/probe", os.O_CREAT | os.O_WRONLY)
try:
    os.write(fd, b"x")
except OSError as err:
    sys.exit(err.errno)
"""
SYNC = """
import os, time
fd = os.open("/var/lib/ganeti/probe", os.O_CREAT | os.O_WRONLY)
began = time.monotonic()
os.fsync(fd)
print(time.monotonic() - began)
"""


def test_a_full_disk_takes_nothing(pair):
    end = begun(pair, "full")
    assert on(pair, 1, "python3", "-c", PROBE).code == 28
    assert on(pair, 0, "python3", "-c", PROBE).code == 0
    end()
    assert on(pair, 1, "python3", "-c", PROBE).code == 0


def test_a_slow_disk_takes_its_time(pair):
    end = begun(pair, "slow")
    assert float(on(pair, 1, "python3", "-c", SYNC).stdout) >= 0.3
    end()


def sees(pair, node, other):
    address = pair.nodes[other].address
    command = f"timeout 1 bash -c 'echo > /dev/tcp/{address}/22'"
    return not on(pair, node, "sh", "-c", command).failed


def test_a_cut_is_felt_and_ends(pair):
    end = begun(pair, "cut", others=(0,))
    assert not sees(pair, 1, 0)
    end()
    assert sees(pair, 1, 0)


def test_a_paused_daemon_stands_still(pair):
    end = begun(pair, "pause", daemon="noded")
    [process] = pair._processes(pair.nodes[1], machines.NODED)
    # A thread on another processor stops at its next interrupt.
    while state(process.pid) != "T":
        os.sched_yield()
    end()
    assert state(process.pid) != "T"


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
