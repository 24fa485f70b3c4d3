"""Benches can be found, and say what they compare truthfully."""

import dataclasses
import pathlib
import subprocess

import pytest

from fakes.made_clusters import Shape

BENCH = pathlib.Path(__file__).parents[2] / "bench"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script that runs benches."""
    return subprocess.run(
        [BENCH / "run", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_usage_has_a_line_for_each_bench() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    reported = dict(line.split(None, 1) for line in shown.stdout.splitlines()[5:])
    assert set(reported) == {path.stem for path in BENCH.glob("*.py")}


@pytest.mark.parametrize("name", ["nosuch", "", "../bench/store", "--nosuch"])
def test_an_unknown_bench_is_refused_with_usage(name) -> None:
    refused = run(name)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith(f"test/bench/run: unknown benchmark '{name}'\n")
    assert "\nusage: test/bench/run" in refused.stderr


@pytest.fixture
def beside(monkeypatch):
    """Give the package of the placement bench."""
    monkeypatch.syspath_prepend(str(BENCH))
    from beside import cases, records, report

    return cases, records, report


def row(beside, mine, other, tool="hbal"):
    """Return a row of two runs with these scores or counts and moves."""
    cases, records, _report = beside
    results = [
        records.Result(f"{score}", score, len(steps), tuple(steps), is_whole=True)
        for score, steps in (mine, other)
    ]
    sides = [records.Side(1.0, 1.0, 20.0, result) for result in results]
    verdict = cases.verdict(tool, *results)
    return records.Row(tool, Shape(20), 1, 60.0, *sides, "", verdict)


@pytest.mark.parametrize(
    ("mine", "other", "verdict", "tool"),
    [
        ((1.0, "ab"), (1.0, "ab"), "same", "hbal"),
        ((0.9, "a"), (1.0, "ab"), "better", "hbal"),
        ((1.1, "a"), (1.0, "ab"), "WORSE", "hbal"),
        ((0.9, "abc"), (1.0, "ab"), "MORE MOVES", "hbal"),
        ((-9.0, (5, 4)), (-8.0, (4, 4)), "more", "hspace"),
        ((-9.0, (6, 3)), (-8.0, (4, 4)), "FEWER", "hspace"),
        ((1.1, "a"), (1.0, "b"), "WORSE", "hail"),
    ],
)
def test_each_broken_promise_is_listed(beside, mine, other, verdict, tool) -> None:
    report = beside[2]
    actual = row(beside, mine, other, tool)
    assert actual.verdict == verdict
    lines = report.verdicts([actual]).splitlines()
    assert report.is_broken(actual) == verdict.isupper()
    assert ("BROKEN" in lines[0]) == verdict.isupper()
    assert len(lines) == 1 + verdict.isupper()


def test_the_start_of_an_ended_plan_is_compared(beside) -> None:
    cases, records, _report = beside
    steps = tuple(f"  {n}. i => n {9 - n}.50000000 a=f" for n in range(3))
    ours = records.Result("", 7.5, 3, steps, is_whole=True)
    theirs = records.Result("", 8.5, 2, steps[:2], is_whole=False)
    assert cases.verdict("hbal", ours, theirs) == "first 2 moves the same"
    other = dataclasses.replace(theirs, steps=(steps[0], "other"), score=8.0)
    assert cases.verdict("hbal", ours, other) == "first 2 moves WORSE"
    other = dataclasses.replace(theirs, steps=(steps[0], "other"), score=8.6)
    assert cases.verdict("hbal", ours, other) == "first 2 moves better"


def test_figures_are_kept_between_runs(beside, tmp_path) -> None:
    records = beside[1]
    rows = [row(beside, (1.0, ("ab",)), (1.0, ("ab",)))]
    rows.append(dataclasses.replace(rows[0], theirs=None, why_not="not installed"))
    records.save(rows, tmp_path / "deep" / "figures")
    assert records.read(tmp_path / "deep" / "figures") == rows
    assert records.read(tmp_path / "nothing") == []
