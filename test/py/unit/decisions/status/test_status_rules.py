"""The verdict on the state of the cluster: each fact alone, and all together."""

import msgspec
import pytest

from ganeti.decisions.status import rules
from ganeti.decisions.status.document import document, unreachable
from ganeti.decisions.status.facts import (
    CopyFact,
    DeathFact,
    Facts,
    Finding,
    GuestFact,
    IncidentFact,
    JobFact,
    NodeFact,
    Severity,
)

NOW = 1_700_000_000.0
DAY = 86400.0
NODES = (
    NodeFact(name="n1", release="3.1", memory_total=4096, memory_free=1024, cpus=4),
    NodeFact(name="n2", release="3.1", certificates={"client.pem": 300 * DAY}),
)
FINE = Facts(
    now=NOW,
    cluster="c1",
    master="n1",
    release="3.1",
    nodes=NODES,
    copies=(CopyFact(name="n2"),),
    instances={"running": 2, "ADMIN_down": 1},
    jobs={"running": 1},
    running=(JobFact(id=7, summary="X", time=NOW - 9),),
    certificates={"/d/server.pem": 400 * DAY, "/d/client.pem": 301 * DAY},
)
W, C = Severity.WARNING, Severity.CRITICAL


def node(**changes):
    return msgspec.structs.replace(NODES[1], **changes)


def guest(status, wanted="up", job=0):
    return (GuestFact(name="web1", node="n2", status=status, wanted=wanted, job=job),)


def death(**more):
    return (DeathFact(name="n2", text="does not answer and is fencing", **more),)


#: Changed facts; the one finding: severity, kind, object, words of the text, command.
CASES = {
    "stall": (
        {"stall": "2 of 3 candidates are silent", "exposure": "2 of 3"},
        (C, "cluster", "c1", "no change is accepted: 2 of 3 cand", "gnt-cluster info"),
    ),
    "exposure": (
        {"exposure": "changes are lost if"},
        (W, "cluster", "c1", "changes are lost if", "gnt-cluster info"),
    ),
    "candidates": (
        {"candidates_missing": 2},
        (W, "cluster", "c1", "2 master candidates too few", "--master-candidate=yes"),
    ),
    "copy": (
        {"copies": (CopyFact(name="n2", is_current=False, lag=4, trouble="full"),)},
        (W, "node", "n2", "its copy lacks 4 revisions: full", "gnt-cluster info"),
    ),
    "refused term": (
        {"copies": (CopyFact(name="n2", is_current=False, wants_restart=True),)},
        (W, "node", "n2", "its copy is old", "restart ganeti-masterd on n1"),
    ),
    "offline with instances": (
        {"nodes": (node(offline=True, wanted=("a", "b", "c", "d", "e")),)},
        (
            *(C, "node", "n2", "is offline, and should run a, b, c and 2 more"),
            "gnt-node failover n2",
        ),
    ),
    "silent": (
        {"nodes": (node(problem="no route", is_silent=True),)},
        (C, "node", "n2", "does not answer: no route", "journal --node n2"),
    ),
    "failing": (
        {"nodes": (node(problem="xl is broken"),)},
        (C, "node", "n2", "gives no good answer: xl is broken", "journal --node n2"),
    ),
    "refusing": (
        {"nodes": (node(problem="403", is_refusing=True),)},
        (C, "node", "n2", "does not accept the certificate", "gnt-node add --readd n2"),
    ),
    "powered off": (
        {"nodes": (node(powered=False),)},
        (W, "node", "n2", "recorded as powered off", "--node-powered=yes n2"),
    ),
    "dying": (
        {"deaths": death(), "nodes": (node(problem="x", is_silent=True),)},
        (C, "node", "n2", "does not answer and is fencing", "journal --node n2"),
    ),
    "dead and repaired": (
        {"deaths": death(is_handled=True)},
        (W, "node", "n2", "does not answer and is fencing", "journal --node n2"),
    ),
    "incident": (
        {"incidents": (IncidentFact(uuid="u", node="n2", text="reports a fault"),)},
        (W, "node", "n2", "reports a fault", "gnt-cluster list-incidents"),
    ),
    "down": (
        {"guests": guest("ERROR_down")},
        (C, "instance", "web1", "should run on n2", "gnt-instance startup web1"),
    ),
    "down with a job": (
        {"guests": guest("ERROR_down", job=12)},
        (W, "instance", "web1", "does not; job 12 works on it", "gnt-job watch 12"),
    ),
    "unfinished": (
        {"guests": guest("ERROR_down", "down")},
        (W, "instance", "web1", "installation did not finish", "gnt-instance info"),
    ),
    "up": (
        {"guests": guest("ERROR_up", "down")},
        (W, "instance", "web1", "should be down, and runs on n2", "shutdown web1"),
    ),
    "elsewhere": (
        {"guests": guest("ERROR_wrongnode")},
        (C, "instance", "web1", "runs on another node than n2", "gnt-cluster verify"),
    ),
    "drained": (
        {"is_drained": True},
        (W, "cluster", "c1", "queue is drained", "gnt-cluster queue undrain"),
    ),
    "frozen": (
        {"freeze": ("rack 2", NOW)},
        (W, "cluster", "c1", "automation is frozen: rack 2", "gnt-cluster thaw"),
    ),
    "paused": (
        {"watcher_pause": NOW + 600},
        (W, "cluster", "c1", "paused for 10 more min", "watcher continue"),
    ),
    "failed job": (
        {"failed": (JobFact(id=9, summary="OP", time=NOW - 130, error="no room"),)},
        (W, "job", "9", "OP failed 2 min ago: no room", "gnt-job info 9"),
    ),
    "other release": (
        {"nodes": (node(release="3.0"),)},
        (W, "node", "n2", "has release 3.0, the master 3.1", "upgrade --to 3.1"),
    ),
    "certificate": (
        {"certificates": {"/d/rapi.pem": 20.5 * DAY}},
        (W, "certificate", "/d/rapi.pem", "ends in 20 days", "--new-rapi-certificate"),
    ),
    "certificate soon": (
        {"certificates": {"/d/x.pem": 6.9 * DAY}},
        (C, "certificate", "/d/x.pem", "ends in 6 days", ""),
    ),
    "certificate ended": (
        {"nodes": (node(certificates={"client.pem": -5.0}),)},
        (C, "certificate", "n2: client.pem", "has ended", "--new-node-certificates"),
    ),
    "certificate unreadable": (
        {"certificates": {"/d/server.pem": "no certificate"}},
        (C, "certificate", "/d/server.pem", "no certificate", "--new-cluster-cert"),
    ),
    "no room": (
        {"shortages": (("n2", "not enough memory"),)},
        (W, "capacity", "n2", "not enough memory", "gnt-cluster balance"),
    ),
}


