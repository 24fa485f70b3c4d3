"""Which tests a run plays; pytest itself runs on files of a directory of its own."""

import pathlib
import subprocess
import sys

import pytest

from fakes import selection

CONFTEST = """
from fakes import selection

def pytest_addoption(parser):
    selection.add_options(parser)

def pytest_collection_modifyitems(config, items):
    selection.leave_out(config, items)

def pytest_terminal_summary(terminalreporter, config):
    selection.say_what_is_left_out(terminalreporter, config)
"""
FUNCTIONS = """
import pytest

def test_short():
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.parametrize("number", range(40))
@pytest.mark.sampled
def test_sampled(number):
    pass
"""
FILE = """
import pytest

pytestmark = pytest.mark.sampled

@pytest.mark.parametrize("number", range(40))
def test_of_a_sampled_file(number):
    pass
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Run pytest with options; return its output, and the number of runs of each test."""
    directory = tmp_path_factory.mktemp("tests")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_functions.py").write_text(FUNCTIONS)
    (directory / "test_file.py").write_text(FILE)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n long\n sampled\n")
    fakes = pathlib.Path(selection.__file__).parents[1]

    def run(*options):
        argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", *options]
        done = subprocess.run(
            argv, cwd=directory, capture_output=True, text=True, check=True,
            env={"PYTHONPATH": str(fakes), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        names = ("test_short", "test_long", "test_sampled", "test_of_a_sampled_file")
        return done.stdout, [done.stdout.count(f"::{name}") for name in names]

    return run


def test_by_itself_pytest_leaves_out_long_tests_only(played):
    output, counts = played()
    assert counts == [1, 0, 40, 40]
    assert "left out: those marked long; test/run STAGE --all" in output


def test_all_are_played_on_request(played):
    output, counts = played("--long")
    assert counts == [1, 1, 40, 40]
    assert "left out" not in output


def test_a_sample_is_of_tests_and_of_whole_files(played):
    output, (short, long, sampled, of_file) = played("--sample", "4")
    assert (short, long) == (1, 0)
    assert 0 < sampled < 25
    assert of_file in (0, 40)
    assert "all but one in 4 of those marked sampled" in output


def test_each_test_is_drawn_by_some_commit_and_repeatedly_by_one():
    names = [f"test/py/daemon/test_file.py::test_{n}" for n in range(50)]
    draws = [{n for n in names if selection.is_drawn(n, seed, 4)} for seed in range(60)]
    assert set.union(*draws) == set(names)
    assert len(names) / 6 < sum(map(len, draws)) / len(draws) < len(names) / 3
    assert draws[7] == {n for n in names if selection.is_drawn(n, 7, 4)}
