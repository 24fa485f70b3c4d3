"""Tables and trees as documented; no control character arrives on the terminal."""

import io
import json
import logging
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors, log
from ganeti.base.text import control_chars
from ganeti.commands.cli import app
from ganeti.commands.cli.context import ClientEffects, CommandContext
from ganeti.commands.cli.output import info_tree, listing, table
from ganeti.commands.cli.waiting import plans
from ganeti.protocols.luxi import tables


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
    actual = json.loads(run("gnt-node list --json -o name,dtotal", master))
    assert actual == [
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
        info_tree.Pairs(
            [
                ("Job ID", 21),
                ("Received", "x", "t"),
                ("Processing start", "y", "t"),
                ("Empty", []),
                ("Input", {"b": [1, 2], "a": None}),
                ("Log", [info_tree.Pairs([("Content", (1, "message", "hi"))])]),
            ]
        ),
        "Job ID 23 not found",
    ]
    assert info_tree.render(value) == (
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
    assert [info_tree.numeral(n) for n in (1, 4, 9, 14, 1994, 0, 4096, 5000)] == [
        "I",
        "IV",
        "IX",
        "XIV",
        "MCMXCIV",
        "N",
        "MMMMXCVI",
        "5000",
    ]
    shown = info_tree.with_numerals(info_tree.Pairs([("a", [4, True, {"b": 9}])]))
    assert shown == [("a", ["IV", True, {"b": "IX"}])]
    shown = info_tree.with_numerals(
        ["default (256)", "default (True)", "default (10000)", "256"]
    )
    assert shown == ["default (CCLVI)", "default (True)", "default (10000)", "256"]


def list_of(data, *words):
    """Return what a list command prints of an answer with these rows."""
    fields = [
        {"name": name, "title": name.upper(), "kind": kind, "doc": ""}
        for name, kind in (("a", "text"), ("b", "other"), ("c", "unit"), ("d", "bool"))
    ]
    out = io.StringIO()
    ctx = SimpleNamespace(
        call=lambda *_args: {"fields": fields, "data": data},
        option=lambda name, default=None: "never" if name == "color" else default,
        opts=SimpleNamespace(separator=None, no_headers="--no-headers" in words),
        out_lines=lambda lines, **_more: out.writelines(f"{line}\n" for line in lines),
    )
    for word in words:
        if word.startswith("--separator="):
            ctx.opts.separator = word.split("=")[1]
    assert (
        listing.show(ctx, listing.Listing("instance"), ["a", "b", "c", "d"], None) == 0
    )
    return out.getvalue()


@pytest.mark.parametrize("words", [(), ("--no-headers",), ("--separator=|",)])
def test_large_answers_print_like_small_ones(words):
    rows = [
        [[0, f"n{number % 3}"], [0, value], [0, 2048], [0, number > 5]]
        for number, value in enumerate([1, True, 1.0, [1], None, {"k": "],["}, "1", 0])
    ]
    rows.append([[2, None], [4, None], [0, 1], [3, None]])
    encoded = tables.Rows([msgspec.Raw(msgspec.json.encode(row)) for row in rows])
    assert list_of(encoded, *words) == list_of(rows, *words)
    assert list_of(encoded[:2], *words) == list_of(rows[:2], *words)
    assert "[1]" in list_of(encoded, *words)


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        ([], ""),
        ([""], ""),
        (["", ""], "\n\n"),
        (["a"] * 64, "a\n" * 64),
        ([*["a"] * 64, ""], "a\n" * 64 + "\n"),
        (["a"] * 200, "a\n" * 200),
    ],
)
def test_lines_are_printed_like_one_text(lines, printed):
    out = io.StringIO()
    ctx = CommandContext.__new__(CommandContext)
    ctx.effects = SimpleNamespace(stdout=out)
    ctx.progress_text = ""
    ctx.out_lines(iter(lines))
    assert out.getvalue() == printed


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    # Tiny numbers have two spellings, 6e-05 and 0.00006, of one value.
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: number == 0 or abs(number) >= 1e-4
    )
    | st.sampled_from([1e16, -1e-7, 1.0, 1.5e300, 1792000000.25])
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


# How long values take to make is the machine's affair.
@settings(deadline=None)
@given(JSON_VALUES)
def test_both_codecs_write_the_same_json(value):
    """The command line loads the faster one for large answers only."""
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    assert listing._pretty(value) == plain
    assert listing._pretty([value, {"a": value}]) == json.dumps(
        [value, {"a": value}], indent=2, ensure_ascii=False
    )


