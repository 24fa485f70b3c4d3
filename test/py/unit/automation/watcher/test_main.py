"""Options, pause, lock and exit codes of a run."""

import errno
import logging
import os
import pathlib
import socket

import pytest

from ganeti.automation.watcher import main, master_part, node_part
from ganeti.automation.watcher.effects import Settings
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.decisions.watching import EMPTY, GroupState

GROUP = "5e1c0b9a-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.fixture
def children(monkeypatch):
    """Commands of the children, which end with the codes of `children.codes`."""

    class Children(list):
        codes = ()

    made = Children()

    class Child:
        pid = 1

        def __init__(self, command, **_options):
            self.code = dict(enumerate(made.codes)).get(len(made), 0)
            made.append(command)

        def wait(self):
            return self.code

    monkeypatch.setattr(master_part.subprocess, "Popen", Child)
    return made


def paused(node, text):
    pathlib.Path(node.paths.data("watcher.pause")).write_text(text)


def test_a_pause_is_honoured_and_can_be_ignored(node, children):
    paused(node, f"{node.clock.now + 1}")
    assert main.guarded(node.watch(), None) == 0
    assert main.guarded(node.watch(), GROUP) == 0
    assert (node.runner.lines, node.master.calls, children) == ([], [], [])
    assert main.guarded(node.watch(ignore_pause=True), None) == 0
    assert len(children) == 1


def test_programs_that_stop_all_daemons_exclude_the_watcher(node, children, log):
    with files.locked(f"{node.paths.lock_dir}/ganeti-watcher.lock"):
        assert main.guarded(node.watch(), None) == 0
    assert (node.runner.lines, children) == ([], [])
    assert "excludes the watcher" in log.text


def test_runs_do_not_exclude_each_other_but_runs_over_one_group_do(
    node, children, capsys
):
    lock = f"{node.paths.lock_dir}/ganeti-watcher.lock"
    with files.locked(lock, shared=True), main.opened(node.paths, GROUP):
        assert main.guarded(node.watch(), None) == 0
        assert len(children) == 1
        assert main.guarded(node.watch(), GROUP) == 1
    assert "another watcher works on this group" in capsys.readouterr().err
    node.instances()
    assert main.guarded(node.watch(), GROUP) == 0


def test_another_node_than_the_master_does_its_own_part_only(node, children):
    node.ssconf(master_node="n2.tst")
    assert main.guarded(node.watch(), None) == 0
    assert node.runner.lines == ["daemon-util check ganeti-noded"]
    assert node.master.calls == []
    assert children == []


def test_a_node_that_does_not_know_the_master_does_its_own_part_only(node, children):
    os.unlink(node.paths.data("ssconf_master_node"))
    assert main.guarded(node.watch(), None) == 0
    assert children == []


def test_the_loss_of_the_master_role_has_its_own_exit_code(node, children):
    node.master.values["master_node"] = "n2.tst"
    assert main.guarded(node.watch(), None) == 0
    assert main.guarded(node.watch(), GROUP) == 11
    assert children == []


def test_a_name_that_does_not_resolve_has_its_own_exit_code(node, monkeypatch, capsys):
    def lookup(name, _paths):
        raise errors.ResolverError(name, -2, "not known")

    monkeypatch.setattr(main.netutils, "lookup", lookup)
    assert main.guarded(node.watch(), None) == 12
    assert "n1.tst does not resolve: not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    "group",
    [
        "nowhere",
        "../../etc/passwd",
        "5e1c0b9a-0000-4000-8000-000000000009",
    ],
)
def test_a_wrong_group_is_refused(node, capsys, group):
    assert main.guarded(node.watch(), group) == 1
    wanted = f"wanted the UUID or the name of a group of this cluster, found {group!r}"
    assert wanted in capsys.readouterr().err
    assert [n for n in os.listdir(node.paths.data_dir) if n.startswith("watcher")] == []


def test_a_group_may_be_named(node, monkeypatch):
    groups = []
    monkeypatch.setattr(
        main.group_part, "run", lambda _w, uuid, _f: groups.append(uuid)
    )
    [name] = node.watch().ssconf.nodegroups().values()
    assert main.guarded(node.watch(), name) == 0
    assert main.guarded(node.watch(), GROUP) == 0
    assert groups == [GROUP, GROUP]


def test_a_malformed_list_of_groups_names_no_file(node, capsys):
    path = node.paths.data("ssconf_nodegroups")
    with open(path, "w") as file:
        file.write("../../etc default\n")
    assert main.guarded(node.watch(), "default") == 1
    assert "--node-group" in capsys.readouterr().err


@pytest.mark.parametrize("error", [errors.JobQueueFull, errors.JobQueueDrainError])
def test_a_queue_that_takes_no_jobs_is_no_failure(node, error, log):
    node.instances(web1="ERROR_down")

    def refuse(*_args):
        raise error("no jobs now")

    node.master._SubmitManyJobs = refuse
    assert main.guarded(node.watch(), GROUP) == 0
    assert "accepts no jobs" in log.text


