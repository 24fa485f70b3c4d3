"""The life of instances on a real cluster, as an administrator lives it."""

import contextlib
import json
import shutil

import pytest

from fakes.patience import until

pytestmark = [pytest.mark.daemon, pytest.mark.core]
FAKE = ("-H", "fake", "-t", "diskless", "-o", "tiny+default", "--no-nics")


@pytest.fixture
def instance(vcluster):
    """A running diskless instance on node1; removed afterwards."""
    vcluster.check(
        "gnt-instance",
        "add",
        *FAKE,
        "-n",
        "node1",
        "--no-install",
        "--no-start",
        "web1.vc.test",
    )
    vcluster.check("gnt-instance", "startup", "web1.vc.test")
    yield "web1.vc.test"
    vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", "web1.vc.test")


def field(vcluster, name, instance="web1.vc.test"):
    text = vcluster.check("gnt-instance", "list", "--no-headers", "-o", name, instance)
    return text.strip()


def cluster_mtime(vcluster):
    with contextlib.closing(vcluster.luxi()) as client:
        return client.call("QueryClusterInfo")["mtime"]


def test_start_stop_reboot_and_remove(vcluster, instance):
    assert field(vcluster, "status") == "running"
    vcluster.check("gnt-instance", "shutdown", instance)
    assert field(vcluster, "status") == "ADMIN_down"
    vcluster.check("gnt-instance", "reboot", instance)
    assert field(vcluster, "status") == "running"
    vcluster.check("gnt-instance", "remove", "-f", instance)
    gone = vcluster.run("gnt-instance", "info", instance)
    assert gone.code == 1
    assert "unknown_entity" in gone.output
    assert "Traceback" not in gone.output


def test_migration_and_failover_change_the_node(vcluster, instance):
    vcluster.check("gnt-instance", "migrate", "-f", "-n", "node2", instance)
    assert field(vcluster, "pnode") == "node2.vc.test"
    vcluster.check("gnt-instance", "failover", "-f", "-n", "node3", instance)
    assert field(vcluster, "pnode,status").split() == ["node3.vc.test", "running"]


def test_json_says_what_the_table_says(vcluster, instance):
    rows = json.loads(
        vcluster.check("gnt-instance", "list", "--json", "-o", "name,status")
    )
    assert {"name": instance, "status": "running"} in rows


@pytest.fixture
def slow_os(vcluster):
    """An operating system whose creation waits for the file ``go``."""
    place = vcluster.file("/srv/ganeti/os/slow")
    place.mkdir()
    for name in ("create", "import", "export", "rename"):
        script = place / name
        script.write_text(
            '#!/bin/sh\ntouch "${0%/*}/begun"\n'
            'until [ -e "${0%/*}/go" ]; do sleep 0.1; done\n'
        )
        script.chmod(0o755)
    (place / "ganeti_api_version").write_text("15\n")
    yield place
    (place / "go").touch()
    vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", "slow.vc.test")
    vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", "quick.vc.test")
    shutil.rmtree(place)


def test_an_os_script_does_not_keep_its_node_from_others(vcluster, slow_os):
    common = ("-H", "fake", "-t", "file", "-s", "8m", "--no-nics", "-n", "node1")
    add = ("gnt-instance", "add", *common)
    vcluster.check(*add, "-o", "slow", "--submit", "slow.vc.test")
    until("the script runs", (slow_os / "begun").exists)
    # Would wait for the script, which ends after all this.
    vcluster.check(*add, "-o", "tiny+default", "quick.vc.test")
    assert "node/" not in vcluster.check("gnt-debug", "locks", "-o", "name")
    assert field(vcluster, "status", "slow.vc.test") == "ADMIN_down"
    (slow_os / "go").touch()
    until("it runs", lambda: field(vcluster, "status", "slow.vc.test") == "running")


def test_a_creation_whose_master_died_is_seen_as_unfinished(vcluster, slow_os):
    add = ("gnt-instance", "add", "-H", "fake", "-t", "file", "-s", "8m", "--no-nics")
    vcluster.check(*add, "-n", "node1", "-o", "slow", "--submit", "slow.vc.test")
    until("the script runs", (slow_os / "begun").exists)
    vcluster.command("kill", "node1", "ganeti-masterd")
    (slow_os / "go").touch()
    vcluster.command("start", "node1", "ganeti-masterd")
    is_unfinished(vcluster, "slow.vc.test")


def test_a_creation_that_is_killed_in_its_os_script_ends_unfinished(vcluster, slow_os):
    add = ("gnt-instance", "add", "-H", "fake", "-t", "file", "-s", "8m", "--no-nics")
    shown = vcluster.run(
        *add, "-n", "node1", "-o", "slow", "--submit", "--print-jobid", "slow.vc.test"
    )
    job = shown.output.split()[0]
    until("the script runs", (slow_os / "begun").exists)
    vcluster.check("gnt-job", "cancel", "--kill", "--yes-do-it", job)
    assert "killed on request" in vcluster.run("gnt-job", "watch", job).output
    is_unfinished(vcluster, "slow.vc.test")


def is_unfinished(vcluster, name):
    """Check what shows that a creation did not end, and remove the instance."""
    assert field(vcluster, "status", name) == "ERROR_down"
    shown = vcluster.check("gnt-instance", "info", name)
    assert "\n  Creation: not finished, reinstall or remove the instance\n" in shown
    checked = vcluster.run("gnt-cluster", "verify")
    assert f"instance {name}: its installation did not finish" in checked.output
    assert checked.failed
    vcluster.check("gnt-instance", "remove", "-f", name)
    assert name not in vcluster.run("gnt-cluster", "verify").output


