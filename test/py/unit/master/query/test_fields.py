"""The field tables are the documented ones: name, title, kind."""

import json
import pathlib

import pytest

from ganeti.base.constants.parameters import hvparams
from ganeti.master import query
from ganeti.master.query import engine
from ganeti.model import objects

SPEC = json.loads(
    (
        pathlib.Path(__file__).parents[4] / "data" / "spec" / "query_fields.json"
    ).read_text()
)


#: Resource -> fields that Ganeti does not have.
OURS = {
    "instance": (
        *("disk.total", "expires", "owner", "request_key", "reservation_priority"),
        "stuck",
        *(
            f"hv/{name}"
            for table in hvparams.HYPERVISOR.values()
            for name, row in table.items()
            if row.added
        ),
    ),
    "node": ("copy_lag", "copy_state"),
    "filter": ("problem",),
    "lock": ("held",),
}


def documented():
    for row in SPEC["fields"]:
        sizes = {"disk": 16, "nic": 8}
        if not row["name"].endswith("/N"):
            yield row["resource"], row["name"], row["title"], row["kind"]
            continue
        for index in range(sizes[row["name"].split(".")[0]]):
            yield (
                row["resource"],
                row["name"].replace("/N", f"/{index}"),
                row["title"].replace("/N", f"/{index}"),
                row["kind"],
            )


@pytest.mark.parametrize("resource", sorted(query.RESOURCES))
def test_table_is_the_documented_one(resource):
    wanted = {row[1]: row[2:] for row in documented() if row[0] == resource}
    actual = {
        row["name"]: (row["title"], row["kind"])
        for row in query.describe(resource, None)
    }
    ours = {name: actual.pop(name, None) for name in OURS.get(resource, ())}
    assert None not in ours.values()
    added = sorted(actual.keys() - wanted.keys())
    line = ", ".join(map(json.dumps, added))
    assert not added, f"if Ganeti lacks them, add to OURS[{resource!r}]:\n{line},"
    assert actual == wanted


def test_match_rules_are_the_documented_ones():
    wanted = {
        (row["resource"], row["name"]): row["match"]
        for row in SPEC["fields"]
        if "match" in row
    }
    actual = {
        (resource.name, field.name): field.match
        for resource in query.RESOURCES.values()
        for field in resource.fields.values()
        if field.match and field.match != "jobid"
    }
    assert actual == wanted


def test_live_fields_of_configuration_objects_are_the_documented_ones():
    wanted = {
        (row["resource"], row["name"])
        for row in SPEC["fields"]
        if row["live"] and row["resource"] in {"node", "instance"}
    }
    actual = {
        (resource.name, field.name)
        for resource in query.RESOURCES.values()
        for field in resource.fields.values()
        if field.live
    }
    assert actual == wanted | {("instance", "stuck")}


def test_name_fields_are_the_documented_ones():
    for row in SPEC["resources"]:
        if row["name_field"] is not None:
            wanted = row["name_field"].split(" ")[0]
            assert query.RESOURCES[row["resource"]].name_field == wanted


def test_every_field_has_a_one_line_text():
    for resource in query.RESOURCES.values():
        for field in resource.fields.values():
            assert field.doc
            assert "\n" not in field.doc


def test_fields_are_listed_in_natural_order():
    names = [row["name"] for row in query.describe("instance", None)]
    assert names.index("disk.name/2") < names.index("disk.name/10")


def test_unknown_fields_are_described_as_such():
    actual = query.describe("node", ["name", "nonsense"])
    assert [row["kind"] for row in actual] == ["text", "unknown"]
    assert actual[1]["title"] == "nonsense"
    assert engine.field_of("node", "name").title == "Node"


def test_rows_that_share_cells_have_the_values_of_each_alone():
    from fakes import clusters
    from ganeti.master import query

    snapshot = clusters.snapshot(
        nodes=2,
        extra=[
            clusters.instance(1),
            clusters.instance(2),
            clusters.instance(3, hvparams={"acpi": False}),
            clusters.instance(4, hvparams={"acpi": True}, os="other"),
        ],
    )
    sources = query.Sources(snapshot)
    names = ["hv/acpi", "name", "hv/boot_order", "be/maxmem", "nonsense", "hv/acpi"]
    together = query.query(sources, "instance", names, None).data
    assert [list(row) for row in together] == [
        [
            query.query(sources, "instance", [name], ["==", "name", row[1][1]]).data[0][
                0
            ]
            for name in names
        ]
        for row in together
    ]
    assert [row[0][1] for row in together] == [True, True, False, True]


def test_columns_made_at_once_are_those_made_row_by_row():
    from fakes import clusters
    from ganeti.master import query
    from ganeti.master.query.model import QueryContext

    disk = objects.Disk(
        uuid="disk-7", dev_type="plain", logical_id=("vg", "lv"), size=9, serial_no=1
    )
    nic = objects.Nic(mac="aa:00:00:00:00:01", uuid="nic-1", nicparams={})
    snapshots = [
        clusters.snapshot(nodes=2),
        clusters.snapshot(nodes=2, extra=[clusters.instance(1), clusters.instance(2)]),
        clusters.snapshot(
            nodes=2,
            extra=[
                disk,
                clusters.instance(1, disks=(disk.uuid,)),
                clusters.instance(2, nics=(nic, nic), hvparams={"acpi": False}),
            ],
        ),
    ]
    resource = query.RESOURCES["instance"]
    at_once = [field for field in resource.fields.values() if field.column]
    assert len(at_once) > 100
    for snapshot in snapshots:
        context = QueryContext(query.Sources(snapshot))
        rows = resource.rows(context, None)
        for field in at_once:
            get = field.bind(context)
            assert list(field.column(context, rows)) == [get(row) for row in rows]
