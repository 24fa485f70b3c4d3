"""Asking a wrapper for help installs and sets up nothing."""

import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[3]
#: Programs that a set-up would run; the stand-ins leave a trace and fail.
INSTALLERS = ("apt-get", "pip", "python3")

HELP = [
    (["tools/quickstart", "--help"], "virtual cluster of three nodes"),
    (["tools/quickstart", "-h"], "virtual cluster of three nodes"),
    (["tools/vcluster", "--help"], "partition LIST LIST, heal"),
    (["tools/vcluster", "up", "--help"], "--isolated"),
    (["tools/vcluster"], "SYNOPSIS"),
    (["tools/lab", "--help"], "power MACHINE on|off|cycle"),
    (["tools/lab", "up", "--help"], "power MACHINE on|off|cycle"),
    (["test/run", "--help"], "test/run [--all] [STAGE...]"),
    (["test/run", "unit", "--help"], "test/run [--all] [STAGE...]"),
    (["test/run", "mutants", "--help"], "[--sample N] [--seed S]"),
    (["test/bench/run", "--help"], "usage: test/bench/run"),
    (["test/bench/run", "store", "--help"], "commit"),
    (["autotools/setup-env", "--help"], "--no-packages"),
]


@pytest.fixture
def fresh_tree(tmp_path):
    """A tree as it is cloned: no virtual environment, nothing built."""
    tree = tmp_path / "tree"
    for name in ("tools", "autotools", "man"):
        shutil.copytree(TOP / name, tree / name)
    shutil.copytree(TOP / "test" / "bench", tree / "test" / "bench")
    shutil.copy2(TOP / "test" / "run", tree / "test" / "run")
    return tree


@pytest.fixture
def search_path(tmp_path):
    """A PATH whose installers fail, and the file that lists their calls."""
    folder, trace = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    for name in INSTALLERS:
        script = folder / name
        script.write_text(f'#!/bin/sh\necho {name} "$@" >> {trace}\nexit 1\n')
        script.chmod(0o755)
    return f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin", trace


def files_below(tree):
    return sorted(path.relative_to(tree) for path in tree.rglob("*"))


@pytest.mark.parametrize(("words", "text"), HELP, ids=str)
def test_help_is_printed_and_nothing_is_set_up(fresh_tree, search_path, words, text):
    path, trace = search_path
    before = files_below(fresh_tree)
    done = subprocess.run(
        [fresh_tree / words[0], *words[1:]],
        env={"PATH": path, "HOME": str(fresh_tree)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert text in done.stdout
    assert files_below(fresh_tree) == before
    assert not trace.exists(), trace.read_text()


def test_an_unknown_argument_of_quickstart_sets_nothing_up(fresh_tree, search_path):
    before = files_below(fresh_tree)
    done = subprocess.run(
        [fresh_tree / "tools" / "quickstart", "--fast"],
        env={"PATH": search_path[0], "HOME": str(fresh_tree)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown argument --fast" in done.stderr
    assert files_below(fresh_tree) == before
