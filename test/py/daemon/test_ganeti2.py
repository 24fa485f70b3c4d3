"""config.data of Ganeti 2 becomes what Debian's cfgupgrade of 3.0.2 makes of it."""

import copy
import json
import os

import pytest

from fakes import cluster, debian, ganeti2, old_cluster, peers
from ganeti.migration import old_config
from ganeti.model import objects

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
#: Releases before 2.4, which have no groups, are refused there.
MINORS = range(4, 17)
#: Files that must exist.
SECRETS = ("server.pem", "rapi.pem", "known_hosts", "hmac.key", "spice.pem")
SECRETS += ("cluster-domain-secret", "spice-ca.pem")


@pytest.fixture
def old(machines):
    """A machine with Debian's packages and no cluster."""
    peers.require()
    actual = debian.DebianCluster(machines(1, "--isolated"))
    actual.install()
    return actual


def by_debian(old, data):
    """Return the configuration that Debian's program makes."""
    state = old.machines.file("/var/lib/ganeti")
    state.mkdir(parents=True, exist_ok=True)
    for name in SECRETS:
        (state / name).touch()
    (state / "config.data").write_text(json.dumps(data))
    (state / "ssconf_master_node").write_text("node1.vc.test\n")
    tool = "/usr/lib/ganeti/tools/cfgupgrade"
    old.check(tool, "-f", "--ignore-hostname")
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


@pytest.mark.parametrize("source", [old_cluster.debian, cluster.example_data])
def test_each_release_is_converted_as_by_debian(old, source) -> None:
    for minor in MINORS:
        data = ganeti2.as_of(source(), minor)
        expected = tables(snapshot(by_debian(old, data)))
        actual = tables(snapshot(data))
        assert actual.keys() == expected.keys()
        for name in expected:
            assert actual[name] == expected[name], (minor, name)
