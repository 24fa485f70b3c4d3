"""The layers of the library: their contract holds, and their picture shows it."""

import graphlib
import pathlib
import runpy
import shutil
import subprocess
import sys

import grimp
import pytest

TOP = pathlib.Path(__file__).parents[3]
LINTER = pathlib.Path(sys.executable).with_name("lint-imports")


#: Module -> a statement that breaks a contract.
BROKEN = {
    "base/errors": "from ganeti import model",
    "commands/node/table": "from ganeti import devel",
    "devel/more": "from ganeti import migration",
    "automation/more": "import ganeti.daemons",
    "decisions/more": "import time",
    "operations/more": "from ganeti import node",
    "stray/__init__": "import os",
}


def test_each_broken_contract_is_found(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TOP / "lib", tmp_path / "ganeti", ignore=ignored)
    shutil.copy(TOP / ".importlinter", tmp_path)
    for name, line in BROKEN.items():
        path = tmp_path / f"ganeti/{name}.py"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as dst:
            dst.write(f"\n\ndef late():\n    {line}\n")
    words = [LINTER, "--no-cache"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    for name in BROKEN:
        assert (
            f"ganeti.{name.removesuffix('/__init__').replace('/', '.')}" in done.stdout
        )


def test_no_module_imports_itself_by_way_of_others():
    graph = grimp.build_graph("ganeti", cache_dir=None)
    imported = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    graphlib.TopologicalSorter(imported).prepare()


def test_the_picture_of_the_layers_is_current():
    actual = runpy.run_path(str(TOP / "autotools/make-street"))["picture"]()
    is_current = (TOP / "doc/street.svg").read_text() == actual
    assert is_current, "doc/street.svg: run autotools/make-street"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("locking", "SharedLock LockSet PipeCondition"),
        ("uidpool", "ParseUidPool ExpandUidPool RequestUnusedUid ReleaseUid"),
        ("uidpool", "ExecWithUnusedUid"),
        ("ssconf", "SimpleStore"),
        ("confd.client", "ConfdClient"),
        ("rapi.client", "GanetiRapiClient GanetiApiError CertificateError"),
        ("rapi.modern", "Cluster"),
    ],
)
def test_documented_names_are_imported(name, words):
    text = "\n".join(f"from ganeti.{name} import {word}" for word in words.split())
    library = str(TOP / "build/py")
    subprocess.run(
        [sys.executable, "-c", text], env={"PYTHONPATH": library}, check=True
    )
