"""Golden runs of commands: ``$ words`` and what they print, one after another.

``RECORD_TRANSCRIPTS=1`` writes what the code prints now.
"""

import contextlib
import io
import os
import pathlib
import re
from collections.abc import Callable, Iterator

Run = Callable[[list[str]], int]


def runs(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Give the words of each run in a file, and what it prints."""
    for part in re.split(r"^\$ ", path.read_text(), flags=re.MULTILINE)[1:]:
        words, _, output = part.partition("\n")
        yield words, output


def printed(run: Run, words: list[str]) -> str:
    """Return what a run prints on both streams, and its exit status if not 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = run(words)
    reported = f"exit status {status}\n" if status else ""
    return out.getvalue() + reported


def check(path: pathlib.Path, words: str, run: Run) -> None:
    """Run one entry and compare, or record it."""
    actual = printed(run, words.split())
    known = dict(runs(path))
    if os.environ.get("RECORD_TRANSCRIPTS"):
        known[words] = actual
        text = "".join(f"$ {each}\n{output}" for each, output in known.items())
        path.write_text(text)
    assert actual == known[words]
