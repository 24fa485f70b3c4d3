"""House rules that no linter has: sizes, parameters, words that have no place."""

import ast
import pathlib
import re
import subprocess

TOP = pathlib.Path(__file__).parents[3]
MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS, MAX_NESTING = 800, 60, 7, 4
#: Documented methods of Ganeti's client, whose arguments scripts give.
DOCUMENTED = ("lib/protocols/rapi/",)
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


def sources():
    for path in sorted((TOP / "lib").rglob("*.py")):
        name = str(path.relative_to(TOP))
        if path.name != "_buildconf.py":
            yield name, path.read_text()


def functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


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


def test_no_file_is_longer_than_anybody_reads():
    long = [n for n, t in sources() if t.count("\n") > MAX_FILE]
    assert not long


def test_functions_are_short_flat_and_take_few_parameters():
    actual = []
    for name, text in sources():
        for node in functions(text):
            where = f"{name}:{node.lineno} {node.name}"
            positional = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
            if body_lines(node) > MAX_FUNCTION:
                actual.append(f"{where}: {body_lines(node)} lines")
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
