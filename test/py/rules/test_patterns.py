r"""Patterns check whole texts: ``$`` also matches before a final newline.

``re.match("^[a-z]+$", "good\n")`` succeeds, and the second line of an accepted name
went into files and command lines. `fullmatch` does not have this trap.
"""

import ast
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]
#: Functions of `re`, and keywords, whose pattern must not end with ``$``.
SEARCHING = {"search"}


def sources():
    listed = subprocess.run(
        ["git", "ls-files", "--", "lib", "autotools", "tools", "daemons"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split():
        path = TOP / name
        text = path.read_text(errors="replace") if path.is_file() else ""
        if path.suffix == ".py" or text.startswith("#!/usr/bin/env python"):
            yield name, text


def is_pattern_to_end(node):
    value = getattr(node, "value", None)
    return isinstance(value, str) and value.endswith("$") and not value.endswith("\\$")


def is_match(node):
    return isinstance(node, ast.Attribute) and node.attr == "match"


def is_scan(call):
    """Return whether a match begins at a position: scanners read token by token."""
    return len(call.args) == 2 and getattr(call.func.value, "id", "") != "re"


def faults(text):
    """Yield (line, fault) of one source."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        # Patterns are constants; fields of records may have that name too.
        is_passed = any(
            is_match(arg) and getattr(arg.value, "id", "").isupper()
            for arg in node.args
        )
        if is_passed or (is_match(node.func) and not is_scan(node)):
            yield node.lineno, "match"
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in SEARCHING and node.args and is_pattern_to_end(node.args[0]):
            yield node.lineno, "search to $"
        for keyword in node.keywords:
            if keyword.arg == "pattern" and is_pattern_to_end(keyword.value):
                yield node.lineno, "pattern to $"


def test_no_pattern_accepts_a_final_newline():
    actual = [
        f"{name}:{line}: {fault}"
        for name, text in sources()
        for line, fault in faults(text)
    ]
    assert actual == []


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.match('a', x)",
        "all(map(_LABEL.match, x))",
        "_LABEL.match(x)",
        "re.search('^a$', x)",
        "Meta(pattern=r'^a$')",
    ],
)
def test_the_rule_sees(text):
    assert list(faults(text))


@pytest.mark.parametrize(
    "text", ["_TOKEN.match(text, 5)", "_NAME.fullmatch(x)", "leaf.match == 'a'"]
)
def test_the_rule_allows(text):
    assert not list(faults(text))
