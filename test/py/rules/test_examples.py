"""Examples of the documents: rotation of logs, alert rules, Prometheus, its dashboard."""

import fnmatch
import json
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = (TOP / "doc/examples/ganeti.logrotate.in").read_text()
PATTERNS = re.findall(r"@LOCALSTATEDIR@/log/ganeti/(\S+)", EXAMPLE)
#: Directories of files that belong to one guest: programs have them open as long as it
#: runs, and a start of the guest or the end of a script shortens them.
OF_GUESTS = {"chroot", "kvm"}


def written():
    """Return the files and directories below the log directory that the code names."""
    names = set()
    for path in (TOP / "lib").rglob("*.py"):
        names |= set(re.findall(r"log_dir\}/([\w-]+(?:\.log)?)\b", path.read_text()))
    return sorted(names - OF_GUESTS)


def test_the_code_names_logs():
    assert {"epo.log", "commands.log", "os", "extstorage"} <= set(written())


@pytest.mark.parametrize("name", written())
def test_logs_are_rotated(name):
    path = name if name.endswith(".log") else f"{name}/run.log"
    assert any(
        fnmatch.fnmatch(path, pattern) and path.count("/") == pattern.count("/")
        for pattern in PATTERNS
    )


# Alert rules, the example configuration and the dashboard, checked by promtool.

EXAMPLES = TOP / "doc/examples/prometheus"


def promtool(*words):
    done = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, check=False, cwd=EXAMPLES
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_configuration_are_valid_and_alerts_fire():
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "ganeti.rules.test.yml")


def test_rules_and_dashboard_use_documented_metrics_alone():
    page = (TOP / "doc/monitoring.rst").read_text()
    documented = set(re.findall(r"ganeti_\w+", page))
    dashboard = json.loads((EXAMPLES / "ganeti-dashboard.json").read_text())
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]
    rules = (EXAMPLES / "ganeti.rules.yml").read_text()
    expressions += re.findall(r"expr: (.*)", rules)
    assert len(expressions) > 8
    used = {name for text in expressions for name in re.findall(r"ganeti_\w+", text)}
    # The page names further counters of disks by their ends.
    documented |= {"ganeti_disk_read_bytes_total", "ganeti_disk_written_bytes_total"}
    assert used <= documented
    for name in set(re.findall(r"``(ganeti_\w+)``", page)):
        family = re.sub(r"_total$", "", name)
        sources = "".join(
            path.read_text()
            for folder in ("daemons", "node/collectors")
            for path in (TOP / "lib" / folder).glob("*.py")
        )
        assert family in sources or "ganeti_disk_" in family, name