def test_an_unexpected_error_shows_no_traceback_to_people(
    node, monkeypatch, capsys, log
):
    def fail(*_args):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(node_part, "run", fail)
    assert main.guarded(node.watch(), None) == 1
    shown = capsys.readouterr().err
    assert "surprise" in shown
    assert "Traceback" not in shown
    assert "Traceback" in log.text


# The master


@pytest.mark.parametrize("has_process", [False, True])
def test_a_dead_master_daemon_is_started_once(node, children, no_master, has_process):
    """Without a process nobody waits for the socket; with one it may be hung."""
    node.master.down = no_master

    def util(argv):
        if argv[1:] == ("start", "ganeti-masterd"):
            node.master.down = None
        return int(argv[1] == "check" and not has_process), "", ""

    node.runner.answers["daemon-util"] = util
    assert main.guarded(node.watch(), None) == 0
    assert len(children) == 1
    assert node.runner.lines.count("daemon-util start ganeti-masterd") == 1


@pytest.mark.parametrize(("code", "result"), [(11, 0), (1, 1)])
def test_a_master_daemon_that_does_not_start(node, children, no_master, code, result):
    node.master.down = no_master
    node.runner.answers["daemon-util"] = lambda argv: (
        code if argv[1] == "start" else 0,
        "",
        "",
    )
    assert main.guarded(node.watch(), None) == result
    assert children == []


def test_a_master_daemon_that_stays_silent_is_named(node, no_master, capsys):
    node.master.down = no_master
    assert main.guarded(node.watch(), None) == 1
    assert "no master daemon listens on /nowhere" in capsys.readouterr().err


def test_old_jobs_are_archived(node, children):
    main.guarded(node.watch(job_age_s=90), None)
    (call,) = [args for name, args in node.master.calls if name == "AutoArchiveJobs"]
    assert call[0] == 90


def test_each_group_gets_a_child_with_the_same_options(node, children):
    other = GROUP[:-1] + "2"
    node.ssconf(nodegroups=f"{other} b\n{GROUP} a")
    began = node.clock.now
    watch = node.watch(
        debug=True, ignore_pause=True, verify_disks=False, strict=False, job_age_s=9
    )
    assert main.guarded(watch, None) == 0
    assert [command[1:] for command in children] == [
        [
            "--debug",
            "--ignore-pause",
            "--no-verify-disks",
            "--no-strict",
            f"--node-group={group}",
        ]
        for group in (GROUP, other)
    ]
    assert children[0][0].endswith("/ganeti-watcher")
    assert node.clock.now - began == 1.0


def test_a_failed_child_is_a_failure_if_somebody_waits(node, children, log):
    children.codes = (1,)
    assert main.guarded(node.watch(), None) == 1
    assert f"group {GROUP}: the watcher of this group ended with 1" in log.text
    children.clear()
    assert main.guarded(node.watch(wait_children=False), None) == 0


@pytest.mark.parametrize("codes", [(11,), (11, 1), (1, 11)])
def test_another_master_that_a_child_notices_has_its_own_exit_code(
    node, children, codes
):
    more = f"{GROUP[:-1]}9"
    node.ssconf(nodegroups=f"{GROUP} a\n{more} b")
    children.codes = codes
    assert main.guarded(node.watch(), None) == 11


def test_rapi_is_restarted_once_if_it_does_not_answer(node, children, monkeypatch, log):
    asked = []
    monkeypatch.setattr(master_part, "rapi_problem", asked.append)
    main.guarded(node.watch(), None)
    assert asked == []
    node.installed.add("ganeti-rapi")
    main.guarded(node.watch(rapi_ip="192.0.2.1"), None)
    assert asked == ["192.0.2.1"]
    assert "daemon-util stop ganeti-rapi" not in node.runner.lines
    monkeypatch.setattr(master_part, "rapi_problem", lambda *_at: "it is silent")
    assert main.guarded(node.watch(), None) == 0
    assert node.runner.lines[-3:] == [
        "daemon-util check ganeti-rapi",
        "daemon-util stop ganeti-rapi",
        "daemon-util start ganeti-rapi",
    ]
    assert "also after a restart" in log.text


@pytest.mark.parametrize("address", ["127.0.0.7", "0.0.0.0", "::", "::1"])
def test_rapi_is_asked_where_its_process_listens(node, children, monkeypatch, address):
    asked = []

    def problem(*place):
        asked.append(place)

    monkeypatch.setattr(master_part, "rapi_problem", problem)
    node.installed.add("ganeti-rapi")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if ":" in address and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 on this machine")
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        pathlib.Path(node.paths.pid_file("ganeti-rapi")).write_text(f"{os.getpid()}\n")
        main.guarded(node.watch(), None)
    known = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    assert asked == [(known.get(address, address), port)]
    asked.clear()
    pathlib.Path(node.paths.pid_file("ganeti-rapi")).write_text("")
    main.guarded(node.watch(), None)
    assert asked == [("127.0.0.1",)]
    assert "daemon-util stop ganeti-rapi" not in node.runner.lines


