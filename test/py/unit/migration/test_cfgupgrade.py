"""Moving a cluster here and back."""

import io
import json
import os
import pathlib
import sys

import pytest

from fakes import cluster, ganeti2
from ganeti import store
from ganeti.base import clock, errors
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.migration import cfgupgrade
from ganeti.protocols import ssconf
from ganeti.store import choice
from ganeti.store.etcd import parse

NOBODY = "00000000-dead-4ead-8ead-000000000000"


@pytest.fixture
def paths(tmp_path, monkeypatch):
    root = tmp_path / "node1"
    for name in ("var/lib/ganeti/queue", "var/run/ganeti"):
        (root / name).mkdir(parents=True)
    actual = Paths(root=str(root), hostname="node1")
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1")
    ssconf.write(actual, {"master_node": "node1"})
    return actual


@pytest.fixture
def config_data(paths):
    data = cluster.example_data()
    data["version"] = 3000000
    with open(paths.data("config.data"), "w") as stream:
        json.dump(data, stream)
    with open(paths.data("queue/serial"), "w") as stream:
        stream.write("812\n")
    return data


def run(monkeypatch, *argv):
    monkeypatch.setattr(sys, "argv", ["cfgupgrade", *argv])
    return cfgupgrade.main()


def read(path):
    with open(path) as stream:
        return json.load(stream)


def test_a_cluster_moves_here_and_back(paths, config_data, monkeypatch, capsys):
    assert run(monkeypatch, "-f") == 0
    assert (
        "Configuration successfully upgraded to version 3.1." in capsys.readouterr().err
    )
    db = store.open_master(paths.store_db, replicate=None, clock=clock.SystemClock())
    assert db.snapshot().cluster.cluster_name == "cluster1.example.com"
    assert db.read("meta", "serial") == b"812"
    db.close()
    with open(paths.data("config.data"), "w") as stream:
        stream.write("something else")
    assert run(monkeypatch, "-f", "--downgrade") == 0
    assert read(paths.data("config.data")) == config_data
    assert run(monkeypatch, "-f", "--export") == 0
    assert read(paths.data("config.data")) == {**config_data, "version": 3010000}


@pytest.mark.parametrize(("version", "name"), [(3000000, "3.0"), (3010000, "3.1")])
def test_the_release_of_a_file_is_named(
    paths, config_data, monkeypatch, caplog, version, name
):
    path = pathlib.Path(paths.data("config.data"))
    path.write_text(json.dumps({**config_data, "version": version}))
    assert run(monkeypatch, "--dry-run") == 0
    assert f"{path}: is of Ganeti {name}" in caplog.messages


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: [data], "wanted an object at the top"),
        (lambda data: {**data, "disks": []}, "disks: wanted an object"),
        (lambda data: {**data, "strange": 1}, "strange"),
    ],
)
def test_a_wrong_form_is_an_error_of_the_file(
    paths, config_data, monkeypatch, capsys, change, reason
):
    path = pathlib.Path(paths.data("config.data"))
    path.write_text(json.dumps(change(config_data)))
    assert run(monkeypatch, "-f") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"cfgupgrade: {path}: ")
    assert reason in error
    assert not os.path.exists(paths.store_db)


def test_an_interrupt_at_the_question_changes_nothing(
    paths, config_data, monkeypatch, capsys
):
    class Asked(io.StringIO):
        def readline(self, *_size):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Asked())
    assert run(monkeypatch) == 1
    assert capsys.readouterr().err == "\ncfgupgrade: interrupted\n"
    assert not os.path.exists(paths.store_db)


def test_what_is_replaced_is_kept_and_terms_grow(paths, config_data, monkeypatch):
    db = store.open_master(
        paths.store_db, replicate=None, clock=clock.SystemClock(), seen_term=40
    )
    db.commit([store.Document("jobs", "1", b"old")])
    db.close()
    assert run(monkeypatch, "-f") == 0
    again = store.open_master(paths.store_db, replicate=None, clock=clock.SystemClock())
    assert again.term.number > 41
    assert again.read("jobs", "1") is None
    again.close()
    kept = [path.name for path in sorted(paths_of(paths.backup_dir))]
    assert [name.partition(".backup")[0] for name in kept] == [
        "config.data",
        "store.db",
    ]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_no_part_of_the_old_store_meets_the_new_one(
    paths, config_data, monkeypatch, suffix
):
    leftover = paths.store_db + suffix
    with open(leftover, "wb") as stream:
        stream.write(b"of another file")
    assert run(monkeypatch, "-f") == 0
    assert not os.path.exists(leftover)


