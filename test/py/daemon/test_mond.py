"""ganeti-mond on a real node: settings of the cluster, diagnosis, metrics, its user."""

import json
import pathlib
import subprocess
import time
import urllib.request

import msgspec
import pytest

from fakes.patience import has_ended, until
from ganeti.base.constants.protocols import confd
from ganeti.node.collectors.helper import DIAGNOSE_COMMANDS
from ganeti.node.storage import heartbeats
from ganeti.protocols.confd import wire


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(1, "fake", "--monitoring")


def get(cluster, path, name="node1"):
    url = f"http://{cluster.node(name).address}:1815{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def diagnosis(cluster):
    return json.loads(json.loads(get(cluster, "/1/report/node/diagnose"))["msg"])[
        "data"
    ]


@pytest.mark.sampled
def test_reports_settings_and_metrics(cluster):
    listed = [row[0] for row in json.loads(get(cluster, "/1/list/collectors"))]
    assert {"cpu-avg-load", "diskstats", "diagnose"} <= set(listed)
    until(
        "two samples of the processors",
        lambda: (
            "cpu_total"
            in json.loads(get(cluster, "/1/report/default/cpu-avg-load"))["data"]
        ),
    )
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=get(cluster, "/metrics"), check=False
    )
    assert checked.returncode == 0
    cluster.check("gnt-cluster", "modify", "--enabled-data-collectors=diskstats=false")
    until(
        "the collector is off",
        lambda: b"diskstats" not in get(cluster, "/1/list/collectors"),
    )
    report = json.loads(cluster.check("mon-collector", "diskstats"))
    assert report["name"] == "diskstats"


def test_the_diagnosis_of_a_command_that_the_node_allows(cluster):
    name = "check-psu"
    cluster.check(
        "gnt-cluster",
        "modify",
        "--diagnose-data-collector-filename",
        name,
        "--data-collector-interval=diagnose=0.5",
    )
    until(
        "the node refuses a command that it does not have",
        lambda: "not allowed" in diagnosis(cluster).get("details", ""),
    )
    directory = cluster.file(f"/etc/ganeti/{DIAGNOSE_COMMANDS}")
    directory.mkdir(mode=0o755)
    wanted = {"status": "evacuate", "details": {"part": "psu2"}}
    (directory / name).write_text(f"#!/bin/sh\necho '{json.dumps(wanted)}'\n")
    (directory / name).chmod(0o755)
    until("the diagnosis", lambda: diagnosis(cluster) == wanted)
    answer = json.loads(get(cluster, "/1/report/node/diagnose?challenge=c1"))
    key = pathlib.Path(cluster.paths().hmac_key).read_bytes()
    signed = wire.signer(wire.MAGIC_SHA1, key)(
        confd.PURPOSE_REPORT + (answer["salt"] + answer["msg"]).encode()
    )
    assert signed == answer["hmac"]
    assert json.loads(answer["msg"])["node"] == "node1.vc.test"
    assert json.loads(cluster.check("mon-collector", "diagnose"))["data"] == wanted


@pytest.mark.sampled
def test_settings_arrive_from_servers_that_want_sha256(cluster):
    cluster.check("gnt-cluster", "modify", "--confd-hmac=sha256")
    try:
        cluster.check(
            "gnt-cluster", "modify", "--enabled-data-collectors=diskstats=true"
        )
        until(
            "the collector is on again",
            lambda: b"diskstats" in get(cluster, "/1/list/collectors"),
        )
    finally:
        cluster.check("gnt-cluster", "modify", "--confd-hmac=sha1")


def test_agent_and_its_processes_end_together(cluster):
    before = get(cluster, "/metrics")
    pid = int(cluster.file("/var/run/ganeti/ganeti-mond.pid").read_text())
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 2
    cluster.check("daemon-util", "stop", "ganeti-mond")
    for child in children:
        until("a child has ended", lambda pid=child: has_ended(pid))
    assert b"ganeti_heartbeat" not in before
    cluster.check("gnt-cluster", "modify", "--node-death=yes")
    cluster.check("ganeti-watcher", "--no-wait-children")
    until("the watcher has started it", lambda: get(cluster, "/") == b"[1]")


def test_heartbeats_are_written_to_shared_storage_and_read(cluster):
    """The other node is played: its heartbeat has the key of the cluster."""
    metric = b"ganeti_heartbeat_age_seconds{"
    until("a heartbeat", lambda: metric in get(cluster, "/metrics"))
    paths = cluster.paths()
    key = heartbeats.cluster_key(paths)
    with heartbeats.shelf(str(pathlib.Path(cluster.directory, "shared"))) as shelf:
        data = shelf.read(paths.hostname)
        own = heartbeats.opened(data, key, node=paths.hostname, now=time.time())
        other = msgspec.structs.replace(own, node="node2.vc.test", count=7)
        shelf.write("node2.vc.test", heartbeats.sealed(other, key))
        shelf.write("node3.vc.test", heartbeats.sealed(other, b"another key"))

    def answers():
        names = ["node2.vc.test", "node3.vc.test", "node4.vc.test"]
        return heartbeats.ask(paths, names, time.monotonic())

    until("it was read", lambda: answers() == [(own.run, 7), None, None])
    state = heartbeats.read_state(paths)
    assert "did not sign it" in state.problems["node3.vc.test"]
    log = cluster.file("/var/log/ganeti/monitoring-daemon.log")
    assert "heartbeats on shared storage: sharedfile" in log.read_text()