# Options


def settings(*argv):
    return main._settings(main.build_parser().parse_args(argv))


def test_defaults_are_the_documented_ones():
    assert settings() == Settings()
    assert Settings().job_age_s == 6 * 3600


def test_options_reach_the_settings():
    actual = settings(
        *("-d", "-A", "2d", "--ignore-pause", "--no-wait-children"),
        *("--no-verify-disks", "--no-strict", "--rapi-ip", "192.0.2.1"),
    )
    assert actual == Settings(
        debug=True,
        job_age_s=2 * 86400,
        ignore_pause=True,
        wait_children=False,
        verify_disks=False,
        strict=False,
        rapi_ip="192.0.2.1",
    )
    assert settings("--wait-children").wait_children


@pytest.mark.parametrize("argv", [["-A", "soon"], ["-A", ""], ["web1"], ["--nonsense"]])
def test_wrong_usage_has_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main.build_parser().parse_args(argv)
    assert caught.value.code == 2
    assert "Usage: " in capsys.readouterr().err


def test_a_machine_in_no_cluster_is_named(monkeypatch, capsys, tmp_path):
    root = tmp_path / "n1.tst"
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    monkeypatch.setenv("GANETI_HOSTNAME", "n1.tst")
    assert main.main([]) == 1
    assert "not a node of a cluster" in capsys.readouterr().err
    assert not root.exists()


def test_the_pause_is_in_the_same_file_as_the_master_writes(node):
    from ganeti.daemons.masterd import cluster_facts

    cluster_facts.write_watcher_pause(node.paths, node.clock.now + 60)
    assert main.pause_end(node.paths, node.clock.now) == node.clock.now + 60


def test_an_interrupt_shows_no_traceback(node, monkeypatch, capsys):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(node_part, "run", interrupt)
    assert main.guarded(node.watch(), None) == 1
    assert "submitted jobs continue" in capsys.readouterr().err


STATE = GroupState({}, {"n1": "boot"})


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path), hostname=tmp_path.name)
    os.makedirs(made.data_dir)
    os.makedirs(made.run_dir)
    return made


def test_a_state_is_kept_between_runs(paths):
    with main.opened(paths, "g") as file:
        assert file.state == EMPTY
        file.save(STATE)
    with main.opened(paths, "g") as file:
        assert file.state == STATE


def test_two_runs_exclude_each_other_also_after_a_save(paths):
    def enter():
        with main.opened(paths, "g"):
            pytest.fail("entered twice")

    with main.opened(paths, "g") as file:
        for _ in range(2):
            with pytest.raises(errors.LockError, match="another watcher"):
                enter()
            file.save(STATE)
        with main.opened(paths, "other"):
            pass
    with main.opened(paths, "g"):
        pass


def test_the_error_of_a_full_disk_names_the_file(paths, monkeypatch):
    def fsync(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with main.opened(paths, "uuid") as file:
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match=r"No space left on device: '.*watcher"):
            file.save(STATE)


def test_an_unchanged_state_is_only_touched(paths):
    with main.opened(paths, "g") as file:
        file.save(STATE)
    path = pathlib.Path(main.state_path(paths, "g"))
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    with main.opened(paths, "g") as file:
        file.save(STATE)
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def test_a_damaged_state_counts_as_empty(paths, caplog):
    pathlib.Path(main.state_path(paths, "g")).write_bytes(b"{broken")
    with main.opened(paths, "g") as file:
        assert file.state == EMPTY
    assert "watcher.g.data" in caplog.text


def test_the_status_of_a_group_is_sorted_lines_without_a_last_newline(paths):
    main.write_status(paths, "g", {"b": "running", "a": "ERROR_down"}, ["g"])
    text = pathlib.Path(main.status_path(paths, "g")).read_text()
    assert text == "a ERROR_down\nb running"
    assert mode(main.status_path(paths, "g")) == 0o600
    assert mode(main.merged_path(paths)) == 0o644


def mode(path):
    return os.stat(path).st_mode & 0o777


def test_the_newest_file_of_a_known_group_counts(paths):
    for group, status in (("new", "running"), ("old", "ERROR_down"), ("gone", "x")):
        path = pathlib.Path(main.status_path(paths, group))
        path.write_text(f"a {status}\nonly-{group} {status}")
        os.utime(path, (1, 2 if group == "new" else 1))
    main.write_status(paths, "g", {"b": "running"}, ["old", "g", "new", "none"])
    text = pathlib.Path(main.merged_path(paths)).read_text()
    assert text.splitlines() == [
        "a running",
        "b running",
        "only-new running",
        "only-old ERROR_down",
    ]


def test_a_merge_that_hangs_elsewhere_does_not_stop_the_run(paths, caplog, monkeypatch):
    monkeypatch.setattr(main, "_MERGE_S", 0.0)
    with files.locked(f"{main.merged_path(paths)}.lock"):
        main.write_status(paths, "g", {"b": "running"}, ["g"])
    assert "not updated" in caplog.text
    assert not os.path.exists(main.merged_path(paths))
