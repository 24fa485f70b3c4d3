"""The placement programs as users run them: output, exit codes, all back ends."""

import json
import pathlib
import subprocess
import sys

import pytest

import ganeti
from fakes import golden, master_answers
from ganeti.commands.htools import hbal, hcheck, hinfo, hscan, hspace, loading, rest
from ganeti.decisions.htools.model import text

DATA = pathlib.Path(__file__).parents[4] / "data" / "htools"
GOLDEN = DATA / "programs.txt"
PROGRAMS = {module.NAME: module for module in (hbal, hcheck, hinfo, hscan, hspace)}


def run(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", words)
    return PROGRAMS[words[0]].main()


@pytest.mark.parametrize("words", [words for words, _output in golden.runs(GOLDEN)])
def test_output(words, monkeypatch):
    monkeypatch.chdir(DATA)
    golden.check(GOLDEN, words, lambda actual: run(actual, monkeypatch))


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_is_a_process(program):
    done = subprocess.run(
        [sys.executable, "-m", f"ganeti.commands.htools.{program}", "--version"],
        env={"PYTHONPATH": str(pathlib.Path(ganeti.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{program} (ganeti) version ")


def test_rest_files_and_text_files_give_the_same(tmp_path, monkeypatch):
    cluster = text.load((DATA / "kite.data").read_text(), "kite")
    address = master_answers.write(cluster, tmp_path)
    out = [
        golden.printed(lambda w: run(w, monkeypatch), ["hbal", source, "-C", "-p"])
        for source in (f"-t{DATA / 'kite.data'}", f"-m{address}")
    ]
    assert out[0] == out[1]


def test_scanned_clusters_read_back_the_same(tmp_path, monkeypatch):
    cluster = text.load((DATA / "kite.data").read_text(), "kite")
    address = master_answers.write(cluster, tmp_path)
    (tmp_path / "out").mkdir()
    words = ["hscan", "-d", str(tmp_path / "out"), address, "file:///none"]
    shown = golden.printed(lambda w: run(w, monkeypatch), words)
    (saved,) = (tmp_path / "out").iterdir()
    assert saved.name == f"{address.replace('/', '_')}.data"
    assert text.load(saved.read_text(), "saved") == cluster
    assert shown.splitlines()[1].split()[1:] == (
        ["4", "6", "0", "0", "65536", "52224", "1600", "1350", "6.83249605"]
    )
    assert "Error for file:///none: failed to load data." in shown
    assert shown.endswith("exit status 2\n")


def test_no_password_is_in_the_names_of_saved_clusters(tmp_path, monkeypatch):
    cluster = text.load((DATA / "kite.data").read_text(), "kite")
    read, asked = rest.read, []
    kite = master_answers.write(cluster, tmp_path)

    def answer(master):
        asked.append(master)
        return read(kite if len(asked) == 1 else "file:///none")

    monkeypatch.setattr(rest, "read", answer)
    (tmp_path / "out").mkdir()
    names = [f"https://stats:hidden-4711@c{number}:5080" for number in (1, 2)]
    words = ["hscan", "-d", str(tmp_path / "out"), *names]
    shown = golden.printed(lambda w: run(w, monkeypatch), words)
    assert asked == names
    assert [item.name for item in (tmp_path / "out").iterdir()] == [
        "https:__c1:5080.data"
    ]
    assert shown.splitlines()[1].startswith("https://c1:5080 ")
    assert "Error for https://c2:5080: failed" in shown
    assert "hidden" not in shown


def test_an_unwritable_directory_fails_that_cluster(tmp_path, monkeypatch):
    cluster = text.load((DATA / "kite.data").read_text(), "kite")
    address = master_answers.write(cluster, tmp_path)
    words = ["hscan", "-d", str(tmp_path / "none"), address]
    shown = golden.printed(lambda w: run(w, monkeypatch), words)
    assert "none/file:" in shown
    assert shown.endswith("No such file or directory\nexit status 2\n")


@pytest.mark.parametrize(
    "damage",
    [
        {"nodes": 5},
        {"nodes": [5]},
        {"info": []},
        {"groups": [{}]},
        {"instances": [{"name": "x"}]},
        {"info": {}},
    ],
)
def test_damaged_answers_are_reported(damage, tmp_path, monkeypatch):
    cluster = text.load((DATA / "kite.data").read_text(), "kite")
    address = master_answers.write(cluster, tmp_path)
    for name, content in damage.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    shown = golden.printed(lambda w: run(w, monkeypatch), ["hinfo", "-m", address])
    assert shown.startswith("Error: failed to load data, aborting: ")
    assert str(tmp_path) in shown
    assert shown.endswith("exit status 1\n")


def test_a_closed_pipe_ends_a_program_quietly(capfd):
    def work(_parsed):
        raise BrokenPipeError

    assert loading.main("hbal", work, []) == 1
    assert capfd.readouterr() == ("", "")


def with_empty_group(tmp_path):
    """Write the cluster with a group without nodes in front; return the path."""
    data = (DATA / "kite.data").read_text()
    line = "spare|aaaaaaaa-0000-4000-8000-00000000000f|preferred||\n"
    path = tmp_path / "spare.data"
    path.write_text(line + data)
    return path


@pytest.mark.parametrize("words", [["hbal", "-C"], ["hcheck", "--machine-readable"]])
def test_a_group_without_nodes_changes_nothing(words, tmp_path, monkeypatch):
    program, *options = words
    out = [
        golden.printed(lambda w: run(w, monkeypatch), [program, f"-t{path}", *options])
        for path in (DATA / "kite.data", with_empty_group(tmp_path))
    ]
    assert out[0] == out[1]


def test_a_group_without_nodes_is_an_empty_cluster(tmp_path, monkeypatch):
    path, saved = with_empty_group(tmp_path), tmp_path / "saved"
    words = ["hbal", f"-t{path}", "-G", "spare"]
    out = golden.printed(lambda w: run(w, monkeypatch), words)
    assert "Cluster is empty, exiting.\n" in str(out)
    golden.printed(
        lambda w: run(w, monkeypatch), ["hbal", f"-t{path}", "-S", str(saved)]
    )
    assert "spare|aaaaaaaa-" in (tmp_path / "saved.original").read_text()
    empty = tmp_path / "empty.data"
    empty.write_text("spare|aaaaaaaa-0000-4000-8000-00000000000f|preferred||\n\n\n\n")
    out = golden.printed(lambda w: run(w, monkeypatch), ["hspace", f"-t{empty}"])
    assert "Cluster is empty, exiting.\n" in str(out)
