"""The pause file is honoured, and removed when it is of no use."""

import pytest

from ganeti.automation.watcher import main
from ganeti.base.pathutils import Paths

NOW = 1_700_000_000.0


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path), hostname=tmp_path.name)
    (tmp_path / made.data_dir[len(str(tmp_path)) + 1 :]).mkdir(parents=True)
    return made


def write(paths, text):
    with open(paths.data("watcher.pause"), "w", encoding="utf-8") as stream:
        stream.write(text)


def exists(paths):
    try:
        open(paths.data("watcher.pause")).close()
    except FileNotFoundError:
        return False
    return True


def test_without_a_file_there_is_no_pause(paths):
    assert main.pause_end(paths, NOW) is None


@pytest.mark.parametrize("text", [f"{NOW + 5:.0f}\n", f"{NOW + 5}"])
def test_a_time_in_the_future_is_a_pause(paths, text):
    write(paths, text)
    assert main.pause_end(paths, NOW) == NOW + 5
    assert exists(paths)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        (f"{NOW - 3599}", True),
        (f"{NOW - 3601}", False),
        ("soon", False),
        ("", False),
        ("nan", False),
        ("inf", False),
        ("\udcff", False),
        ("1" * 2000, False),
    ],
)
def test_anything_else_is_none_and_old_or_damaged_files_go(paths, text, stays):
    with open(paths.data("watcher.pause"), "wb") as stream:
        stream.write(text.encode(errors="surrogateescape"))
    assert main.pause_end(paths, NOW) is None
    assert exists(paths) == stays
