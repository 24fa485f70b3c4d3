"""confd and the remote API as users of their own, on machines with standard paths."""

import os
import sys

import pytest

from fakes import own_users
from fakes.patience import until

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sampled,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces and users need root"),
]
UIDS = {"ganeti-confd": 64221, "ganeti-rapi": 64222, "ganeti-mond": 64223}
#: Adds users to a copy of the machine's list, which this node alone sees.
ADD_USERS = """
set -e
cp /etc/passwd /etc/group /etc/default/
for entry in gnt-confd:64221 gnt-rapi:64222 gnt-mond:64223; do
  name=${entry%:*} id=${entry#*:}
  sed -i "/^$name:/d" /etc/default/passwd /etc/default/group
  echo "$name:x:$id:$id::/nonexistent:/usr/sbin/nologin" >> /etc/default/passwd
  echo "$name:x:$id:" >> /etc/default/group
done
for name in passwd group; do mount --bind /etc/default/$name /etc/$name; done
"""
#: Sends a request to the remote API, as jack.
ASK = """
import json, ssl, sys, urllib.request
method, address, path = sys.argv[1:]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
request = urllib.request.Request(f"https://{address}:5080{path}", method=method)
request.add_header("Authorization", "Basic amFjazpleGFtcGxl")
print(urllib.request.urlopen(request, context=context, timeout=60).read().decode())
"""


def prepare(cluster, name):
    cluster.check("sh", "-c", ADD_USERS, node=name)
    own_users.reveal(cluster, name)


@pytest.fixture
def cluster(machines):
    cluster = machines(2, "--isolated")
    for name in ("node1", "node2"):
        prepare(cluster, name)
    cluster.check("gnt-cluster", "init", "cluster.vc.test")
    cluster.check("gnt-node", "add", "--no-ssh-key-check", "node2")
    return cluster


def pid_of(cluster, daemon, name="node1"):
    return cluster.file(f"/var/run/ganeti/{daemon}.pid", name).read_text().strip()


def rights_of(cluster, daemon, name):
    """Return the user, the groups and the capabilities of a daemon."""
    text = cluster.check(
        "cat", f"/proc/{pid_of(cluster, daemon, name)}/status", node=name
    )
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return rows["Uid"].split(), rows["Groups"].split(), int(rows["CapPrm"], 16)


def ask(cluster, method, path, node="node1"):
    words = (ASK, method, cluster.node(node).address, path)
    return cluster.run(sys.executable, "-c", *words, node=node)


def confd_answers(cluster):
    """Return whether confd of each node answers."""
    return all(
        cluster.run(
            "confd-client", "-t", "2", "-a", cluster.node(name).address, "master"
        ).stdout.strip()
        == '"node1.vc.test"'
        for name in ("node1", "node2")
    )


def rapi_answers(cluster):
    return not ask(cluster, "GET", "/2/info").failed


def test_confd_and_the_remote_api_have_users_of_their_own(cluster):
    users = cluster.file("/var/lib/ganeti/rapi/users")
    users.write_text("jack example write\n")
    cluster.check("gnt-cluster", "redist-conf")
    until("confd answers", lambda: confd_answers(cluster))
    until("the remote API answers", lambda: rapi_answers(cluster))
    _have_their_users(cluster)
    _agent_has_its_user(cluster)
    _can_read_little_else(cluster)
    _verify_names_users(cluster)
    done = ask(cluster, "PUT", "/2/tags?tag=by-rapi")
    assert not done.failed, done.output
    until("the tag is set", lambda: "by-rapi" in _tags(cluster))
    assert not ask(cluster, "GET", "/openapi.json").failed
    _new_keys_are_read(cluster)
    _rotated_logs_are_continued(cluster)
    _restart_leaves_nothing(cluster)
    cluster.check("gnt-cluster", "master-failover", node="node2")
    until(
        "the remote API of the new master answers",
        lambda: not ask(cluster, "GET", "/2/info", node="node2").failed,
    )
    wanted = ([str(UIDS["ganeti-rapi"])] * 4, [], 0)
    assert rights_of(cluster, "ganeti-rapi", "node2") == wanted


def _agent_has_its_user(cluster):
    """The agent works without rights; its helper reads the key for it."""
    cluster.check("daemon-util", "start", "ganeti-mond")
    wanted = ([str(UIDS["ganeti-mond"])] * 4, [], 0)
    assert rights_of(cluster, "ganeti-mond", "node1") == wanted
    url = f"http://{cluster.node('node1').address}:1815/1/report/node/diagnose"
    code = f"import urllib.request as u; print(u.urlopen({url!r}, timeout=60).read())"
    assert "hmac" in cluster.check(sys.executable, "-c", code)
    log = cluster.file("/var/log/ganeti/monitoring-daemon.log")
    until("its settings arrive", lambda: "are those of the cluster" in log.read_text())
    cluster.check("daemon-util", "stop", "ganeti-mond")


def _have_their_users(cluster):
    for daemon, name in (
        ("ganeti-confd", "node1"),
        ("ganeti-confd", "node2"),
        ("ganeti-rapi", "node1"),
    ):
        wanted = ([str(UIDS[daemon])] * 4, [], 0)
        assert rights_of(cluster, daemon, name) == wanted, (daemon, name)


