"""Tables and trees, character by character as documented."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.cli import listing, roman, table, tree


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.objects["node"] = [
        {"name": "heron.lab.test", "dtotal": 1536, "pinst_cnt": 2, "offline": False},
        {
            "name": "ibis.lab.test",
            "dtotal": (4, None),
            "pinst_cnt": 0,
            "offline": True,
        },
    ]
    fake.objects["node"][0] |= {"pinst_list": ["a", "b"], "ctime": 0, "tags": []}
    return fake


def run(line, master):
    done = commands.run(line, master)
    assert done.err == ""
    assert done.code == 0
    return done.out


def test_columns_are_aligned_by_kind(master):
    assert run("gnt-node list -o name,dtotal,pinst_cnt,offline", master) == (
        "Node           DTotal Pinst Offline\n"
        "heron.lab.test   1.5G     2 N\n"
        "ibis.lab.test       *     0 Y\n"
    )


def test_a_separator_switches_alignment_and_units_off(master):
    line = ["gnt-node", "list", "-o", "name,dtotal,pinst_cnt", "--separator=|"]
    assert run(line, master) == (
        "Node|DTotal|Pinst\nheron.lab.test|1536|2\nibis.lab.test|*|0\n"
    )


def test_volumes_are_texts_from_the_job_and_sizes_on_the_screen(master):
    row = ["heron.lab.test", "/dev/sda", "vgx", "abc.disk0_data", "20480"]
    master.results["OP_NODE_QUERYVOLS"] = [[*row, "web2.lab.test"]]
    # The title of the last column is padded, as scripts know it.
    assert run("gnt-node volumes", master) == (
        "Node           PhysDev  VG  Name            Size Instance     \n"
        "heron.lab.test /dev/sda vgx abc.disk0_data 20.0G web2.lab.test\n"
    )
    master.results["OP_NODE_QUERYVOLS"] = [["20480", "vgx"]]
    line = "gnt-node volumes -o size,vg --no-headers --units m --separator ,"
    assert run(line, master) == "20480,vgx\n"
    assert json.loads(run("gnt-node volumes --json -o size,vg", master)) == [
        {"size": 20480, "vg": "vgx"}
    ]


def test_without_headers_the_titles_do_not_widen_columns(master):
    assert run("gnt-node list --no-headers -o name,dtotal", master) == (
        "heron.lab.test 1.5G\nibis.lab.test     *\n"
    )


def test_verbose_and_units(master):
    line = "gnt-node list --no-headers -v --units g -o dtotal,name"
    assert run(line, master) == "      1.5 heron.lab.test\n(offline) ibis.lab.test\n"


def test_plus_adds_fields_to_the_defaults(master):
    header = run("gnt-node list -o +offline,name", master).splitlines()[0]
    assert header.split()[0] == "Node"
    assert header.split()[-2:] == ["Offline", "Node"]


def test_lists_are_joined(master):
    out = run("gnt-node list --no-headers -o pinst_list,tags heron", master)
    assert out == "a,b \n"


def test_json_has_null_and_a_reason_for_missing_values(master):
    found = json.loads(run("gnt-node list --json -o name,dtotal", master))
    assert found == [
        {"name": "heron.lab.test", "dtotal": 1536},
        {"name": "ibis.lab.test", "dtotal": None, "_status": {"dtotal": "offline"}},
    ]


def test_list_fields(master):
    lines = run("gnt-group list-fields name node_cnt", master).splitlines()
    assert lines[0] == "Name     Type   Title Description"
    assert lines[1].startswith("name     Text   Group ")
    assert lines[2].startswith("node_cnt Number Nodes ")


def test_unknown_fields_exit_14(master):
    done = commands.run("gnt-node list-fields name bogus", master)
    assert done.code == 14
    assert done.err == "Warning: Queried for unknown fields bogus\n"


def test_an_empty_table_has_only_its_header():
    assert run("gnt-job list", FakeMaster()) == "ID Status Summary\n"
    assert run("gnt-job list --no-headers", FakeMaster()) == ""


def test_jobs_are_filtered_by_status_and_id():
    master = FakeMaster()
    commands.run("gnt-job list --pending 7", master)
    assert master.calls[-1] == (
        "Query",
        [
            "job",
            ["id", "status", "summary"],
            [
                "&",
                [
                    "|",
                    ["==", "status", "canceling"],
                    ["==", "status", "queued"],
                    ["==", "status", "waiting"],
                ],
                ["|", ["==", "id", 7]],
            ],
        ],
    )


def test_old_tables_pad_the_last_title():
    text = table.render(
        [table.Column("Node"), table.Column("Status")],
        [["heron.lab.test", ""], ["disk0=OK", "fan1=WARNING"]],
        separator=None,
        headers=True,
        pad_header=True,
    )
    assert text == (
        "Node           Status      \n"
        "heron.lab.test disk0=OK\n"
        "               fan1=WARNING"
    )


def test_trees_nest_sort_and_align():
    value = [
        tree.Pairs(
            [
                ("Job ID", 21),
                ("Received", "x", "t"),
                ("Processing start", "y", "t"),
                ("Empty", []),
                ("Input", {"b": [1, 2], "a": None}),
                ("Log", [tree.Pairs([("Content", (1, "message", "hi"))])]),
            ]
        ),
        "Job ID 23 not found",
    ]
    assert tree.render(value) == (
        "- Job ID: 21\n"
        "  Received:         x\n"
        "  Processing start: y\n"
        "  Empty: \n"
        "  Input: \n"
        "    a: None\n"
        "    b: \n"
        "      - 1\n"
        "      - 2\n"
        "  Log: \n"
        "    - Content: [1, message, hi]\n"
        "- Job ID 23 not found"
    )


def test_roman_numerals():
    assert [roman.numeral(n) for n in (1, 4, 9, 14, 1994, 0)] == [
        "I",
        "IV",
        "IX",
        "XIV",
        "MCMXCIV",
        "0",
    ]
    shown = roman.convert(tree.Pairs([("a", [4, True, {"b": 9}])]))
    assert shown == [("a", ["IV", True, {"b": "IX"}])]


def test_equal_values_of_columns_with_several_types_are_told_apart():
    pairs = [(0, 1), (0, True), (2, None), (0, [1])]
    text_of = lambda pair: "-" if pair[0] else str(pair[1])  # noqa: E731
    found = listing._texts(pairs, text_of, is_typed=False)
    assert found == ["1", "True", "-", "[1]"]
    assert listing._texts(pairs[2:], text_of, is_typed=True) == ["-", "[1]"]
    assert listing._texts([(0, "a"), (0, "a")], text_of, is_typed=True) == ["a", "a"]
    assert listing._texts([], text_of, is_typed=True) == []