def test_file_disks_are_created_grown_and_removed(vcluster):
    vcluster.check(
        "gnt-instance",
        "add",
        "-H",
        "fake",
        "-t",
        "file",
        "--disk",
        "0:size=8m",
        "-o",
        "tiny+default",
        "--no-nics",
        "-n",
        "node2",
        "--no-install",
        "--no-start",
        "db1.vc.test",
    )
    folder = vcluster.file("/srv/ganeti/file-storage/db1.vc.test", node="node2")
    (disk,) = folder.iterdir()
    assert disk.stat().st_size == 8 << 20
    vcluster.check("gnt-instance", "grow-disk", "db1.vc.test", "0", "8m")
    assert disk.stat().st_size == 16 << 20
    vcluster.check("gnt-instance", "modify", "--disk", "add:size=4m", "db1.vc.test")
    assert len(list(folder.iterdir())) == 2
    vcluster.check("gnt-instance", "remove", "-f", "db1.vc.test")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (("gnt-instance", "startup", "nowhere"), 1, "unknown_entity"),
        (("gnt-instance", "add", *FAKE, "-n", "node9", "x.vc.test"), 1, "node9"),
        (
            (
                "gnt-instance",
                "add",
                "-t",
                "plain",
                "-n",
                "node1",
                "-o",
                "tiny+default",
                "--disk",
                "0:size=1g",
                "x.vc.test",
            ),
            1,
            "plain",
        ),
        (
            (
                "gnt-instance",
                "add",
                "-t",
                "file",
                "-n",
                "node1",
                "-o",
                "tiny+default",
                "--disk",
                "0:size=big",
                "x.vc.test",
            ),
            1,
            "big",
        ),
        (("gnt-instance", "list", "-o", "nofield"), 14, "nofield"),
        (("gnt-instance", "list", "--bogus"), 2, "bogus"),
        (("gnt-node", "info", "node9"), 1, "node9"),
        (("gnt-cluster", "modify", "-H", "kvm:nonsense=1"), 1, "nonsense"),
    ],
)
def test_mistakes_get_one_clear_error(vcluster, argv, code, text):
    before = cluster_mtime(vcluster)
    actual = vcluster.run(*argv)
    assert actual.code == code, actual.output
    assert text in actual.output
    assert "Traceback" not in actual.output
    assert cluster_mtime(vcluster) == before


def test_hooks_run_on_the_nodes_and_can_say_no(vcluster, instance):
    hooks = vcluster.file("/etc/ganeti/hooks", node="node1")
    script = hooks / "instance-reboot-pre.d" / "veto"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\necho "not $GANETI_INSTANCE_NAME"; exit 1\n')
    script.chmod(0o755)
    try:
        actual = vcluster.run("gnt-instance", "reboot", instance)
    finally:
        script.unlink()
    assert actual.code == 1
    assert f"not {instance}" in actual.output
    vcluster.check("gnt-instance", "reboot", instance)


def test_a_missing_allocator_is_named(vcluster):
    actual = vcluster.run(
        "gnt-instance",
        "add",
        *FAKE,
        "-I",
        "no-such-allocator",
        "--no-install",
        "--no-start",
        "a1.vc.test",
    )
    assert actual.code == 1
    assert "no-such-allocator" in actual.output


def test_the_cluster_is_still_clean(vcluster):
    vcluster.wait_until_clean()


# ``burnin`` on real daemons: every step, and nothing left behind.

ARGV = ("burnin", "-o", "tiny+default", "-H", "fake", "--no-name-check", "--no-nics")
ARGV += ("--disk-size", "16m", "--disk-growth", "8m", "--mem-size", "128m")


def burnin(vcluster, *words):
    return vcluster.run(*ARGV, "--vcpu-count", "1", *words, timeout_s=240)


@pytest.mark.sampled
@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_all_steps_pass_and_the_instances_are_gone(vcluster, template):
    words = ("-t", template, "--rename", "spare.vc.test", "-v", "burn.vc.test")
    # One template suffices for exports, which copy disks in full.
    fewer = ("--no-importexport",) if template == "sharedfile" else ()
    done = burnin(vcluster, *fewer, *words)
    assert not done.failed, done.output
    stages = [line for line in done.stdout.splitlines() if line.startswith("- ")]
    assert stages[-3:] == [
        "- Renaming instances",
        "- Removing instances",
        "- All steps passed",
    ]
    ran = {line for line in stages if "left out" not in line}
    wanted = {
        "file": {"- Moving instances", "- Exporting and importing instances"},
        "sharedfile": {"- Migrating instances"},
    }
    assert wanted[template] <= ran
    assert {"- Reinstalling instances", "- Asking confd", "- Growing disks"} <= ran
    listed = vcluster.check("gnt-instance", "list", "--no-headers", "-o", "name")
    assert "burn.vc.test" not in listed
    assert "spare.vc.test" not in listed


def test_a_step_that_fails_leaves_no_instance(vcluster):
    # The second instance is refused when the first one exists.
    done = burnin(vcluster, "-t", "file", "one.vc.test", "two..vc.test")
    assert done.code == 1, done.output
    assert "burnin: creating instances: " in done.stderr
    listed = vcluster.check("gnt-instance", "list", "--no-headers", "-o", "name")
    assert "one.vc.test" not in listed
