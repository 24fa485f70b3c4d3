"""--json of every listing and info command against the schemas in doc/schema."""

import json
import pathlib
import re
import shutil

import jsonschema
import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
PROVIDER = TOP / "doc" / "examples" / "extstorage" / "files"
SCHEMAS = {path.stem: path for path in (TOP / "doc" / "schema").iterdir()}
#: Of single commands; all others share the schema of plans. That one does not end:
#: test_events compares its lines.
COMMANDS = sorted(SCHEMAS.keys() - {"plan", "gnt-cluster-monitor"})
NAME = "json1.vc.test"
#: Words after the options, for the commands that need some.
ARGUMENTS = {
    "gnt-cluster-queue": ["info"],
    "gnt-cluster-watcher": ["info"],
    "gnt-cluster-sessions": ["list"],
    "gnt-cluster-simulate": ["--event", "kill node2", "--horizon", "5m"],
    "gnt-cluster-search": ["json1"],
    "gnt-cluster-search-tags": ["json"],
    "gnt-group-list-tags": ["default"],
    "gnt-instance-info": [NAME],
    "gnt-instance-list-tags": [NAME],
    "gnt-job-info": ["1", "2", "3", "99999"],
    "gnt-network-info": ["json-net"],
    "gnt-network-list-tags": ["json-net"],
    "gnt-node-list-drbd": ["node1"],
    "gnt-node-list-tags": ["node1"],
    "gnt-node-power": ["status", "node1"],
}
#: Locks that nobody waits for, volumes of machines without LVM, no lost history, no users,
#: no faults, no mirrored disks.
MAY_BE_EMPTY = (
    "gnt-debug-locks",
    "gnt-node-list-drbd",
    "gnt-node-volumes",
    "gnt-cluster-journal",
    "gnt-cluster-list-incidents",
    "gnt-cluster-lost-changes",
    "gnt-cluster-sessions",
    "gnt-rapi-token-list",
)
#: A job that others let fail is a warning.
EXIT_CODES = {"gnt-cluster-status": (0, 1)}
OPTIONS = {"gnt-node-list-storage": ["-t", "file"]}


@pytest.fixture(scope="module")
def busy(vcluster):
    """The cluster with an instance, its export, a network, a rule, a provider and tags."""
    nodes = [vcluster.paths(node.short) for node in vcluster.layout.nodes]
    providers = [paths.at("/srv/ganeti/extstorage/files") for paths in nodes]
    for place in providers:
        shutil.copytree(PROVIDER, place, symlinks=True)
    vcluster.check(
        *[
            "gnt-instance",
            "add",
            "-t",
            "sharedfile",
            "--disk",
            "0:size=8m,name=root",
            "-H",
            "fake",
        ],
        *["-o", "tiny+default", "--net", "0:ip=192.0.2.9,mode=routed,name=eth0"],
        *f"-n node1 --no-install --no-start -B vcpus=2 {NAME}".split(),
    )
    vcluster.check("gnt-backup", "export", "-n", "node1", NAME)
    rule = vcluster.check(
        *["gnt-filter", "add", "--action", "PAUSE", "--priority", "3"],
        "--predicates",
        '[["jobid", [">", "id", 1000000]]]',
        "--reason",
        "for the test",
    ).strip()
    vcluster.check("gnt-network", "add", "--network", "198.51.100.0/28", "json-net")
    for words in ("cluster", "node", "group", "instance", "network"):
        names = {"node": ["node1"], "group": ["default"], "instance": [NAME]}
        names["network"] = ["json-net"]
        vcluster.check(f"gnt-{words}", "add-tags", *names.get(words, []), "json")
    yield vcluster
    for place in providers:
        shutil.rmtree(place)
    vcluster.check("gnt-backup", "remove", NAME)
    vcluster.check("gnt-filter", "delete", rule)
    vcluster.check("gnt-instance", "remove", "-f", NAME)
    vcluster.check("gnt-network", "remove", "json-net")
    for words, name in (("cluster", []), ("node", ["node1"]), ("group", ["default"])):
        vcluster.check(f"gnt-{words}", "remove-tags", *name, "json")


def split(stem):
    return re.fullmatch(r"(gnt-(?:rapi-token|[a-z]+))-(.*)", stem).groups()


def document(cluster, stem, *options):
    program, command = split(stem)
    words = [*OPTIONS.get(stem, []), *options, *ARGUMENTS.get(stem, [])]
    done = cluster.run(program, command, "--json", *words)
    assert done.code in EXIT_CODES.get(stem, (0,)), done.output
    return json.loads(done.stdout)


def errors_of(stem, value):
    schema = json.loads(SCHEMAS[stem].read_text())
    actual = jsonschema.Draft202012Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message[:200]}" for error in actual]


@pytest.mark.parametrize("stem", COMMANDS)
def test_the_document_is_the_promised_one(busy, stem):
    value = document(busy, stem)
    assert errors_of(stem, value) == []
    if stem not in MAY_BE_EMPTY:
        assert value != []


LISTS = sorted(stem for stem in SCHEMAS if f"{stem}-fields" in SCHEMAS)


@pytest.mark.parametrize("stem", LISTS)
def test_every_field_has_the_type_of_its_kind(busy, stem):
    fields = [row["name"] for row in document(busy, f"{stem}-fields")]
    rows = document(busy, stem, "-o", ",".join(fields))
    assert errors_of(stem, rows) == []
    for row in rows:
        for name in fields:
            assert (row[name] is None) >= (name in row.get("_status", {})), name


def test_unknown_fields_are_null_and_reported_as_unknown(busy):
    done = busy.run("gnt-node", "list", "--json", "-o", "name,colour")
    rows = json.loads(done.stdout)
    assert errors_of("gnt-node-list", rows) == []
    assert rows[0]["_status"] == {"colour": "unknown"}


def test_numbers_stay_numbers_with_roman(busy):
    program, command = split("gnt-instance-info")
    done = busy.run(program, command, "--json", "--roman", NAME)
    (value,) = json.loads(done.stdout)
    assert value["be_actual"]["vcpus"] == 2
    assert errors_of("gnt-instance-info", [value]) == []


@pytest.mark.parametrize(
    "line",
    [
        f"gnt-instance startup --plan --json {NAME}",
        f"gnt-instance remove --plan --json -f {NAME}",
        "gnt-group add --plan --json other",
    ],
)
def test_plans_have_one_schema(busy, line):
    done = busy.run(*line.split())
    assert done.stdout.startswith("{"), done.output
    plan = json.loads(done.stdout)
    assert errors_of("plan", plan) == []
    assert plan["jobs"]
