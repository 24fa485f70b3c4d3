"""ganeti-maintd on a real cluster: an emptied node, a live repair, forged reports."""

import base64
import contextlib
import http.server
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from fakes.patience import PATIENCE_S, until
from ganeti.node.collectors.helper import DIAGNOSE_COMMANDS

ADD = ("gnt-instance", "add", "--no-install", "-t", "sharedfile", "-s", "8m")
ADD += ("-o", "tiny+default", "--no-ip-check", "--no-name-check", "--no-start")
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "doc/examples/prometheus"
FAULT = {"status": "evacuate", "details": {"part": "psu2"}}


@pytest.fixture(scope="module")
def cluster(cluster_of):
    cluster = cluster_of(3, "fake", "--monitoring")
    cluster.check(
        *("gnt-cluster", "modify", "--diagnose-data-collector-filename=check"),
        "--data-collector-interval=diagnose=0.5",
    )
    return cluster


def incidents(cluster):
    url = f"http://{cluster.node('node1').address}:1816/1/status"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def remote(cluster, path, *, body=None, user="reader"):
    """Return the answer of the remote API to a user; with a body it is a change."""
    users = cluster.file("/var/lib/ganeti/rapi/users")
    users.write_text("reader example read\nwriter example write\n")
    users.chmod(0o640)
    host = cluster.node("node1").address
    token = base64.b64encode(f"{user}:example".encode()).decode()
    request = urllib.request.Request(
        f"https://{host}:5080{path}",
        data=None if body is None else json.dumps(body).encode(),
        method="GET" if body is None else "PUT",
        headers={
            "Authorization": f"Basic {token}",
            "Content-Type": "application/json",
        },
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    answers = []

    def is_answered():
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                answers.append(json.loads(answer.read()))
        except urllib.error.HTTPError as err:
            # Until the daemon has read the new user.
            if err.code != 401:
                raise
        return bool(answers)

    until("the user is read", is_answered)
    return answers[0]


def by_remote_api(cluster):
    """Return the incidents as a user reads them who may read and no more."""
    return remote(cluster, "/2/maintenance/incidents")


def states(cluster):
    return [item["repair-status"] for item in incidents(cluster)]


def allow(cluster, name, kind, command, text):
    """Put a command into a directory of a node."""
    directory = cluster.file(f"/etc/ganeti/{kind}", name)
    directory.mkdir(mode=0o755, exist_ok=True)
    # At once: the agent may be about to run it.
    new = directory / f"{command}.new"
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(0o755)
    new.rename(directory / command)


def report(cluster, name, data):
    text = f"cat <<'END'\n{json.dumps(data)}\nEND"
    allow(cluster, name, DIAGNOSE_COMMANDS, "check", text)


def node_fields(cluster, name):
    line = cluster.check(
        *("gnt-node", "list", "--no-headers", "--separator=|"),
        *("-o", "role,pinst_cnt,tags", name),
    )
    return line.strip().split("|")


def log_of(cluster):
    return cluster.file("/var/log/ganeti/maintenance-daemon.log").read_text()


def journal(cluster, *words, node="node1"):
    line = ("gnt-cluster", "journal", "--json", *words)
    return json.loads(cluster.check(*line, node=node))


def check_journal(cluster, incident, shown):
    """Check that the journal has each job of an incident, and its end."""
    items = [
        item
        for entry in journal(cluster, f"--id={incident['id']}")
        for item in entry["items"]
        if incident["id"] in item["ids"]
    ]
    assert [job for item in items for job in item["jobs"]] == incident["jobs"]
    moved = [item["name"] for item in items if item["kind"] == "instance"]
    assert sorted(moved) == ["web1.vc.test", "web2.vc.test"]
    # Job and round name each other.
    number = re.search(r"round ([0-9a-f-]{36})", shown).group(1)
    (entry,) = journal(cluster, f"--id={number}")
    assert entry in journal(cluster, f"--job={incident['jobs'][1]}")
    assert incident["jobs"][1] in [j for item in entry["items"] for j in item["jobs"]]
    job = incident["jobs"][0]
    ends = [
        end for entry in journal(cluster, f"--job={job}") for end in entry["results"]
    ]
    assert {"job": job, "status": "success", "error": ""} in ends


@pytest.mark.sampled
def test_a_node_is_emptied_tagged_and_acknowledged(cluster):
    for name in ("web1.vc.test", "web2.vc.test"):
        cluster.check(*ADD, "-n", "node2", name)
    report(cluster, "node2", FAULT)
    until("the node is ready", lambda: states(cluster) == ["completed"])
    (incident,) = incidents(cluster)
    assert incident["original"] == FAULT
    until("its tag", lambda: incident["tag"] in node_fields(cluster, "node2")[2])
    assert node_fields(cluster, "node2") == ["O", "0", incident["tag"]]
    # Jobs name the daemon and the incident.
    shown = cluster.check("gnt-job", "info", str(incident["jobs"][1]))
    assert "gnt:daemon:maintd" in shown
    assert f"event {incident['id']}" in shown
    check_journal(cluster, incident, shown)
    # A second start of the daemon begins nothing again.
    cluster.check("daemon-util", "stop", "ganeti-maintd")
    cluster.check("daemon-util", "start", "ganeti-maintd")
    report(cluster, "node2", {"status": "Ok"})
    cluster.check("gnt-node", "modify", "--offline=no", "--force", "node2")
    until("the daemon knows it", lambda: states(cluster) == ["completed"])
    cluster.check("gnt-node", "remove-tags", "node2", incident["tag"])
    until("it is acknowledged", lambda: states(cluster) == [])
    assert node_fields(cluster, "node2")[0] != "O"


def test_a_live_repair_gets_the_report(cluster):
    data = {"status": "live-repair", "command": "fix", "details": [1, "two"]}
    kept = cluster.file("/tmp", "node3")
    kept.mkdir(parents=True, exist_ok=True)
    allow(cluster, "node3", "node-repair-commands", "fix", f"cat > {kept}/input")
    report(cluster, "node3", data)
    until("it is repaired", lambda: states(cluster) == ["completed"])
    assert json.loads((kept / "input").read_text()) == data
    (incident,) = incidents(cluster)
    until("its tag", lambda: incident["tag"] in node_fields(cluster, "node3")[2])
    assert node_fields(cluster, "node3")[0] != "O"
    report(cluster, "node3", {"status": "Ok"})
    cluster.check("gnt-node", "remove-tags", "node3", incident["tag"])
    until("it is acknowledged", lambda: states(cluster) == [])


def test_a_freeze_holds_a_repair_and_is_shown_until_it_is_thawed(cluster):
    allow(cluster, "node3", "node-repair-commands", "again", "true")
    cluster.check("gnt-cluster", "freeze", "the room moves")
    report(cluster, "node3", {"status": "live-repair", "command": "again"})

    def held():
        entries = journal(cluster, "--node=node3")
        return any(i["limit"] == "frozen" for e in entries for i in e["items"])

    until("the refusal", held)
    assert states(cluster) == ["noted"]
    assert "the room moves" in incidents(cluster)[0]["note"]
    assert "automation (the room moves)" in cluster.check("gnt-cluster", "info")
    cluster.check("gnt-cluster", "thaw")
    assert "the room moves" not in cluster.check("gnt-cluster", "info")
    until("it is repaired", lambda: states(cluster) == ["completed"])
    (incident,) = incidents(cluster)
    until("its tag", lambda: incident["tag"] in node_fields(cluster, "node3")[2])
    report(cluster, "node3", {"status": "Ok"})
    cluster.check("gnt-node", "remove-tags", "node3", incident["tag"])
    until("it is acknowledged", lambda: states(cluster) == [])


def test_a_canceled_incident_and_one_that_fails(cluster):
    report(cluster, "node3", {"status": "live-repair", "command": "absent"})
    # The node delays its refusal, and the repair fails.
    until("it failed", lambda: states(cluster) == ["failed"])
    (incident,) = incidents(cluster)
    listed = json.loads(cluster.check("gnt-cluster", "list-incidents", "--json"))
    name = listed[0].pop("node_name")
    assert name.partition(".")[0] == "node3"
    assert listed == [incident]
    assert by_remote_api(cluster) == [{**incident, "node_name": name}]
    refused = cluster.run("gnt-cluster", "maintd-cancel", incident["id"])
    assert refused.failed
    assert "cannot be canceled" in refused.output
    until("its tag", lambda: incident["tag"] in node_fields(cluster, "node3")[2])
    assert incident["tag"].startswith("maintd:repairfailed:")
    report(cluster, "node1", FAULT)
    report(cluster, "node3", {"status": "Ok"})
    cluster.check("gnt-node", "remove-tags", "node3", incident["tag"])
    until("the master waits", lambda: states(cluster) == ["noted"])
    (incident,) = incidents(cluster)
    assert "master-failover" in incident["note"]
    cluster.check("gnt-cluster", "maintd-cancel", incident["id"])
    until("it is canceled", lambda: states(cluster) == ["canceled"])
    cluster.check("gnt-cluster", "remove-repair", incident["id"])
    report(cluster, "node1", {"status": "Ok"})
    until("it is over", lambda: states(cluster) == [])


DUTIES = {
    "maint_round_delay": 1,
    "maint_balance": True,
    "maint_balance_threshold": 0.001,
    "maint_balance_load": False,
    "maint_balance_disk_moves": True,
    "maint_repairs": True,
}
OFF = (
    *("--maintenance-interval=300", "--auto-balance-cluster=no"),
    *("--auto-balance-threshold=0.1", "--auto-balance-load=no"),
    *("--auto-balance-disk-moves=no", "--maintenance-repairs=no"),
)


def test_instances_are_spread_once_a_freeze_ends(cluster):
    names = [f"bal{number}.vc.test" for number in range(3)]
    for name in names:
        cluster.check(*ADD, "-n", "node1", name)
    cluster.check("gnt-instance", "startup", "--force-multiple", *names)
    # Balancing leaves out nodes whose diagnosis cannot be used.
    for node in ("node1", "node2", "node3"):
        report(cluster, node, {"status": "Ok"})
    cluster.check("gnt-cluster", "freeze", "the room moves")
    job = remote(cluster, "/2/modify", body=DUTIES, user="writer")
    cluster.check("gnt-job", "wait", str(job))
    info = remote(cluster, "/2/info")
    assert {name: info[name] for name in DUTIES} == DUTIES

    def items(decision):
        return [
            item
            for entry in journal(cluster, "--automaton=maintd")
            for item in entry["items"]
            if item["decision"] == decision and item["action"].startswith("balance")
        ]

    until("the refusal", lambda: [i for i in items("refused") if i["limit"]])
    (refused,) = items("refused")
    assert (refused["kind"], refused["limit"]) == ("cluster", "frozen")
    assert "the room moves" in refused["reason"]
    cluster.check("gnt-cluster", "thaw")

    def nodes():
        fields = ("gnt-instance", "list", "--no-headers", "-o", "pnode,status")
        return cluster.check(*fields, *names).split()

    until("they are spread", lambda: len(set(nodes()[::2])) == len(names))
    assert set(nodes()[1::2]) == {"running"}
    cluster.check("gnt-cluster", "modify", *OFF)
    info = json.loads(cluster.check("gnt-cluster", "info", "--json"))
    assert not any(info[name] for name in DUTIES if isinstance(DUTIES[name], bool))
    moves = items("chosen")
    assert {item["name"] for item in moves} <= {*names}
    shown = cluster.check("gnt-job", "info", str(moves[0]["jobs"][0]))
    assert "gnt:daemon:maintd" in shown
    assert f"Balancing group default: moving {moves[0]['name']}" in shown


@contextlib.contextmanager
def agent(address, answer):
    """Answer every request at the port of an agent with the same bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer((address, 1815), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_forged_and_recorded_reports_do_nothing(cluster):
    address = cluster.node("node3").address
    report(cluster, "node3", {"status": "Ok"})
    url = f"http://{address}:1815/1/report/node/diagnose?challenge=c1"

    def is_read():
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as stream:
            answer = stream.read()
        return answer if b'\\"Ok\\"' in answer else None

    recorded = until("the agent has run the command", is_read)
    forged = recorded.replace(b'\\"Ok\\"', b'\\"evacuate\\"')
    cluster.check("daemon-util", "stop", "ganeti-mond", node="node3")
    try:
        for answer, why in ((forged, "signature is wrong"), (recorded, "was recorded")):
            with agent(address, answer):
                until(why, lambda why=why: why in log_of(cluster))
        assert states(cluster) == []
        assert node_fields(cluster, "node3")[0] == "C"
    finally:
        cluster.check("daemon-util", "start", "ganeti-mond", node="node3")


def test_only_the_master_runs_it(cluster):
    result = cluster.run("ganeti-maintd", "-f", node="node2")
    assert result.code == 11


def test_the_metrics_of_the_master_are_served(cluster):
    url = f"http://{cluster.node('node1').address}:1816/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    assert "ganeti_master_up 1.0" in text
    assert 'ganeti_nodes{flag="total"} 3.0' in text
    calls = re.findall(
        r"^ganeti_node_call_seconds_count\{.*\} (\d+)", text, re.MULTILINE
    )
    assert sum(map(int, calls)) > 0


def test_prometheus_reads_all_with_the_example_files(cluster, tmp_path):
    """The example's targets are replaced; everything else is as it is shipped."""
    nodes = [f"{node.address}:1815" for node in cluster.layout.nodes]
    text = (EXAMPLES / "prometheus.yml").read_text()
    for old, new in (
        ('["node1.example.com:1815", "node2.example.com:1815"]', json.dumps(nodes)),
        ("cluster.example.com", cluster.node("node1").address),
        ("scrape_interval: 30s", "scrape_interval: 4s\n  evaluation_interval: 1s"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(EXAMPLES / "ganeti.rules.yml", tmp_path)
    place = f"{cluster.layout.network}.0.250:9090"
    words = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    words += [f"--web.listen-address={place}", "--log.level=error"]

    def ask(path):
        url = f"http://{place}/api/v1/{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.loads(answer.read())["data"]

    def values(query):
        try:
            rows = ask(f"query?query={query}")["result"]
        except OSError:
            # It does not listen yet.
            return {}
        return {
            (row["metric"]["job"], row["metric"]["instance"]): row["value"][1]
            for row in rows
        }

    def healths():
        groups = ask("rules")["groups"]
        return [rule["health"] for group in groups for rule in group["rules"]]

    master = ("ganeti-master", f"{cluster.node('node1').address}:1816")
    wanted = {master: "1", **{("ganeti-node", node): "1" for node in nodes}}
    with subprocess.Popen(words, cwd=tmp_path) as server:
        try:
            until("all are read", lambda: values("up") == wanted)
            until("rules are evaluated", lambda: set(healths()) == {"ok"})
            until("capacity", lambda: list(values("ganeti_capacity_instances")))
            assert len(values("ganeti_node_cpus")) == len(nodes)
            assert values("ganeti_master_up") == {master: "1"}
        finally:
            server.kill()


def test_the_journal_is_there_after_a_failover_of_the_master(cluster):
    def rounds(node):
        # The count of an entry that only repeats itself goes on.
        names = ("id", "round", "automaton", "ctime", "items", "results")
        return [[e[name] for name in names] for e in journal(cluster, node=node)]

    until("a round", lambda: rounds("node1"))
    before = rounds("node1")
    cluster.check("gnt-cluster", "master-failover", node="node2")
    assert rounds("node2")[: len(before)] == before


def test_a_dead_node_is_fenced_when_it_has_a_helper(cluster):
    """The guest of a node that dies runs elsewhere once the node can be fenced."""

    def guest():
        fields = ("gnt-instance", "list", "--no-headers", "-o", "pnode,status")
        return cluster.check(*fields, "dead1.vc.test", node="node2").split()

    def deaths():
        info = cluster.check("gnt-cluster", "info", "--json", node="node2")
        return {d["name"]: d["limit"] for d in json.loads(info)["node_deaths"]}

    cluster.check(*ADD, "-n", "node3", "dead1.vc.test", node="node2")
    cluster.check("gnt-instance", "startup", "dead1.vc.test", node="node2")
    parameter = "--node-parameters=oob_program"
    for words in (
        ("gnt-node", "modify", f"{parameter}=!", "node3"),
        ("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:failover"),
        ("gnt-cluster", "modify", "--node-death=yes"),
    ):
        cluster.check(*words, node="node2")
    cluster.command("kill", "node3")
    name = "node3.vc.test"
    until("it is refused", lambda: deaths() == {name: "no-helper"})
    verified = cluster.run("gnt-cluster", "verify", node="node2").output
    assert f"NOTICE: node {name} does not answer and is suspected" in verified
    assert guest() == [name, "ERROR_nodedown"]
    cluster.check("gnt-node", "modify", f"{parameter}=default", "node3", node="node2")
    until("the guest runs elsewhere", lambda: guest()[1] == "running")
    assert guest()[0] != name
    assert not cluster.control.is_powered(cluster.node("node3"))
    until("it is over", lambda: deaths() == {})
    chosen = [
        item["action"]
        for entry in journal(cluster, "--automaton=node-death", node="node2")
        for item in entry["items"]
        if item["decision"] == "chosen"
    ]
    assert chosen == ["fence", "mark offline", "start its instances elsewhere"]
