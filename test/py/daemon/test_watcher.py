"""The watcher on real daemons and real emulators: what falls over runs again."""

import contextlib
import os
import pathlib
import shutil
import signal
import threading

import pytest

from fakes.patience import PATIENCE_S, has_ended, until

pytestmark = pytest.mark.daemon
SHORT = ("node1", "node2", "node3")
GUESTS = {node: f"guest-{node}.vc.test" for node in SHORT}
KVM = (
    *("-H", "kvm", "-t", "sharedfile", "-s", "32M", "-B", "memory=96M"),
    *("-o", "tiny+default", "--no-nics"),
)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Three nodes, each with a guest in a real emulator; the watcher ran once."""
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("no QEMU on this machine")
    made = cluster_of(3, "kvm,fake")
    for node, guest in GUESTS.items():
        made.check("gnt-instance", "add", *KVM, "-n", node, guest)
    watch(made)
    return made


def watch(cluster, *words, node="node1"):
    """Run the watcher on a node; return the lines that it logs."""
    log = cluster.file("/var/log/ganeti/watcher.log", node)
    before = log.stat().st_size if log.exists() else 0
    cluster.check("ganeti-watcher", *words, node=node, timeout_s=PATIENCE_S)
    return log.read_bytes()[before:].decode()


def statuses(cluster):
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,status")
    return dict(line.split() for line in text.splitlines())


def all_running(cluster):
    return set(statuses(cluster).values()) == {"running"}


def emulator(cluster, node):
    """Return the process of a node's guest, None if it does not run."""
    path = cluster.file(f"/var/run/ganeti/kvm-hypervisor/pid/{GUESTS[node]}", node)
    with contextlib.suppress(OSError, ValueError):
        pid = int(path.read_text())
        if b"qemu" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def crash(cluster, node):
    pid = emulator(cluster, node)
    os.kill(pid, signal.SIGKILL)
    until("emulator gone", lambda: has_ended(pid))


def boot_ids(cluster):
    text = cluster.check("gnt-node", "list", "--no-headers", "-o", "name,bootid")
    return dict(line.split() for line in text.splitlines())


# The three scenarios


@pytest.mark.sampled
def test_a_crashed_emulator_runs_again_after_one_run(cluster):
    crash(cluster, "node2")
    assert statuses(cluster)[GUESTS["node2"]] == "ERROR_down"
    text = watch(cluster)
    assert all_running(cluster)
    assert emulator(cluster, "node2")
    assert f"instance {GUESTS['node2']}: start: status ERROR_down, attempt 1" in text
    assert GUESTS["node1"] not in text


@pytest.mark.sampled
def test_a_power_cycle_of_a_node_is_mended_by_one_run(cluster):
    before = boot_ids(cluster)
    cluster.command("power", "cycle", "node3")
    assert emulator(cluster, "node3") is None
    text = watch(cluster)
    assert all_running(cluster)
    assert emulator(cluster, "node3")
    assert f"instance {GUESTS['node3']}: start:" in text
    after = boot_ids(cluster)
    assert {n for n in after if after[n] != before[n]} == {"node3.vc.test"}
    (state,) = cluster.file("/var/lib/ganeti").glob("watcher.*.data")
    assert after["node3.vc.test"] in state.read_text()


def test_a_reboot_of_all_nodes_is_mended_by_one_run_on_each(cluster):
    for node in SHORT:
        cluster.command("power", "off", node)
    for node in SHORT:
        # Init did not start the daemons: this is the watchers' work, too.
        cluster.control.boot(cluster.node(node))
    assert not any(emulator(cluster, node) for node in SHORT)
    for node in ("node2", "node3", "node1"):
        watch(cluster, node=node)
    assert all_running(cluster)
    assert all(emulator(cluster, node) for node in SHORT)


# Daemons


@pytest.mark.parametrize("daemon", ["noded", "masterd"])
def test_a_dead_daemon_is_started(cluster, daemon):
    cluster.command("kill", "node1", daemon)
    text = watch(cluster)
    assert f"ganeti-{daemon}: started" in text
    assert all_running(cluster)


def test_a_remote_api_that_is_bound_to_one_address_is_left_alone(cluster):
    pid_file = cluster.file("/var/run/ganeti/ganeti-rapi.pid")
    before = pid_file.read_text()
    assert "ganeti-rapi" not in watch(cluster, "--no-verify-disks")
    assert pid_file.read_text() == before


def test_other_nodes_than_the_master_do_their_own_part_only(cluster):
    crash(cluster, "node2")
    cluster.command("kill", "node2", "noded")
    text = watch(cluster, node="node2")
    assert "ganeti-noded: started" in text
    assert statuses(cluster)[GUESTS["node2"]] == "ERROR_down"
    assert not list(cluster.file("/var/lib/ganeti", "node2").glob("watcher.*.data"))
    watch(cluster)
    assert all_running(cluster)


@pytest.mark.sampled
def test_a_node_that_was_marked_offline_stops_its_guests(cluster):
    cluster.check("gnt-cluster", "modify", "--maintain-node-health", "yes")
    try:
        assert "node maintenance" not in watch(cluster, node="node3")
        pid = emulator(cluster, "node3")
        cluster.check("gnt-node", "modify", "--offline", "yes", "node3")
        try:
            text = watch(cluster, node="node3")
            assert f"instance {GUESTS['node3']}: killing its guest" in text
            assert has_ended(pid)
            assert emulator(cluster, "node2")
        finally:
            cluster.check("gnt-node", "add", "--readd", "--no-ssh-key-check", "node3")
    finally:
        cluster.check("gnt-cluster", "modify", "--maintain-node-health", "no")
    watch(cluster)
    assert all_running(cluster)


