"""The documents against the tree: layers, modules and paths that they name."""

import configparser
import itertools
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[3]
LIB = TOP / "lib"
#: Made by the build, not kept in the tree.
MADE = {"lib/_buildconf.py"}


def _layers():
    parser = configparser.ConfigParser()
    parser.read(TOP / ".importlinter")
    rows = parser["importlinter:contract:layers"]["layers"].strip().splitlines()
    return [re.findall(r"\w+", row) for row in rows]


def _offered():
    return {
        path.stem
        for path in LIB.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists())
        or (path.suffix == ".py" and not path.name.startswith("_"))
    }


def _table():
    text = (TOP / "doc" / "architecture.rst").read_text()
    table = text.split("\n========== =")[1]
    return [
        re.findall(r"``(\w+)``", line) for line in table.splitlines() if "``" in line
    ]


def test_the_table_of_layers_has_every_module_in_the_order_that_is_checked():
    rank = {name: rank for rank, row in enumerate(_layers()) for name in row}
    table = _table()
    assert sorted(name for row in table for name in row) == sorted(_offered())
    for upper, lower in itertools.pairwise(table):
        assert max(rank[name] for name in upper) < min(rank[name] for name in lower)


@pytest.mark.parametrize(
    "page", sorted((TOP / "doc").rglob("*.rst")), ids=lambda p: p.stem
)
def test_modules_and_paths_that_a_page_names_exist(page):
    text = page.read_text()
    wrong = []
    for name in re.findall(r"``ganeti\.([a-z0-9_.]+)``", text):
        place = LIB / name.replace(".", "/")
        attribute = (LIB / name.rpartition(".")[0].replace(".", "/")).with_suffix(".py")
        if not (
            place.exists() or place.with_suffix(".py").exists() or attribute.exists()
        ):
            wrong.append(f"ganeti.{name}")
    paths = r"``((?:lib|test|tools|autotools|man|doc|daemons)/[\w./-]+)``"
    named = set(re.findall(paths, text)) - MADE
    wrong += [path for path in named if not (TOP / path).exists()]
    assert not wrong