def _verify_names_users(cluster):
    """The machines allow root, but have the users."""
    assert "runs as user" not in cluster.check("gnt-cluster", "verify")
    output = cluster.check("gnt-cluster", "verify", "--verbose")
    both = "node1.vc.test, node2.vc.test"
    assert f"NOTICE: ganeti-confd runs as user gnt-confd on {both}" in output
    assert "NOTICE: ganeti-rapi runs as user gnt-rapi on node1.vc.test" in output


def _can_read_little_else(cluster):
    state = "/var/lib/ganeti"
    for daemon, path, may_read in (
        ("ganeti-rapi", f"{state}/rapi.pem", True),
        ("ganeti-rapi", f"{state}/rapi/users", True),
        ("ganeti-rapi", f"{state}/store.db", False),
        ("ganeti-rapi", f"{state}/server.pem", False),
        ("ganeti-rapi", f"{state}/hmac.key", False),
        ("ganeti-rapi", "/var/run/ganeti/socket/ganeti-master", False),
        ("ganeti-rapi", "/var/run/ganeti/socket/ganeti-query", False),
        ("ganeti-confd", f"{state}/store.db", True),
        ("ganeti-confd", f"{state}/hmac.key", True),
        ("ganeti-confd", f"{state}/server-key.pem", False),
        ("ganeti-confd", f"{state}/client.pem", False),
        ("ganeti-confd", f"{state}/cluster-domain-secret", False),
        ("ganeti-confd", "/var/run/ganeti/socket-rapi/ganeti-master", False),
    ):
        uid = str(UIDS[daemon])
        identity = ("--reuid", uid, "--regid", uid, "--clear-groups")
        done = cluster.run("setpriv", *identity, "test", "-r", path)
        assert done.failed != may_read, (daemon, path)
        assert cluster.run("setpriv", *identity, "test", "-w", path).failed or (
            path.endswith("socket-rapi/ganeti-master")
        ), (daemon, path)


def _new_keys_are_read(cluster):
    cluster.check(
        *("gnt-cluster", "renew-crypto", "-f"),
        *("--new-rapi-certificate", "--new-confd-hmac-key"),
    )
    until("confd answers with the new key", lambda: confd_answers(cluster))
    until("the remote API answers again", lambda: rapi_answers(cluster))
    # Files that are copied to nodes keep the group that reads them.
    cluster.check("gnt-cluster", "redist-conf")
    state = cluster.file("/var/lib/ganeti", "node2")
    for name, daemon in (("hmac.key", "ganeti-confd"), ("rapi.pem", "ganeti-rapi")):
        assert (state / name).stat().st_gid == UIDS[daemon]
    _have_their_users(cluster)


def _rotated_logs_are_continued(cluster):
    log = cluster.file("/var/log/ganeti/conf-daemon.log")
    owner = UIDS["ganeti-confd"]
    assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (owner, 0o600)
    log.rename(log.with_suffix(".log.1"))
    log.touch(0o600)
    os.chown(log, owner, owner)
    cluster.check("/bin/sh", "-c", f"kill -HUP {pid_of(cluster, 'ganeti-confd')}")
    cluster.check("/bin/sh", "-c", f"kill -USR1 {pid_of(cluster, 'ganeti-confd')}")
    until("the new log has lines", lambda: "answered" in log.read_text())


def _restart_leaves_nothing(cluster):
    before = pid_of(cluster, "ganeti-confd")
    util = cluster.paths().daemon_util
    cluster.check(util, "stop", "ganeti-confd")
    assert cluster.run(util, "check", "ganeti-confd").failed
    for kind in ("pid", "state"):
        assert not cluster.file(f"/var/run/ganeti/ganeti-confd.{kind}").exists()
    _does_not_start_without_its_user(cluster, util)
    cluster.check(util, "start", "ganeti-confd")
    assert pid_of(cluster, "ganeti-confd") != before
    cluster.check("/bin/sh", "-c", f"kill -KILL {pid_of(cluster, 'ganeti-confd')}")
    cluster.check(util, "start", "ganeti-confd")
    until("confd answers again", lambda: confd_answers(cluster))
    cluster.wait_until_clean()


def _does_not_start_without_its_user(cluster, util):
    """The machine loses the user; somebody must allow root then."""
    defaults = cluster.file("/etc/default/ganeti")
    text = defaults.read_text()
    defaults.write_text(text.replace("--allow-root", ""))
    cluster.check("umount", "/etc/passwd")
    refused = cluster.run(util, "start", "ganeti-confd")
    assert refused.failed
    assert "cannot run as its own user: this machine has no user gnt-confd" in (
        refused.output
    )
    defaults.write_text(text)
    cluster.check(util, "start", "ganeti-confd")
    output = cluster.check("gnt-cluster", "verify")
    assert "NOTICE: ganeti-confd runs as user root on node1.vc.test" in output
    cluster.check(util, "stop", "ganeti-confd")
    cluster.check("mount", "--bind", "/etc/default/passwd", "/etc/passwd")


def _tags(cluster):
    return cluster.check("gnt-cluster", "list-tags")