# Limits and reasons


@pytest.fixture
def hopeless(cluster):
    """A guest that the master cannot start."""
    name = "hopeless.vc.test"
    fake = ("-H", "fake", "-t", "sharedfile", "-s", "8M", "-o", "tiny+default")
    cluster.check("gnt-instance", "add", *fake, "--no-nics", "-n", "node1", name)
    storage = cluster.file("/srv/ganeti/shared-file-storage") / name
    aside = storage.with_name("aside")
    cluster.check("gnt-instance", "shutdown", "--no-remember", name)
    storage.rename(aside)
    yield name
    aside.rename(storage)
    cluster.run("gnt-instance", "remove", "-f", name)


@pytest.mark.sampled
def test_after_five_attempts_in_five_runs_it_gives_up(cluster, hopeless):
    texts = [watch(cluster, "--no-verify-disks") for _ in range(7)]
    assert [f"attempt {n} of 5" in text for n, text in enumerate(texts, 1)] == [
        *[True] * 5,
        *[False] * 2,
    ]
    assert "failed, attempt 1 of 5: " in texts[0]
    assert "not restarting, too many attempts" in texts[5]
    assert "not restarting" not in texts[6]
    (state,) = cluster.file("/var/lib/ganeti").glob("watcher.*.data")
    assert f'"{hopeless}": {{"restart_count": 6' in state.read_text()


def test_jobs_carry_the_watchers_reason(cluster):
    crash(cluster, "node1")
    text = watch(cluster)
    job = text.partition(f"{GUESTS['node1']}: job ")[2].partition(":")[0]
    assert "gnt:watcher" in cluster.check("gnt-job", "info", job)


# Pause, collision, drained queue


def test_a_pause_keeps_everything_down_until_it_ends(cluster):
    crash(cluster, "node2")
    cluster.check("gnt-cluster", "watcher", "pause", "1h")
    assert "paused until" in cluster.check("gnt-cluster", "watcher", "info")
    assert "paused until" in watch(cluster)
    # Candidates know the pause, too.
    assert "paused until" in watch(cluster, node="node2")
    assert statuses(cluster)[GUESTS["node2"]] == "ERROR_down"
    cluster.check("gnt-cluster", "watcher", "continue")
    watch(cluster)
    assert all_running(cluster)


def test_two_runs_at_once_start_an_instance_once(cluster):
    crash(cluster, "node2")
    texts = []
    threads = [
        threading.Thread(
            target=lambda: texts.append(cluster.run("ganeti-watcher", node="node1"))
        )
        for _ in range(2)
    ]
    log = cluster.file("/var/log/ganeti/watcher.log")
    before = log.stat().st_size
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    text = log.read_bytes()[before:].decode()
    assert text.count(f"instance {GUESTS['node2']}: start:") == 1
    assert sorted(result.code for result in texts) in ([0, 0], [0, 1])
    assert all("Traceback" not in result.output for result in texts)
    assert all_running(cluster)


def test_a_drained_queue_is_no_failure(cluster):
    cluster.check("gnt-cluster", "queue", "drain")
    try:
        assert "accepts no jobs" in watch(cluster)
    finally:
        cluster.check("gnt-cluster", "queue", "undrain")


# Files, hooks, exit codes


def test_the_status_of_all_instances_is_a_file(cluster):
    watch(cluster)
    text = cluster.file("/var/run/ganeti/instance-status").read_text()
    assert text.splitlines() == [
        f"{guest} running" for guest in sorted(GUESTS.values())
    ]


def test_each_group_has_its_own_state(cluster):
    cluster.check("gnt-group", "add", "spare")
    try:
        watch(cluster)
        states = list(cluster.file("/var/lib/ganeti").glob("watcher.*.data"))
        assert len(states) == 2
    finally:
        cluster.check("gnt-group", "remove", "spare")


def test_hooks_run_on_every_node(cluster):
    for node in ("node1", "node2"):
        script = cluster.file("/etc/ganeti/hooks/watcher/note", node)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!/bin/sh\necho hook of {node}, $LC_ALL; exit 1\n")
        script.chmod(0o755)
        try:
            assert f"output: hook of {node}, C" in watch(cluster, node=node)
        finally:
            script.unlink()


def test_old_jobs_are_archived(cluster):
    assert cluster.check("gnt-job", "list", "--no-headers").strip()
    watch(cluster, "-A", "0s", "--no-verify-disks")
    assert not cluster.check("gnt-job", "list", "--no-headers").strip()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--node-group=nowhere",), 1, "wanted the UUID or the name of a group"),
        (("-A", "soon"), 2, "Usage"),
        (("web1",), 2, "Usage"),
        (("--version",), 0, "ganeti-watcher (ganeti)"),
    ],
)
def test_exit_codes(cluster, words, code, text):
    result = cluster.run("ganeti-watcher", *words)
    assert result.code == code
    assert text in result.output
    assert "Traceback" not in result.output


def test_a_group_is_the_masters_work(cluster):
    group = cluster.check("gnt-group", "list", "--no-headers", "-o", "uuid").strip()
    result = cluster.run("ganeti-watcher", f"--node-group={group}", node="node2")
    assert result.code == 11
    assert "master" in result.output


def test_the_cluster_is_clean_afterwards(cluster):
    cluster.wait_until_clean()