def paths_of(directory):
    import pathlib

    return pathlib.Path(directory).iterdir()


def test_a_dry_run_changes_nothing(paths, config_data, monkeypatch):
    before = sorted(path.name for path in paths_of(paths.data_dir))
    assert run(monkeypatch, "--dry-run") == 0
    assert sorted(path.name for path in paths_of(paths.data_dir)) == before


def test_it_asks_first(paths, config_data, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert run(monkeypatch) == 1
    assert "nothing was changed" in capsys.readouterr().err


def test_it_works_on_the_master_only(paths, config_data, monkeypatch, capsys):
    ssconf.write(paths, {"master_node": "node7"})
    assert run(monkeypatch, "-f") == 1
    assert "the master is node7, this node is node1" in capsys.readouterr().err
    assert run(monkeypatch, "-f", "--ignore-hostname") == 0


def test_it_refuses_while_the_master_daemon_runs(
    paths, config_data, monkeypatch, capsys
):
    with pidfile.PidFile(paths.pid_file("ganeti-masterd")):
        assert run(monkeypatch, "-f") == 1
    assert "ganeti-masterd is running" in capsys.readouterr().err


def test_it_refuses_while_the_store_is_in_etcd(paths, config_data, monkeypatch, capsys):
    choice.write(paths, choice.prepare(parse("etcd://a/mine")))
    for words in ((), ("--export",), ("--downgrade",)):
        assert run(monkeypatch, "-f", *words) == 1
        assert "the store is etcd://a:2379/mine; move" in capsys.readouterr().err
    choice.write_file_engine(paths)
    assert run(monkeypatch, "-f") == 0


def test_an_inconsistent_configuration_needs_a_flag(
    paths, config_data, monkeypatch, caplog, capsys
):
    config_data["cluster"]["highest_used_port"] = 11000
    with open(paths.data("config.data"), "w") as stream:
        json.dump(config_data, stream)
    assert run(monkeypatch, "-f") == 1
    error = capsys.readouterr().err
    assert "the highest used port should be at least 11001" in error
    assert "--no-verify" in error
    assert run(monkeypatch, "-f", "--no-verify") == 0


def cut_node(data):
    """Name a node that there is not as the primary one of an instance."""
    next(iter(data["instances"].values()))["primary_node"] = NOBODY


def cut_disk(data):
    next(iter(data["instances"].values()))["disks"] = [NOBODY]


def cut_group(data):
    next(iter(data["nodes"].values()))["group"] = NOBODY


def cut_master(data):
    data["cluster"]["master_node"] = NOBODY


@pytest.mark.parametrize("cut", [cut_node, cut_disk, cut_group, cut_master])
def test_a_reference_to_nothing_is_named_and_changes_nothing(
    paths, config_data, monkeypatch, capsys, cut
):
    cut(config_data)
    with open(paths.data("config.data"), "w") as stream:
        json.dump(config_data, stream)
    before = sorted(path.name for path in paths_of(paths.data_dir))
    assert run(monkeypatch, "-f") == 1
    error = capsys.readouterr().err
    assert NOBODY in error
    assert "config.data" in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert sorted(path.name for path in paths_of(paths.data_dir)) == before


def write_old(paths, minor):
    """Write a configuration of release 2.minor; return its text."""
    text = json.dumps(ganeti2.as_of(cluster.example_data(), minor))
    with open(paths.data("config.data"), "w") as stream:
        stream.write(text)
    return text


@pytest.mark.parametrize("minor", [0, 4, 6, 10, 12, 15, 16])
def test_a_cluster_of_ganeti_2_moves_here(paths, monkeypatch, capsys, caplog, minor):
    text = write_old(paths, minor)
    assert run(monkeypatch, "-f", "--dry-run") == 0
    assert f"is of Ganeti 2.{minor}" in caplog.text
    assert capsys.readouterr().err.endswith(
        "Dry run: the configuration can be upgraded to version 3.1; nothing was"
        " changed.\n"
    )
    caplog.clear()
    with open(paths.data("config.data")) as stream:
        assert stream.read() == text
    assert not os.path.exists(paths.store_db)
    assert run(monkeypatch, "-f", "-v") == 0
    assert capsys.readouterr().err.endswith("successfully upgraded to version 3.1.\n")
    assert f"is of Ganeti 2.{minor}" in caplog.text
    assert ("--new-node-certificates" in caplog.text) == (minor < 11)
    assert ("--new-ssh-keys" in caplog.text) == (minor < 16)
    (kept,) = paths_of(paths.backup_dir)
    assert kept.read_text() == text
    follower = store.Follower(paths.store_db)
    (instance,) = follower.snapshot().instances.values()
    follower.close()
    assert instance.name == "web1.example.com"
    assert run(monkeypatch, "-f", "--downgrade") == 0
    assert read(paths.data("config.data"))["version"] == 3000000


def test_storage_directories_get_a_list_once(paths, monkeypatch, tmp_path):
    write_old(paths, 6)
    path = tmp_path / "conf" / "file-storage-paths"
    confdir = f"--confdir={path.parent}"
    assert run(monkeypatch, "-f", "--dry-run", confdir) == 0
    assert not path.exists()
    assert run(monkeypatch, "-f", confdir) == 0
    assert path.read_text().splitlines()[1:] == [
        "/srv/ganeti/file-storage",
        "/srv/ganeti/shared-file-storage",
    ]
    path.write_text("/mine\n")
    write_old(paths, 6)
    assert run(monkeypatch, "-f", confdir) == 0
    assert path.read_text() == "/mine\n"


def test_a_file_of_another_release_is_named(paths, config_data, monkeypatch, capsys):
    for version, name in ((2170000, "Ganeti 2.17"), (7, "no known release")):
        config_data["version"] = version
        with open(paths.data("config.data"), "w") as stream:
            json.dump(config_data, stream)
        assert run(monkeypatch, "-f") == 1
        text = capsys.readouterr().err
        assert f"is of {name} (version {version})" in text
        assert "files of Ganeti 2.0 to 2.16, 3.0 and 3.1 can be imported" in text


def test_parts_of_disks_get_uuids(paths, config_data, monkeypatch):
    parts = [c for disk in config_data["disks"].values() for c in disk["children"]]
    assert parts
    for part in parts:
        del part["uuid"]
    with open(paths.data("config.data"), "w") as stream:
        json.dump(config_data, stream)
    assert run(monkeypatch, "-f") == 0


def test_a_missing_or_strange_file_is_named(paths):
    places = cfgupgrade.UpgradePaths.of(paths)
    with pytest.raises(errors.ConfigurationError, match="no such file"):
        cfgupgrade.take_config(places, clock.SystemClock(), dry_run=True, check=True)
    with open(paths.data("config.data"), "w") as file:
        file.write("{")
    with pytest.raises(errors.ConfigurationError, match="not valid JSON"):
        cfgupgrade.take_config(places, clock.SystemClock(), dry_run=True, check=True)


@pytest.fixture
def copied(paths, config_data, tmp_path):
    """A copy of a data directory; that of this machine has only a store."""
    directory = tmp_path / "copied"
    os.rename(paths.data_dir, directory)
    os.mkdir(paths.data_dir)
    store.open_master(paths.store_db, replicate=None, clock=clock.SystemClock()).close()
    return directory


def contents(directory):
    return {each: each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_another_directory_is_converted_there_and_nothing_here(
    paths, copied, monkeypatch, capsys
):
    here = pathlib.Path(paths.data_dir)
    before = contents(here)
    option = f"--path={copied}"
    with pidfile.PidFile(paths.pid_file("ganeti-masterd")):  # it is not concerned
        assert run(monkeypatch, "-f", option) == 0
        assert contents(here) == before
        name = store.read_snapshot(str(copied / "store.db")).cluster.cluster_name
        assert name == "cluster1.example.com"
        os.unlink(copied / "config.data")
        assert run(monkeypatch, "-f", "--export", option) == 0
    assert read(copied / "config.data")["cluster"]["cluster_name"] == name
    assert contents(here) == before


def test_the_usual_directory_may_be_given(paths, config_data, monkeypatch, capsys):
    with pidfile.PidFile(paths.pid_file("ganeti-masterd")):
        assert run(monkeypatch, "-f", f"--path={paths.data_dir}/") == 1
    assert "ganeti-masterd is running" in capsys.readouterr().err
    assert run(monkeypatch, "-f", f"--path={paths.data_dir}/") == 0
    assert os.path.exists(paths.store_db)


def test_another_directory_has_its_own_master(paths, copied, monkeypatch, capsys):
    (copied / "ssconf_master_node").write_text("node2\n")
    assert run(monkeypatch, "-f", f"--path={copied}") == 1
    assert "the master is node2" in capsys.readouterr().err
    assert not (copied / "store.db").exists()
    assert run(monkeypatch, "-f", f"--path={copied}/absent") == 1
    assert "absent: no such directory" in capsys.readouterr().err