def test_answers_written_loosely_print_like_compact_ones():
    rows = [[[0, "x"], [0, [1]], [0, 5], [0, True]]] * 3
    loose = tables.Rows([msgspec.Raw(json.dumps(row).encode()) for row in rows])
    assert list_of(loose) == list_of(rows)


def test_columns_that_are_the_same_in_all_rows_are_laid_out_like_others():
    titles = ["A", "LONG", "N", "Z"]
    kinds = ["text", "text", "number", "text"]
    columns = list(map(table.Column, titles, kinds))
    cells = [["x", "yy"], ["s", "s"], ["1", "1"], ["o", "o"]]
    same = [cells[0], *(table.Same(texts[0], 2) for texts in cells[1:])]
    for separator in (None, "|"):
        for headers in (True, False):
            layout = {"separator": separator, "headers": headers}
            actual = table.render(columns, same, **layout)
            assert actual == table.render(columns, cells, **layout)
    assert actual == "x|s|1|o\nyy|s|1|o"


def test_job_details_leave_out_how_far_steps_had_come(master):
    stamp = [1_700_000_000, 0]
    master.objects["job"] = [
        {
            "id": 7,
            "status": "success",
            "ops": [{"OP_ID": "OP_TEST_DELAY"}],
            "opresult": [None],
            "opstatus": ["success"],
            "oplog": [
                [
                    [1, stamp, "message", "wiping begins"],
                    [2, stamp, "progress", "1 of 2 MiB"],
                    [3, stamp, "message", "wiping ends"],
                ]
            ],
            **{key: [stamp] for key in ("opstart", "opexec", "opend")},
            **dict.fromkeys(("received_ts", "start_ts", "end_ts"), stamp),
        }
    ]
    master.jobs[7], master._outcomes[7] = [], []
    text = run("gnt-job info 7", master)
    assert "wiping begins" in text
    assert "wiping ends" in text
    assert "1 of 2 MiB" not in text
    ((actual,),) = [json.loads(run("gnt-job info --json 7", master))]
    assert [entry[0] for entry in actual["oplog"][0]] == [1, 3]


# Texts of nodes on the terminal: no control character arrives there.

EVIL = "a\x1b]0;owned\x07b\x9bc\x7fd\u202ee\r\bf"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def ctx(tmp_path):
    root = tmp_path / "n1"
    effects = ClientEffects(
        environ={"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1"},
        connect=lambda *_: None,
        stdout=Terminal(),
        stderr=Terminal(),
        stdin=io.StringIO(),
        open_terminal=lambda: None,
        now=lambda: 0.0,
    )
    program = type("Program", (), {"name": "gnt-x"})()
    return CommandContext(program, None, "x", effects=effects)


def controls(text):
    return [c for c in text if c not in "\n\t" and control_chars.is_control(c)]


def test_every_output_of_a_command_is_escaped(ctx):
    ctx.out(EVIL)
    ctx.out_lines([f"{EVIL}\tx", EVIL])
    ctx.err(EVIL)
    assert controls(ctx.effects.stdout.getvalue() + ctx.effects.stderr.getvalue()) == []
    assert ctx.effects.stdout.getvalue().count("owned") == 3
    ctx.progress(EVIL)
    shown = ctx.effects.stderr.getvalue().replace("\r", "")
    assert controls(shown) == []


def test_json_keeps_its_meaning(ctx):
    ctx.out(json.dumps({"text": EVIL}, ensure_ascii=False))
    shown = ctx.effects.stdout.getvalue()
    assert controls(shown) == []
    assert json.loads(shown) == {"text": EVIL}


def test_colours_are_the_only_sequences(ctx):
    app._complain(ctx, EVIL)
    error = ctx.effects.stderr.getvalue()
    assert error.startswith("\x1b[1;31m")
    assert controls(error) == ["\x1b", "\x1b"]
    painted = plans.Painter(is_coloured=True)("title", EVIL)
    assert controls(painted) == ["\x1b", "\x1b"]


def test_a_log_has_none_either(tmp_path):
    log.set_up("x", str(tmp_path / "x.log"))
    try:
        logging.getLogger().warning("node said %s", EVIL)
    finally:
        log.shut_down()
    text = (tmp_path / "x.log").read_text()
    assert "owned" in text
    assert controls(text) == []


def test_errors_of_nodes_are_escaped(ctx):
    app._complain(ctx, str(errors.OpExecError(EVIL)))
    assert "\x9b" not in ctx.effects.stderr.getvalue()
