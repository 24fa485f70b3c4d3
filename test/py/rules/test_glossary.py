"""The retired words of doc/glossary.rst stay retired: in names, prose and commits."""

import ast
import functools
import io
import pathlib
import re
import subprocess
import tokenize

import pytest

TOP = pathlib.Path(__file__).parents[3]
GLOSSARY = TOP / "doc" / "glossary.rst"
#: Texts that others fixed: documented outputs, wire values and quotations.
QUOTED = pathlib.Path(__file__).with_name("quoted_texts.txt")
THIS = pathlib.Path(__file__).name
#: Python without the suffix .py.
SCRIPTS = ("autotools", "tools", "daemons")
ROW = re.compile(r"^   \* - (?P<word>.*)\n     - (?P<where>.*)\n     - ", re.MULTILINE)


def retired():
    """Return word -> places where it is refused, from the glossary's table."""
    rows = {}
    for match in ROW.finditer(GLOSSARY.read_text()):
        if match["word"] != "Word":
            for word in match["word"].split(", "):
                rows[word] = set(match["where"].split(", "))
    return rows


RETIRED = retired()


def alternatives(place):
    return "|".join(sorted(w for w, where in RETIRED.items() if place in where))


PROSE = re.compile(rf"\b({alternatives('prose')})\b", re.IGNORECASE)
START = re.compile(rf"^(?:{alternatives('start')})\b[^?]*$", re.IGNORECASE)
NAME_PARTS = {w for w, where in RETIRED.items() if "names" in where}
WHOLE_NAMES = {w for w, where in RETIRED.items() if "whole names" in where}


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "--", *patterns],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    return [TOP / name for name in listed.stdout.split() if (TOP / name).is_file()]


def python_sources(*places):
    for path in tracked(*(places or ("lib", *SCRIPTS))):
        text = path.read_text(errors="replace")
        if path.suffix == ".py" or re.match(r"#!.*python", text):
            yield path.relative_to(TOP), text


def parts(name):
    """Split an identifier: ``new_Chord`` and ``NewChord`` give new and chord."""
    return re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name)


def names(tree):
    """Yield (line, name) of everything that the module itself names."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def refused_name(name):
    lowered = {part.lower() for part in parts(name)}
    return lowered & NAME_PARTS or name.lower().strip("_") in WHOLE_NAMES


def strings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def comments(source):
    """Yield (line, text) of comments, if a line has a refused word after a ``#``."""
    lines = (line.partition("#")[2].lstrip("#: ") for line in source.splitlines())
    if any(START.match(line) or PROSE.search(line) for line in lines):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("#: ")


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@functools.cache
def quoted():
    lines = QUOTED.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def refused_prose(text):
    if not PROSE.search(text):
        return None
    for quotation in quoted():
        text = text.replace(quotation, "")
    return PROSE.search(text)


def test_the_glossary_has_a_table_of_retired_words():
    assert {"chord", "doors", "told"} <= NAME_PARTS
    assert {"found"} <= WHOLE_NAMES
    assert refused_name("new_chord")
    assert refused_name("NewChord")
    assert refused_name("test_mistakes_are_told")
    assert not refused_name("not_found")
    assert refused_prose("It tells whether")
    assert START.match("What a node reports.")
    assert not START.match("What is missing?")


def refused_in(path, source, tree):
    """Yield (line, text) of names, docstrings, messages and comments that are refused."""
    yield from ((line, name) for line, name in names(tree) if refused_name(name))
    docs = list(docstrings(tree))
    yield from ((n, text) for n, text in docs if START.match(text.partition("\n")[0]))
    remarks, prose = list(comments(source)), refused_prose
    yield from ((line, text) for line, text in remarks if START.match(text))
    if path.parts[0] == "test":
        # Messages of tests may quote; this file has the words as samples.
        prose, texts = PROSE.search, [*docs, *remarks] * (path.name != THIS)
    else:
        texts = [*strings(tree), *remarks]
    yield from ((line, text) for line, text in texts if prose(text))


@pytest.mark.parametrize("places", [("lib", *SCRIPTS), ("test",)], ids=["lib", "test"])
def test_no_source_uses_a_retired_word(places):
    refused = []
    for path, source in python_sources(*places):
        if any(refused_name(part) for part in path.with_suffix("").parts):
            refused.append(f"{path}: module name")
        for line, text in refused_in(path, source, ast.parse(source)):
            refused.append(f"{path}:{line}: {text[:60]!r}")
    assert not refused, "\n".join(refused)


def test_each_kind_of_text_is_searched():
    source = (
        '"""What is told."""\nimport sys\ndef new_chord():  # It tells whether\n'
        '    """Return it."""\n    #: What it is.\n    print("a new chord, anew")\n'
    )
    refused = [
        list(refused_in(pathlib.Path(p, "x.py"), source, ast.parse(source)))
        for p in ("lib", "test")
    ]
    lines = [sorted({line for line, _ in each}) for each in refused]
    assert lines == [[1, 3, 5, 6], [1, 3, 5]]


@pytest.mark.parametrize(
    "path",
    tracked("doc/*.rst", "man/*.rst", "README", "CONTRIBUTING"),
    ids=lambda path: str(path.relative_to(TOP)),
)
def test_no_document_uses_a_retired_word(path):
    if path == GLOSSARY:
        return
    refused = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        under = lines[number] if number < len(lines) else ""
        is_heading = bool(re.fullmatch(r"([=\-~^])\1{2,}", under))
        match = refused_prose(line) or (is_heading and START.match(line))
        if match:
            refused.append(f"{path.name}:{number}: {match.group()!r} in {line!r}")
    assert not refused, "\n".join(refused)


def test_no_commit_subject_since_the_glossary_uses_a_retired_word():
    added = subprocess.run(
        ["git", "log", "--format=%H", "--diff-filter=A", "--", "doc/glossary.rst"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if not added:
        return  # An exported tree, or a shallow clone: there is no history to check.
    subjects = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", f"{added[-1]}..HEAD"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert not [subject for subject in subjects if PROSE.search(subject)]
