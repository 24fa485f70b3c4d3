"""``burnin`` on real daemons: every step, and nothing left behind."""

import pytest

pytestmark = [pytest.mark.daemon, pytest.mark.core]
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
