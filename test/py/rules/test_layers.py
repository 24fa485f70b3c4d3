"""Import contracts are checked without import-linter too, and every one is checked."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).parents[3]
PROGRAM = TOP / "autotools/check-layers"
HEAD = "[importlinter]\nroot_package = ganeti\ninclude_external_packages = True\n"
LAYERS = HEAD + (
    "[importlinter:contract:one]\nname = Order\ntype = layers\ncontainers = ganeti\n"
    "exhaustive = True\nlayers =\n    (later)\n    high\n    left | right\n    low\n"
)
FORBIDDEN = HEAD + (
    "[importlinter:contract:one]\nname = Purity\ntype = forbidden\n"
    "source_modules =\n    ganeti.low\n    ganeti.high\n"
    "forbidden_modules =\n    os\n    ganeti.right\n"
)
DIRECT = FORBIDDEN + "allow_indirect_imports = True\n"
INDEPENDENT = HEAD + (
    "[importlinter:contract:one]\nname = Apart\ntype = independence\n"
    "modules =\n    ganeti.left\n    ganeti.right\n"
)


def run(top):
    return subprocess.run(
        [sys.executable, PROGRAM, top], capture_output=True, text=True, check=False
    )


def tree(top, contracts, **modules):
    """Make a tree of small modules; the names are ``high``, ``left_inner`` and so on."""
    files = {"high": "", "left": "", "left_inner": "", "right": "", "low": ""} | modules
    for name, text in files.items():
        package, _, inner = name.partition("_")
        folder = top / "lib" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{inner or '__init__'}.py").write_text(text)
    (top / "lib/__init__.py").write_text("")
    (top / ".importlinter").write_text(contracts)
    return top


def test_this_tree_keeps_its_contracts():
    result = run(TOP)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


ALLOWED = {
    "down": (LAYERS, {"high": "from ganeti import low", "left": "import ganeti.low"}),
    "own": (LAYERS, {"left": "from ganeti.left import inner"}),
    "other": (FORBIDDEN, {"left": "import os", "low": "import sys"}),
    "indirect": (DIRECT, {"low": "import ganeti.left", "left": "import os"}),
    "apart": (INDEPENDENT, {"left": "import ganeti.low", "right": "import ganeti.low"}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_contract_allows_passes(tmp_path, name):
    contracts, modules = ALLOWED[name]
    result = run(tree(tmp_path, contracts, **modules))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


BROKEN = {
    "up": (LAYERS, {"low": "import ganeti.high"}, "low/__init__.py:1:"),
    "sideways": (LAYERS, {"left_inner": "from ganeti import right"}, "left.inner may"),
    "late": (LAYERS, {"low": "def f():\n    import ganeti.high"}, "__init__.py:2:"),
    "relative": (LAYERS, {"left_inner": "from ..high import x"}, "ganeti.high"),
    "without a layer": (LAYERS, {"stray": ""}, "ganeti.stray: is in no layer"),
    "for types": (
        LAYERS,
        {"low": "import typing\nif typing.TYPE_CHECKING:\n    import ganeti.right"},
        "__init__.py:3: ganeti.low may not import ganeti.right (Order)",
    ),
    "around": (
        LAYERS.replace("exhaustive = True\n", ""),
        {"low": "import ganeti.stray", "stray": "import ganeti.high"},
        "ganeti.low may not import ganeti.stray -> ganeti.high",
    ),
    "missing": (LAYERS.replace("low", "lowest"), {}, "lowest: no such module"),
    "effect": (FORBIDDEN, {"low": "import os.path"}, "low may not import os (Purity)"),
    "direct": (DIRECT, {"low_inner": "from ganeti import right"}, "low.inner may not"),
    "indirect": (
        FORBIDDEN,
        {"low": "import ganeti.left", "left": "import os"},
        "ganeti.low may not import ganeti.left -> os (Purity)",
    ),
    "no source": (
        FORBIDDEN.replace("ganeti.low", "ganeti.lo"),
        {},
        "ganeti.lo: no such module",
    ),
    "dependent": (
        INDEPENDENT,
        {"right": "import ganeti.left"},
        "ganeti.right may not import ganeti.left (Apart)",
    ),
    "dependent around": (
        INDEPENDENT,
        {"left_inner": "import ganeti.low", "low": "import ganeti.right"},
        "ganeti.left.inner may not import ganeti.low -> ganeti.right (Apart)",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_contract_is_found(tmp_path, name):
    contracts, modules, text = BROKEN[name]
    result = run(tree(tmp_path, contracts, **modules))
    assert result.returncode == 1, result.stderr
    assert text in result.stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type = forbidden", "type = acyclic_siblings"),
        ("type = forbidden", "type = forbidden\nignore_imports =\n    a -> b"),
        ("    ganeti.low\n", "    ganeti.*\n"),
    ],
)
def test_nothing_in_the_file_is_passed_over(tmp_path, old, new):
    result = run(tree(tmp_path, FORBIDDEN.replace(old, new)))
    assert result.returncode == 2
    assert "not supported" in result.stderr


def circles(top):
    """Return module -> chain of imports that leads back to it."""
    loader = importlib.machinery.SourceFileLoader("check_layers", str(PROGRAM))
    spec = importlib.util.spec_from_loader("check_layers", loader)
    program = importlib.util.module_from_spec(spec)
    loader.exec_module(program)
    graph = program.Graph(top, "ganeti")
    modules = set(graph.modules)
    return {
        name: chain for name in modules if (chain := graph.chain(name, {name}, modules))
    }


def test_no_module_imports_itself_by_way_of_others():
    assert circles(TOP) == {}


def test_a_circle_is_found(tmp_path):
    late = "def f():\n    import ganeti.right"
    tree(
        tmp_path, LAYERS, left=late, right="import ganeti.low", low="import ganeti.left"
    )
    assert circles(tmp_path)["ganeti.left"] == [
        "ganeti.left",
        "ganeti.right",
        "ganeti.low",
        "ganeti.left",
    ]