def test_a_healthy_cluster_has_no_findings():
    assert rules.judge(FINE) == []
    assert rules.severity_of([]) is Severity.OK


@pytest.mark.parametrize("name", CASES)
def test_one_fact_is_one_finding(name):
    changes, (severity, kind, subject, text, command) = CASES[name]
    (finding,) = rules.judge(msgspec.structs.replace(FINE, **changes))
    assert (finding.severity, finding.kind, finding.object) == (severity, kind, subject)
    assert text in finding.text
    assert command in finding.command
    assert bool(command) == bool(finding.command)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": (node(offline=True),)},
        {"nodes": (node(drained=True),)},
        {"guests": guest("ERROR_nodedown")},
        {"certificates": {"/d/rapi.pem": 30 * DAY}},
        # One renewal replaces those of all nodes.
        {
            "certificates": {"/d/client.pem": 365 * DAY},
            "nodes": (node(certificates={"client.pem": 365 * DAY - 60}),),
        },
    ],
)
def test_what_is_as_wanted_is_no_finding(changes):
    assert rules.judge(msgspec.structs.replace(FINE, **changes)) == []


def test_the_worst_stands_first_and_decides():
    facts = msgspec.structs.replace(
        FINE,
        freeze=("", 0.0),
        shortages=(("n1", "x"),),
        guests=guest("ERROR_down"),
        deaths=death(),
        failed=(
            JobFact(id=1, summary="A", time=NOW),
            JobFact(id=2, summary="B", time=NOW),
        ),
    )
    findings = rules.judge(facts)
    assert [(each.severity, each.kind, each.object) for each in findings] == [
        (C, "node", "n2"),
        (C, "instance", "web1"),
        (W, "cluster", "c1"),
        (W, "job", "2"),
        (W, "job", "1"),
        (W, "capacity", "n1"),
    ]
    answer = document(facts)
    assert (answer["severity"], answer["status"]) == ("critical", 2)
    assert msgspec.convert(answer["findings"], list[Finding]) == findings


def test_findings_of_a_kind_are_bounded():
    guests = tuple(
        GuestFact(name=f"i{n}", node="n1", status="ERROR_down", wanted="up")
        for n in range(rules.MOST + 7)
    )
    findings = rules.judge(msgspec.structs.replace(FINE, guests=guests))
    assert len(findings) == rules.MOST + 1
    assert findings[-1].text == "7 more like that"
    exact = msgspec.structs.replace(FINE, guests=guests[: rules.MOST])
    assert len(rules.judge(exact)) == rules.MOST


def test_the_document_counts():
    facts = msgspec.structs.replace(
        FINE,
        nodes=(
            *NODES,
            NodeFact(name="n3", offline=True),
            NodeFact(name="n4", problem="x", is_silent=True),
            NodeFact(name="n5", problem="x"),
            NodeFact(name="n6", drained=True, release="3.1"),
        ),
        failures=3,
        freeze=("why", 5.0),
        memory_promised=2048,
        vcpus_promised=3,
    )
    answer = document(facts)
    assert answer["nodes"] == {
        "total": 6,
        "online": 2,
        "drained": 1,
        "offline": 1,
        "silent": 1,
        "failing": 1,
    }
    assert answer["instances"] == {"total": 3, "running": 2, "ADMIN_down": 1}
    assert answer["jobs"] == {"running": 1, "waiting": 0, "queued": 0, "failed": 3}
    assert answer["running_jobs"] == [{"id": 7, "summary": "X", "since": NOW - 9}]
    assert answer["automation"]["freeze"] == {"reason": "why", "since": 5.0}
    assert answer["capacity"] == {
        "memory_total": 4096,
        "memory_free": 1024,
        "memory_promised": 2048,
        "cpus": 4,
        "vcpus_promised": 3,
        "is_n_plus_one": True,
    }
    assert answer["certificate"] == {
        "object": "n2: client.pem",
        "seconds_left": 300 * DAY,
    }
    assert answer["releases"] == {"3.1": 3}
    assert answer["candidates"][0]["name"] == "n2"


def test_without_an_answer_the_verdict_is_critical():
    answer = unreachable("n1", "it hangs", "")
    assert answer["status"] == 2
    assert answer["findings"][0] == {
        "severity": "critical",
        "kind": "cluster",
        "object": "n1",
        "text": "it hangs",
        "command": "",
    }
