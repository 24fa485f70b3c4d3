"""Logical units act through their context alone, or plans would not be harmless."""

import ast
import pathlib

import pytest

LIB = pathlib.Path(__file__).parents[3] / "lib"
#: Units that use these refuse to be planned, see `LogicalUnit.can_plan`.
EXCEPTIONS = {"operations/debug_units.py": {"mkdtemp", "shutil.rmtree", "socket"}}
EFFECTS = {
    *("backup_file", "mkdtemp", "open", "remove_file", "sleep", "write_bytes"),
    *("write_file", "write_text"),
}
#: Of these modules nothing but the named functions may be called.
WATCHED = {"os": {"access", "listdir", "stat"}, "shutil": set()}
MODULES = {
    "subprocess",
    "socket",
    "requests",
    "ganeti.base.process",
    "ganeti.protocols.http",
}
PACKAGES = ("operations", "master/iallocator")
UNITS = [
    "master/hooksmaster.py",
    *sorted(
        str(path.relative_to(LIB))
        for package in PACKAGES
        for path in (LIB / package).rglob("*.py")
    ),
]


def effects(text):
    """Return what a module calls or imports that reaches around the effect interfaces."""
    actual = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "attr", None) or getattr(called, "id", None)
            actual |= {name} & EFFECTS
            owner = getattr(getattr(called, "value", None), "id", None)
            if owner in WATCHED and name not in WATCHED[owner]:
                actual.add(f"{owner}.{name}")
        elif isinstance(node, ast.Import):
            actual |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            actual |= (names | {node.module}) & MODULES
    return actual


@pytest.mark.parametrize("name", UNITS)
def test_units_have_effects_through_their_context_alone(name):
    assert effects((LIB / name).read_text()) == EXCEPTIONS.get(name, set())


def test_all_packages_with_units_are_looked_at():
    assert [name for name in PACKAGES if not (LIB / name).is_dir()] == []


def test_effects_would_be_found():
    text = "import subprocess\nfrom ganeti.base import process\nopen('x')\nos.unlink('x')\n"
    assert effects(text) == {"subprocess", "ganeti.base.process", "open", "os.unlink"}
