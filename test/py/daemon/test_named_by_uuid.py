"""Every command that names objects does the same by name and by UUID, on real nodes."""

import re
import shlex

import pytest

from fakes import named_objects
from fakes.named_objects import NEW, in_words, plain

pytestmark = [pytest.mark.daemon, pytest.mark.long]
LINES = [*named_objects.COMMANDS, *named_objects.ON_NODES]
#: Measured values, dates and numbers of jobs.
VARIABLE = re.compile(
    r"\w{3} \w{3} +\d+ [\d:]+ \d{4}|\d+(\.\d+)?[MGT]?\b|[0-9a-f]{40,}"
)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Four nodes with the objects of the rows."""
    made = cluster_of(4)
    net = ("--network", "198.51.100.0/24", "net")
    made.check("gnt-group", "add", "rack")
    made.check("gnt-group", "assign-nodes", "rack", made.node("node4").name)
    made.check("gnt-network", "add", *net)
    mode = ("-N", "mode=routed,link=main")
    made.check("gnt-network", "connect", *mode, "net", "default")
    add = ("gnt-instance", "add", "--no-install", "-o", "tiny+default", "-H", "fake")
    first = made.node("node2").name
    made.check(
        *(*add, "-n", first, "-t", "file", "--disk", "0:size=8m,name=data"),
        *("--net", "0:network=net,ip=pool,name=lan", "inst1.vc.test"),
    )
    made.check(*add, "-n", first, "-t", "diskless", "--no-nics", "inst2.vc.test")
    for program, name in (
        *(("gnt-node", first), ("gnt-instance", "inst1.vc.test")),
        *(("gnt-group", "rack"), ("gnt-network", "net")),
    ):
        made.check(program, "add-tags", name, "old")
    return made


@pytest.fixture(scope="module")
def names(cluster):
    """Return uuid -> name of all objects."""
    shown = ("list", "--no-headers", "--separator=|", "-o")
    pairs = [
        row.split("|")
        for kind in ("node", "group", "instance", "network")
        for row in cluster.check(f"gnt-{kind}", *shown, "uuid,name").split()
    ]
    for field, name in (("disk.uuids", "data"), ("nic.uuids", "lan")):
        shown_uuid = cluster.check("gnt-instance", *shown, field, "inst1.vc.test")
        pairs.append((shown_uuid.strip().strip("[]'"), name))
    return dict(pairs)


@pytest.mark.parametrize("line", LINES)
def test_a_command_does_the_same_by_name_and_by_uuid(cluster, names, line):
    uuids = {name: uuid for uuid, name in names.items()}
    line = line.replace(".example.com", ".vc.test").replace(
        "-o tiny ", "-o tiny+quiet "
    )
    by_name, by_uuid = shlex.split(line), in_words(line, uuids)
    assert by_name != by_uuid
    results = []
    for words in (by_name, by_uuid):
        done = cluster.run(*words)
        text = plain([done.stdout, done.stderr], names)
        results.append((done.code, VARIABLE.sub("N", text)))
    assert results[0] == results[1]
    assert "' not known" not in results[0][1]
    assert "Traceback" not in results[0][1]


def test_a_creation_by_uuids_can_be_done(cluster, names):
    uuids = {name: uuid for uuid, name in names.items()}
    [add] = [line for line in LINES if NEW in line and "network=net" in line]
    line = add.replace(".example.com", ".vc.test").replace("-o tiny ", "-o tiny+quiet ")
    assert "The operation would fail" not in cluster.check(*in_words(line, uuids))


def test_the_cluster_is_clean_afterwards(cluster):
    cluster.wait_until_clean()
