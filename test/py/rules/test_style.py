"""House rules that no linter has: sizes, parameters, words that have no place.

Lengths are alarms: half of the files and functions, and nine in ten, have to be short;
longer ones are listed at the end of a run, and fail it only where they grow.
"""

import ast
import functools
import pathlib
import re
import statistics
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]
MAX_PARAMETERS, MAX_NESTING = 7, 4
#: kind -> lines of half of them, of nine in ten, of each
LENGTHS = {"file": (200, 450, 800), "function": (8, 24, 60)}
#: Names the lengths of those that are longer.
BUDGET = TOP / "test" / "data" / "budget.txt"
#: Documented methods of Ganeti's client, whose arguments scripts give.
DOCUMENTED = ("lib/protocols/rapi/",)
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


@functools.cache
def sources():
    paths = sorted((TOP / "lib").rglob("*.py"))
    return [
        (str(path.relative_to(TOP)), path.read_text())
        for path in paths
        if path.name != "_buildconf.py"
    ]


@functools.cache
def functions(text):
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def body_lines(node):
    body = node.body
    if ast.get_docstring(node) and len(body) > 1:
        body = body[1:]
    return node.end_lineno - body[0].lineno + 1


def depth(node, level=0):
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        is_elif = (
            isinstance(node, ast.If)
            and isinstance(child, ast.If)
            and child in node.orelse
        )
        step = isinstance(child, BLOCKS) and not is_elif
        deepest = max(deepest, depth(child, level + step))
    return deepest


def is_procedure(node):
    """Return whether a function takes the documented arguments of a node call."""
    return any("procedure" in ast.unparse(item) for item in node.decorator_list)


def lengths(kind):
    """Return names and lines of all files or functions."""
    if kind == "file":
        return [(name, text.count("\n")) for name, text in sources()]
    return [
        (f"{name}:{node.name}", body_lines(node))
        for name, text in sources()
        for node in functions(text)
    ]


def too_long(sizes, limit, text):
    """Return what is over a limit, and of that what grew since it was recorded."""
    recorded = dict(re.findall(r"^(\S+\.py\S*) (\d+)$", text, re.MULTILINE))
    over = [f"{name} {lines}" for name, lines in sizes if lines > limit]
    grown = [f"{name} {n}" for name, n in sizes if n > int(recorded.get(name, limit))]
    return over, grown


@pytest.mark.parametrize("kind", LENGTHS)
def test_files_and_functions_are_short(kind, record_property):
    sizes = lengths(kind)
    half, nine_in_ten, each = LENGTHS[kind]
    lines = [count for _, count in sizes]
    assert statistics.median(lines) <= half
    assert statistics.quantiles(lines, n=10)[-1] <= nine_in_ten
    over, grown = too_long(sizes, each, BUDGET.read_text())
    if over:
        record_property("figures", f"over {each} lines: {', '.join(over)}")
    assert not grown, "\n".join(
        ["shorten it, or record it in test/data/budget.txt:", *grown]
    )


def test_what_is_long_may_not_grow():
    text = "lib 900 1  base\nlib/a.py 850\nlib/a.py:run 70\n"
    sizes = [("lib/a.py", 850), ("lib/b.py", 800), ("lib/c.py", 801)]
    assert too_long(sizes, 800, text) == (
        ["lib/a.py 850", "lib/c.py 801"],
        ["lib/c.py 801"],
    )
    assert too_long([("lib/a.py:run", 71)], 60, text)[1] == ["lib/a.py:run 71"]


def test_functions_are_flat_and_take_few_parameters():
    actual = []
    for name, text in sources():
        for node in functions(text):
            where = f"{name}:{node.lineno} {node.name}"
            positional = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
            count = len(positional) + len(node.args.kwonlyargs)
            documented = name.startswith(DOCUMENTED) and node.name[0].isupper()
            if count > MAX_PARAMETERS and not (is_procedure(node) or documented):
                actual.append(f"{where}: {count} parameters")
            if depth(node) > MAX_NESTING:
                actual.append(f"{where}: nested {depth(node)} deep")
    assert not actual, "\n".join(actual)


def test_nothing_speaks_of_one_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.split()
    pattern = re.compile(r"/wor[k]/|/tmp/bri[e]f|bash_jo[b]s|pypi\.or[g]|deb\.debia[n]")
    actual = []
    for name in listed:
        path = TOP / name
        if path.is_file() and not name.startswith("test/data/"):
            text = path.read_text(errors="replace")
            actual += [f"{name}: {m.group()}" for m in pattern.finditer(text)]
    assert not actual


def test_ports_are_not_given_back_before_they_are_used():
    """The kernel gives a port of its range to somebody else as soon as it is free."""
    actual = [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for path in sorted((TOP / "test").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.With)
        and isinstance(last := node.body[-1], ast.Assign | ast.Return)
        and ast.unparse(last.value or ast.Pass()).endswith(".getsockname()[1]")
        and path.name != "ports.py"
    ]
    assert not actual, f"use fakes.ports: {actual}"


def test_processes_may_end_while_they_are_read():
    """A file in /proc opened in time, read after the end of its process, gives ESRCH."""
    actual = [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for path in sorted(
            (*(TOP / "lib").rglob("*.py"), *(TOP / "test").rglob("*.py"))
        )
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Try)
        and any(
            isinstance(part, ast.JoinedStr)
            and isinstance(part.values[0], ast.Constant)
            and part.values[0].value.startswith("/proc/")
            for step in node.body
            for part in ast.walk(step)
        )
        and "FileNotFoundError"
        in (ast.unparse(handler.type or ast.Pass()) for handler in node.handlers)
    ]
    assert not actual, f"catch OSError, or ProcessLookupError too: {actual}"
