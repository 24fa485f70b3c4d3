"""Command lines of the tools: the values that each gets from its options.

The transcripts are in test/data/tools; a run prints the parsed values, or the error.
"""

import contextlib
import io
import pathlib
import shlex

import pytest

from fakes import golden
from ganeti.tools import common, confd_client, mon_collector
from ganeti.tools.transfer import import_export

FOLDER = pathlib.Path(__file__).parents[3] / "data" / "tools"
RUNS = [
    (path, words)
    for path in sorted(FOLDER.glob("*.txt"))
    for words, _ in golden.runs(path)
]
PARSERS = {
    "import-export": import_export.build_parser,
    "confd-client": confd_client.build_parser,
    "mon-collector": mon_collector.build_parser,
    "node-cleanup": lambda: common.parser("node-cleanup", ""),
}


def run(words):
    """Print the values of a command line."""
    name, *rest = shlex.split(" ".join(words))
    problem = io.StringIO()
    try:
        with contextlib.redirect_stderr(problem):
            options = PARSERS[name]().parse_args(rest)
    except SystemExit as end:
        # The rest depends on the version of Python.
        last = problem.getvalue().rpartition(": error: ")[2]
        print(last.partition(" (choose")[0].strip())
        return end.code
    for key, value in sorted(vars(options).items()):
        print(f"{key} = {value!r}")
    return 0


@pytest.mark.parametrize(
    ("path", "words"), RUNS, ids=[f"{path.stem}: {words}"[:70] for path, words in RUNS]
)
def test_options_have_the_values_of_the_transcript(path, words):
    golden.check(path, words, run)
