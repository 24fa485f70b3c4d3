"""A cluster of Debian's Ganeti 3.0.2 comes here and goes back; guests never stop.

Configurations of older releases become what Debian's cfgupgrade makes of them.
"""

import copy
import json
import os
import re

import pytest

from fakes import cluster, debian, ganeti2, peers
from ganeti.migration import old_config
from ganeti.model import objects

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
WEB1, WEB2 = "web1.vc.test", "web2.vc.test"
RUNNING = {WEB1: "running", WEB2: "running"}


@pytest.fixture
def old(machines):
    """A cluster of two nodes with a guest on each: one on a file, one without disk."""
    peers.require()
    cluster = debian.DebianCluster(machines(2, "--isolated"))
    cluster.install()
    cluster.create()
    cluster.add(WEB1, "-t", "file", "-s", "8M", "--net=0:link=br0", "-n", "node2")
    cluster.add(WEB2, "-t", "diskless", "--no-install", "--no-nics", "-n", "node1")
    cluster.check("gnt-instance", "start", WEB2)
    assert sorted(cluster.guests()) == [WEB1, WEB2]
    return cluster


def test_a_live_cluster_comes_here_and_goes_back(old) -> None:
    new, guests = old.machines, old.guests()
    check_refusals(old)
    planned = new.check("take-over", "--plan")
    assert old.daemons() == set(debian.DAEMONS)
    assert not new.file("/var/lib/ganeti/take-over").exists()
    done = new.check("take-over", "-f", timeout_s=300)
    assert re.findall(r"^  \d\. (.*)", planned, re.MULTILINE)[:3] == [
        line
        for line in done.splitlines()
        if line.startswith(("stop", "keep", "import"))
    ]
    assert old.guests() == guests
    check_new(old)
    now = old.guests()
    new.check("take-over", "--undo", "-f", timeout_s=300)
    assert old.guests() == now
    check_old(old)


def check_refusals(old):
    """Obstacles of a take-over are listed, and nothing is changed."""
    data = old.config()
    broken = ganeti2.broken(data, ganeti2.references(data)[0])
    path = old.machines.file("/var/lib/ganeti/config.data")
    whole = path.read_bytes()
    path.write_text(json.dumps(broken))
    done = old.machines.run("take-over", "-f")
    path.write_bytes(whole)
    assert (done.code, ganeti2.UNKNOWN in done.stderr) == (1, True), done.output
    assert old.daemons() == set(debian.DAEMONS)


def check_new(old):
    """The daemons are ours, and manage the guests."""
    new = old.machines
    assert old.daemons() == old.daemons("node2") == set()
    assert new.run("test", "-e", debian.CRON).failed
    listed = new.check("gnt-instance", "list", "--no-headers", "-o", "name,status")
    assert dict(line.split() for line in listed.splitlines()) == RUNNING
    archived = new.check("gnt-job", "list", "--archived", "--no-headers")
    assert "INSTANCE_CREATE(web1.vc.test)" in archived
    assert "login: " in debian.console(new, "node2", WEB1)
    modify = ("gnt-instance", "modify")
    for words in (
        ("--net", "add:link=br0"),
        ("--disk", "add:size=8M"),
        ("--disk", "remove"),
        ("--net", "0:remove"),
    ):
        assert "hotplug:done" in new.check(*modify, *words, WEB1)
    new.check("gnt-instance", "migrate", "-f", WEB2)
    assert "login: " in debian.console(new, "node2", WEB2)
    new.check("gnt-instance", "shutdown", WEB1)
    new.check("gnt-instance", "start", WEB1)


def check_old(old):
    """Debian's daemons manage the guests again, with what was changed in between."""
    assert old.daemons() == set(debian.DAEMONS)
    old.check("test", "-e", debian.CRON)
    old.wait_until_listed(RUNNING)
    listed = old.check("gnt-job", "list", "--archived", "--no-headers")
    assert "INSTANCE_MIGRATE(web2.vc.test)" in listed
    assert "login: " in debian.console(old.machines, "node2", WEB2)


# config.data of Ganeti 2 becomes what Debian's cfgupgrade of 3.0.2 makes of it.

#: Releases before 2.4, which have no groups, are refused there.
MINORS = range(4, 17)
#: Files that must exist.
SECRETS = ("server.pem", "rapi.pem", "known_hosts", "hmac.key", "spice.pem")
SECRETS += ("cluster-domain-secret", "spice-ca.pem")


@pytest.fixture
def debian_machine(machines):
    """A machine with Debian's packages and no cluster."""
    peers.require()
    actual = debian.DebianCluster(machines(1, "--isolated"))
    actual.install()
    return actual


def by_debian(debian_machine, data):
    """Return the configuration that Debian's program makes."""
    state = debian_machine.machines.file("/var/lib/ganeti")
    state.mkdir(parents=True, exist_ok=True)
    for name in SECRETS:
        (state / name).touch()
    (state / "config.data").write_text(json.dumps(data))
    (state / "ssconf_master_node").write_text("node1.vc.test\n")
    tool = "/usr/lib/ganeti/tools/cfgupgrade"
    debian_machine.check(tool, "-f", "--ignore-hostname")
    return json.loads((state / "config.data").read_text())


def snapshot(data):
    """Return the configuration that a file makes here."""
    data = copy.deepcopy(data)
    changes = old_config.parse(data, "config.data", check=False, convert=True)
    return old_config.snapshot_of(changes)


def plain(record):
    """Return a record without uuids of its own and times, which both programs make."""
    if isinstance(record, dict):
        ignored = ("uuid", "ctime", "mtime")
        return {k: plain(v) for k, v in record.items() if k not in ignored}
    return [plain(item) for item in record] if isinstance(record, list) else record


def tables(config):
    """Return the objects of a snapshot by table and name, in comparable form."""
    rows = {}
    for table in ("nodes", "nodegroups", "instances", "networks"):
        for record in config.table(table).values():
            row = plain(objects.to_dict(record))
            if table == "instances":
                row["disks"] = [
                    plain(objects.to_dict(config.disks[key])) for key in record.disks
                ]
                for disk in row["disks"]:
                    for part in (disk, *disk["children"]):
                        part["nodes"] = sorted(part["nodes"])
            rows[f"{table}/{record.name}"] = row
    rows["cluster"] = plain(objects.to_dict(config.cluster))
    for name in ("xen-pvm", "xen-hvm"):
        # Release 3.1 does not have this parameter of 3.0.
        rows["cluster"]["hvparams"][name].pop("xen_cmd", None)
    for owner in (rows["cluster"], rows["cluster"]["ipolicy"]):
        for field in ("enabled_disk_templates", "disk-templates"):
            if field in owner:
                owner[field] = sorted(owner[field])
    return rows


@pytest.mark.parametrize("source", [ganeti2.debian, cluster.example_data])
def test_each_release_is_converted_as_by_debian(debian_machine, source) -> None:
    for minor in MINORS:
        data = ganeti2.as_of(source(), minor)
        expected = tables(snapshot(by_debian(debian_machine, data)))
        actual = tables(snapshot(data))
        assert actual.keys() == expected.keys()
        for name in expected:
            assert actual[name] == expected[name], (minor, name)
