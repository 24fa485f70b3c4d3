"""Comparison of the placement programs with other ones on random small clusters.

Prints each difference with its seed, and the number of differences of each kind.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import tempfile

from fakes import comparison, made_cases, placement_programs, wide_cases

#: Differences that are only counted.
QUIET = (comparison.SAME, comparison.SLOW)


def keep(
    place: pathlib.Path,
    case: made_cases.Case,
    outputs: dict[str, comparison.Output],
) -> None:
    """Save a case with both outputs."""
    target = place / f"{case.tool}-{case.seed}"
    target.mkdir(parents=True, exist_ok=True)
    for name, text in case.files.items():
        (target / name).write_text(text)
    (target / "command").write_text(f"{case.tool} {shlex.join(case.words)}\n")
    for name, output in outputs.items():
        (target / f"{name}.out").write_text(output.out)
        (target / f"{name}.err").write_text(output.err)


def compare(
    case: made_cases.Case, limit_s: int
) -> tuple[dict[str, comparison.Output], tuple[str, str]]:
    """Run one case twice and compare."""
    tool, outputs = case.tool, {}
    programs = {
        "theirs": placement_programs.theirs(tool),
        "ours": placement_programs.ours(tool),
    }
    for name, program in programs.items():
        with tempfile.TemporaryDirectory() as directory:
            outputs[name] = comparison.run(
                program or "", case, pathlib.Path(directory), limit_s
            )
        if outputs[name].code is None:
            break
    ours = outputs.get("ours", comparison.Output(0, "", ""))
    return outputs, comparison.difference(case, ours, outputs["theirs"])


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(
        prog="test/bench/run placement_diff",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=100, help="cases per tool")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--tools", default=",".join(made_cases.TOOLS))
    parser.add_argument("--limit", type=int, default=10, help="CPU seconds per run")
    parser.add_argument(
        "--keep",
        type=pathlib.Path,
        metavar="DIRECTORY",
        help="save the files and both outputs of real differences",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="unusual clusters, sources and malformed input",
    )
    parser.add_argument("--json", type=pathlib.Path, help="write the counts")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.tools.split(",")) - set(made_cases.TOOLS))
    if unknown:
        known = ",".join(made_cases.TOOLS)
        parser.error(f"--tools: {', '.join(unknown)}: known are {known}")
    os.environ["LC_ALL"] = "C.UTF-8"
    counts: dict[str, dict[str, int]] = {}
    for tool in chosen.tools.split(","):
        ours, theirs = placement_programs.ours(tool), placement_programs.theirs(tool)
        if not ours or not theirs:
            missing = "not built here" if not ours else "the other one is not installed"
            print(f"{tool}: skipped, {missing}")
            continue
        actual: collections.Counter[str] = collections.Counter()
        for seed in range(chosen.first, chosen.first + chosen.count):
            case = (wide_cases if chosen.wide else made_cases).case(tool, seed)
            outputs, (kind, reported) = compare(case, chosen.limit)
            actual[kind] += 1
            if kind not in QUIET:
                line = f"{tool} {seed} {kind}: {shlex.join(case.words)}: {reported}"
                print(line[:400], flush=True)
            if kind == comparison.REAL and chosen.keep:
                keep(chosen.keep, case, outputs)
        counts[tool] = dict(actual)
        print(f"{tool}: {dict(actual)}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
