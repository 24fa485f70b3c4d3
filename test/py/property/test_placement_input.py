"""Placement programs on files that are cut off, changed or contradict themselves.

Whatever the input: an exit code that is documented, at most one message, and never a
traceback; an error in a file is reported with its line and field.
"""

import contextlib
import copy
import io
import json
import pathlib
import random
import re
import subprocess
import sys
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import made_cases, made_clusters
from fakes.made_clusters import Shape
from fakes.seeds import examples
from ganeti.commands.htools import hail, hbal, hcheck, hinfo, hroller, hspace, hsqueeze
from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import DataError

TOP = pathlib.Path(__file__).parents[3]
SHAPES = (
    Shape(4, per_node=2, template="mixed", groups=2, tags="location", forthcoming=0.2),
    Shape(4, per_node=2, offline=1, odd=True),
    Shape(3, per_node=2, template="plain", exclusive=True),
)
PROGRAMS = {
    "hbal": (hbal.main, ("-l", "3", "-C", "-p")),
    "hcheck": (hcheck.main, ("-l", "2", "--machine-readable")),
    "hinfo": (hinfo.main, ("-v", "-v", "-p")),
    "hroller": (hroller.main, ("-f", "--print-moves")),
    "hspace": (
        hspace.main,
        ("-l", "2", "--standard-alloc=2048,512,1", "--tiered-alloc=4096,1024,2"),
    ),
    "hsqueeze": (hsqueeze.main, ("-v",)),
}
#: Named by an error in a file: where it is.
PLACE = re.compile(r"(, line \d+: \w+.*(field '|needs \d+ fields)|Invalid format)")
VALUES = st.sampled_from(
    (
        *("", "-1", "0", "1e999", "nan", "?", "Y", "-", "9" * 18, "1" * 40, "0.5"),
        *("drbd", "node0000.bench.test", "a;b", ",,,", "\0", "é", " 7", "\u0663"),
    )
)


def content(number: int) -> str:
    """Return a small cluster as a file."""
    return made_clusters.make(SHAPES[number], number).text()


def pieces(line: str) -> list[str]:
    """Return a line cut off after each of its fields, and within some."""
    cuts = [match.start() for match in re.finditer(r"\||,|$", line)]
    return [line[:cut] for cut in cuts] + [line[: max(0, cut - 1)] for cut in cuts]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_files_cut_off_anywhere_are_read_or_refused_with_their_place(
    number: int,
) -> None:
    lines, refused = content(number).splitlines(keepends=True), 0
    for at, line in enumerate(lines):
        for piece in pieces(line.rstrip("\n")):
            data = "".join(lines[:at]) + piece
            try:
                text.load(data, "FILE")
            except DataError as err:
                refused += 1
                reported = str(err)
            else:
                continue
            assert reported.startswith("FILE")
            assert PLACE.search(reported), (reported, piece)
            if "line" in reported:
                actual = int(re.search(r"line (\d+)", reported).group(1))
                assert actual <= at + 1
    assert refused > 100


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_each_field_below_zero_or_no_number_is_named(number: int) -> None:
    lines = content(number).splitlines()
    for at, line in enumerate(lines):
        cells = line.split("|")
        for place, cell in enumerate(cells):
            if not re.fullmatch(r"[\d.]+", cell) or len(cells) < 7:
                continue
            for bad in ("-7", "much", "\u0663", "1_000", "nan", ""):
                changed = "|".join([*cells[:place], bad, *cells[place + 1 :]])
                data = "\n".join([*lines[:at], changed, *lines[at + 1 :]])
                # Free means may be below zero: more is in use than there is.
                if bad == "-7" and len(cells) > 13 and place in {3, 5, 12}:
                    text.load(data, "FILE")
                    continue
                with pytest.raises(DataError, match=f"FILE, line {at + 1}: .*field '"):
                    text.load(data, "FILE")


def outcome(main, words: list[str]) -> tuple[int, str, str]:
    """Run a program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", words),
    ):
        code = main()
    return code, out.getvalue(), err.getvalue()


def check(code: int, err: str) -> None:
    """Check that an end is one of those documented."""
    assert code in {0, 1}
    assert "Traceback" not in err
    assert err.count("Error: ") == (1 if code and "Error: " in err else 0)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)),
    st.randoms(use_true_random=False),
    st.lists(VALUES, min_size=1, max_size=3),
)
def test_programs_on_files_with_fields_exchanged(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    dice: random.Random,
    values: list[str],
) -> None:
    lines = content(dice.randrange(len(SHAPES))).split("\n")
    for value in values:
        at = dice.randrange(len(lines))
        cells = lines[at].split(dice.choice("||,"))
        cells[dice.randrange(len(cells))] = value
        lines[at] = "|".join(cells)
    path = tmp_path_factory.mktemp("data") / "cluster"
    path.write_text("\n".join(lines))
    main, words = PROGRAMS[name]
    code, _out, err = outcome(main, [name, "-t", str(path), *words])
    check(code, err)
    if code and "failed to load data" in err:
        assert f"{path}" in err


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n\n\n", b"\xff\xfe\x00", b"|\n\n|\n\n|\n\n|\n\n|\n", b"\0" * 100],
    ids=["empty", "empty sections", "bytes", "empty fields", "zeros"],
)
def test_programs_on_no_cluster_at_all(name: str, data: bytes, tmp_path) -> None:
    path = tmp_path / "cluster"
    path.write_bytes(data)
    main, words = PROGRAMS[name]
    code, _out, err = outcome(main, [name, "-t", str(path), *words])
    check(code, err)


def parts(value, path=()):
    """List the paths of all parts of a decoded request."""
    actual = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        actual += parts(inner, (*path, key))
    return actual


@settings(max_examples=examples(150), deadline=None)
@given(
    st.integers(0, 60),
    st.randoms(use_true_random=False),
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 10**30, 0.5, float("nan"), "x", "", [], {}, [[]], ["x"]]),
)
def test_requests_with_a_part_exchanged(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    dice: random.Random,
    part: object,
) -> None:
    data = json.loads(made_cases.case("hail", seed).files["request"])
    *way, last = dice.choice(parts(data))
    place = changed = copy.deepcopy(data)
    for key in way:
        place = place[key]
    if part is None and isinstance(place, dict):
        del place[last]
    else:
        place[last] = part
    path = tmp_path_factory.mktemp("data") / "request"
    path.write_text(json.dumps(changed))
    code, out, err = outcome(hail.main, ["hail", str(path)])
    check(code, err)
    if code:
        assert out == ""
        assert "request" in err
    else:
        assert list(json.loads(out)) == ["success", "info", "result"]


@pytest.mark.parametrize("name", ["hail", *sorted(PROGRAMS)])
def test_programs_as_processes(name: str, tmp_path) -> None:
    path = tmp_path / "cluster"
    path.write_text(content(0).replace("|65536|", "|-65536|", 1))
    words = [str(path)] if name == "hail" else ["-t", str(path)]
    done = subprocess.run(
        [TOP / "build/bin" / name, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1
