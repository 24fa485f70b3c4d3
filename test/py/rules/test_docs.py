"""The documents against the tree: modules and paths that they name."""

import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[3]
LIB = TOP / "lib"
#: Made by the build, not kept in the tree.
MADE = {"lib/_buildconf.py"}


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
