"""ganeti-cleaner: old files go, all others stay."""

import os
import pathlib
import sys

import pytest

from ganeti.base import pathutils
from ganeti.base.filesystem import pidfile
from ganeti.base.tls import x509
from ganeti.tools import cleaner, common

UUID = "5e1c0b9a-0000-4000-8000-000000000001"
NOW = 1_800_000_000.0
DAY = 86400


@pytest.fixture
def paths(tmp_path, monkeypatch):
    made = pathutils.Paths(root=str(tmp_path), hostname=tmp_path.name)
    for directory in (made.data_dir, f"{made.run_dir}/crypto", made.log_dir):
        os.makedirs(directory)
    pathlib.Path(made.data("ssconf_master_node")).write_text("n1\n")
    monkeypatch.setattr(common, "own_paths", lambda: made)
    return made


def certificate(paths, name, validity_s):
    directory = pathlib.Path(paths.run_dir, "crypto", name)
    directory.mkdir()
    pair = x509.create_self_signed("n1", validity_s=validity_s, serial=1)
    (directory / "key").write_bytes(pair.key_pem)
    (directory / "cert").write_bytes(pair.certificate_pem)


def test_expired_certificates_go_and_others_stay(paths, caplog):
    certificate(paths, "x509-1-old", -60)
    certificate(paths, "x509-2-new", 60)
    crypto = pathlib.Path(paths.run_dir, "crypto")
    (crypto / "x509-3-empty").mkdir()
    cleaner.clean_node(paths, NOW)
    assert sorted(os.listdir(crypto)) == ["x509-2-new", "x509-3-empty"]
    assert "x509-3-empty: left alone" in caplog.text


def test_files_of_transfers_go_a_day_after_the_end(paths):
    top = pathlib.Path(paths.run_dir, "import-export")
    for name, age_s in (("old", DAY + 1), ("new", DAY - 1), ("running", DAY + 1)):
        (top / name).mkdir(parents=True)
        (top / name / "status").touch()
        os.utime(top / name, (NOW - age_s, NOW - age_s))
    with pidfile.PidFile(str(top / "running" / "pid")):
        os.utime(top / "running", (NOW - DAY - 1, NOW - DAY - 1))
        cleaner.clean_node(paths, NOW)
    assert sorted(os.listdir(top)) == ["new", "running"]


def test_old_files_of_the_watcher_go_and_no_others(paths):
    def note(name, age_s):
        path = paths.data(name)
        pathlib.Path(path).touch()
        os.utime(path, (NOW - age_s, NOW - age_s))
        return name

    kept = [
        note(f"watcher.{UUID}.data", 20 * DAY),
        note("watcher.pause", 30 * DAY),
        note("store.db", 30 * DAY),
        note(f"watcher.{UUID}.data.mine", 30 * DAY),
        "ssconf_master_node",
    ]
    note(f"watcher.{UUID}.instance-status", 22 * DAY)
    note(f"watcher.{UUID[:-1]}2.data", 22 * DAY)
    cleaner.clean_node(paths, NOW)
    assert sorted(os.listdir(paths.data_dir)) == sorted(kept)


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", [cleaner.NAME, *words])
    return cleaner.main()


@pytest.mark.parametrize(
    ("what", "directory"), [("node", "cleaner"), ("master", "master-cleaner")]
)
def test_each_run_has_a_log_and_fifty_are_kept(
    paths, monkeypatch, capsys, what, directory
):
    place = pathlib.Path(paths.log_dir, directory)
    place.mkdir()
    for number in range(60):
        (place / f"cleaner-{number}.log").touch()
        os.utime(place / f"cleaner-{number}.log", (number, number))
    certificate(paths, "x509-1-old", -60)
    assert run(monkeypatch, what) == 0
    names = os.listdir(place)
    assert len(names) == cleaner.LOGS
    assert "cleaner-11.log" in names
    assert "cleaner-10.log" not in names
    (new,) = {name for name in names if f".{os.getpid()}." in name}
    text = (place / new).read_text()
    assert ("its certificate has expired" in text) == (what == "node")
    assert ("deletes archived jobs by itself" in text) == (what == "master")
    assert capsys.readouterr() == ("", "")


def test_outside_of_a_cluster_nothing_happens(paths, monkeypatch):
    os.unlink(paths.data("ssconf_master_node"))
    certificate(paths, "x509-1-old", -60)
    assert run(monkeypatch, "node") == 0
    assert os.listdir(paths.log_dir) == []
    assert os.listdir(f"{paths.run_dir}/crypto") == ["x509-1-old"]


@pytest.mark.parametrize("words", [(), ("nodes",), ("node", "more")])
def test_wrong_words_print_the_usage(paths, monkeypatch, capsys, words):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, *words)
    assert end.value.code == 1
    assert "Usage: ganeti-cleaner" in capsys.readouterr().err


def test_disks_of_helper_machines_go_a_day_after_their_use(paths):
    top, marks = paths.data("helper-disks"), f"{paths.run_dir}/helper-machines"
    os.makedirs(top)
    os.makedirs(marks)
    pathlib.Path(marks, "running").touch()
    for name, age_s in (
        ("old.raw", DAY + 1),
        ("cut.raw.new", DAY + 1),
        ("new.raw", DAY - 1),
        ("running.raw", DAY + 1),
        ("old.result", DAY + 1),
        ("running.result", DAY + 1),
    ):
        pathlib.Path(top, name).touch()
        os.utime(f"{top}/{name}", (NOW - age_s, NOW - age_s))
    archives = f"{paths.run_dir}/os-export"
    os.makedirs(archives)
    # A mark may be left of a machine that nobody could end; an archive has secrets.
    for name, age_s in (("new.tar", DAY - 1), ("running.tar", DAY + 1)):
        pathlib.Path(archives, name).touch()
        os.utime(f"{archives}/{name}", (NOW - age_s, NOW - age_s))
    cleaner.clean_node(paths, NOW)
    assert sorted(os.listdir(top)) == ["new.raw", "running.raw", "running.result"]
    assert os.listdir(archives) == ["new.tar"]
