"""Bad input of automatons, typed on a real cluster: an entry, a line, and no action."""

import json
import platform

import pytest

from fakes.patience import until
from ganeti.automation.maintenance.diagnoses import NOT_REPEATED
from ganeti.node.collectors.helper import DIAGNOSE_COMMANDS

pytestmark = [pytest.mark.daemon, pytest.mark.long]
ADD = ("gnt-instance", "add", "--no-install", "-t", "sharedfile", "-s", "8m")
ADD += ("-o", "tiny+default", "--no-start", "-H", "fake")
#: Shifts the time of programs; a name space can do so with monotonic clocks alone.
FAKETIME = f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1"
WRONG_CLOCK = "it was signed over 300 seconds away from our time"
EVACUATE = '{"status": "evacuate"}'
#: Name of a case -> the diagnose command of node2, the reason in journal and logs.
COMMANDS = {
    "megabytes": ("exec yes", "printed too much (wanted at most"),
    "no JSON": ("echo evacuate", "is not JSON"),
    "a list": (f"echo '[{EVACUATE}]'", "is not a JSON object"),
    "no status": ("""echo '{"status": "burn"}'""", "no known status"),
    "fails": (f"echo '{EVACUATE}'; exit 3", "exited with code 3"),
    "changes": (
        """echo "{\\"status\\": \\"evacuate\\", \\"n\\": \\"$(date +%N)\\"}\"""",
        NOT_REPEATED,
    ),
    "hangs": ("exec tail -f /dev/null", "did not end in time and was killed"),
}


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3, "fake", "--monitoring")
    made.check(
        *("gnt-cluster", "modify", "--diagnose-data-collector-filename=check"),
        "--data-collector-interval=diagnose=0.5",
    )
    made.check("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:failover")
    made.check(*ADD, "-n", "node2", "web1.vc.test")
    made.check("gnt-instance", "startup", "web1.vc.test")
    return made


@pytest.fixture
def untouched(cluster):
    """Nothing is done in a test: no job, no tag, no role."""
    before = state(cluster)
    yield
    assert state(cluster) == before


def state(cluster):
    return (
        cluster.check("gnt-job", "list", "--no-headers", "-o", "id,summary"),
        cluster.check("gnt-node", "list", "--no-headers", "-o", "name,role,tags"),
        cluster.check(
            "gnt-instance", "list", "--no-headers", "-o", "name,pnode,status"
        ),
    )


def put(cluster, name, text, mode=0o755):
    directory = cluster.file(f"/etc/ganeti/{DIAGNOSE_COMMANDS}", name)
    directory.mkdir(mode=0o755, exist_ok=True)
    new = directory / "check.new"
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(mode)
    new.rename(directory / "check")


def reasons(cluster, node="node2"):
    words = ("gnt-cluster", "journal", "--json", "--automaton", "maintd")
    entries = json.loads(cluster.check(*words, "--node", node))
    return {item["reason"] for entry in entries for item in entry["items"]}


def log(cluster):
    return cluster.file("/var/log/ganeti/maintenance-daemon.log").read_text()


def agent_log(cluster, node="node2"):
    return cluster.file("/var/log/ganeti/monitoring-daemon.log", node).read_text()


def check_reason(cluster, why, node="node2"):
    until("the journal", lambda: any(why in each for each in reasons(cluster, node)))
    until("the log", lambda: why in log(cluster))


@pytest.mark.usefixtures("untouched")
def test_a_command_that_is_not_on_the_list(cluster):
    why = "not allowed on this node"
    check_reason(cluster, why)
    until("the agent has it, too", lambda: why in agent_log(cluster))


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("case", COMMANDS)
def test_an_odd_command(cluster, case):
    text, why = COMMANDS[case]
    put(cluster, "node2", text)
    check_reason(cluster, why)
    if case not in ("no status", "changes"):
        until("the agent has it, too", lambda: why in agent_log(cluster))


@pytest.mark.usefixtures("untouched")
def test_a_command_that_others_can_write(cluster):
    put(cluster, "node2", f"echo '{EVACUATE}'", mode=0o777)
    check_reason(cluster, "mode allows more")


@pytest.fixture
def clock(cluster, request, tmp_path):
    """A file with the error of a daemon's clock, which is none at its start."""
    name, daemon = request.param
    file = tmp_path / "error"
    file.write_text("+0")
    skewed = (f"LD_PRELOAD={FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={file}")
    skewed += ("FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
    start = ("daemon-util", "start", daemon)
    cluster.command("kill", name, daemon)
    cluster.check("env", *skewed, *start, node=name)
    yield file
    cluster.command("kill", name, daemon)
    cluster.check(*start, node=name)


@pytest.mark.parametrize(
    ("clock", "error"),
    [(("node2", "ganeti-mond"), "+1h"), (("node1", "ganeti-maintd"), "-1h")],
    indirect=["clock"],
    ids=["of a node", "of the master"],
)
@pytest.mark.usefixtures("untouched")
def test_a_clock_that_is_wrong_by_an_hour(cluster, clock, error):
    """A fault that is real is reported, and not believed."""
    known = log(cluster).count(WRONG_CLOCK)
    clock.write_text(error)
    put(cluster, "node2", f"echo '{EVACUATE}'")
    until("the log", lambda: log(cluster).count(WRONG_CLOCK) > known)
    check_reason(cluster, WRONG_CLOCK)
    # The next test must not begin with a fault.
    put(cluster, "node2", """echo '{"status": "Ok"}'""")


def test_broken_and_contradictory_tags(cluster):
    """The tags themselves are changes, so only what follows them is looked at."""
    put(cluster, "node2", """echo '{"status": "Ok"}'""")
    tags = (
        "ganeti:watcher:autorepair:burn",
        "ganeti:watcher:autorepair:pending:x",
        "ganeti:watcher:autorepair:suspend:yesterday",
        "ganeti:watcher:autorepair:result:r1:migrate:success",
    )
    cluster.check("gnt-instance", "add-tags", "web1.vc.test", *tags)
    for kind in ("migrate", "reinstall"):
        name = f"ganeti:watcher:autorepair:{kind}"
        cluster.check("gnt-cluster", "add-tags", name)
    jobs = state(cluster)[0]
    run = cluster.check("ganeti-watcher", "--debug", "--no-wait-children")
    assert "Traceback" not in run
    shown = cluster.file("/var/log/ganeti/watcher.log").read_text()
    words = ("gnt-cluster", "journal", "--json", "--instance", "web1.vc.test")
    (entry,) = json.loads(cluster.check(*words))
    (item,) = entry["items"]
    why = "the tag ganeti:watcher:autorepair:pending:x cannot be read; remove the"
    assert item["decision"] == "refused"
    assert why in item["reason"]
    assert f"web1.vc.test: no repair: {why}" in shown
    assert state(cluster)[0] == jobs
    for kind in ("migrate", "reinstall"):
        name = f"ganeti:watcher:autorepair:{kind}"
        cluster.check("gnt-cluster", "remove-tags", name)
    cluster.check("gnt-instance", "remove-tags", "web1.vc.test", *tags)
