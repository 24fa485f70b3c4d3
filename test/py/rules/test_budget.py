"""The tree grows only by what test/data/budget.txt grants."""

import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]
BUDGET = TOP / "test" / "data" / "budget.txt"
PARTS = {"lib": ("lib",), "rest": ("test", "tools", "autotools", "daemons")}


def sizes(part):
    """Return the lines of each program of a part, without data."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *PARTS[part]],
        cwd=TOP, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    paths = [TOP / name for name in listed if not name.startswith("test/data/")]
    return [path.read_bytes().count(b"\n") for path in paths if path.is_file()]


def granted(text, part):
    """Return the lines and files of a part: its base and what entries add."""
    rows = re.findall(rf"^{part} ([+-]?\d+) ([+-]?\d+)\b", text, re.MULTILINE)
    return tuple(sum(map(int, column)) for column in zip(*rows, strict=True))


def refusal(part, actual, text):
    """Return what to do about a part that grew; nothing if it did not."""
    lines, files = (
        max(0, now - was) for now, was in zip(actual, granted(text, part), strict=True)
    )
    if not lines and not files:
        return ""
    return (
        f"{part} grew over test/data/budget.txt: remove as much elsewhere, or add\n"
        f"{part} +{lines} +{files}  FEATURE\n"
        f"(after it shrank, replace all lines of {part} by: {part} {actual[0]} {actual[1]}  base)"
    )


@pytest.mark.parametrize("part", PARTS)
def test_the_tree_grows_by_features_that_the_budget_names(part):
    lines = sizes(part)
    refused = refusal(part, (sum(lines), len(lines)), BUDGET.read_text())
    assert not refused, refused


@pytest.mark.parametrize(
    ("lines", "files", "line"),
    [
        (100, 10, None),
        (60, 9, None),
        (135, 11, None),
        (136, 11, "lib +1 +0  FEATURE"),
        (90, 13, "lib +0 +2  FEATURE"),
    ],
)
def test_the_line_to_add_is_printed(lines, files, line):
    text = "# lib 5 5\nlib 120 10  base\nrest 7 7  base\nlib +15 +1  feature\n"
    refused = refusal("lib", (lines, files), text)
    assert line in refused.split("\n") if line else refused == ""
