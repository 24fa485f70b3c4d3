"""The part on every node: daemons and hook scripts."""

import logging
import os
import pathlib

import pytest

from ganeti.automation.watcher import node_part
from ganeti.base.process import SystemRunner


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


def test_daemons_that_run_are_left_alone(node):
    node_part.run(node.watch(), {})
    assert node.runner.lines == ["daemon-util check ganeti-noded"]


def test_a_dead_daemon_is_started(node, log):
    node.installed.add("ganeti-mond")
    node.runner.answers["daemon-util"] = lambda argv: (
        (1 if argv[1] == "check" else 0),
        "",
        "",
    )
    node_part.run(node.watch(), {})
    assert [line for line in node.runner.lines if "start" in line] == [
        "daemon-util start ganeti-noded",
        "daemon-util start ganeti-mond",
    ]
    assert "ganeti-noded: does not run; starting it" in log.text


def test_a_daemon_that_does_not_start_is_logged_and_the_run_goes_on(node, log):
    node.runner.answers["daemon-util"] = (1, "", "port\nin use")
    node.runner.answers["a"] = node.runner.DONE
    script(node, "a", "")
    node_part.run(node.watch(), {})
    assert "exited with code 1: port\\nin use" in log.text
    assert node.runner.lines[-1] == "a"


def script(node, name, text, mode=0o755):
    path = pathlib.Path(node.paths.hooks_dir, "watcher", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def test_hooks_run_in_order_of_names_with_the_environment(node, log, tmp_path):
    node.runner = SystemRunner()
    out = tmp_path / "out"
    text = f'echo "$0 $LC_ALL $MINE" | sed s,.*/,, >> {out}; echo said; exit 3'
    for name in ("b", "a_1", "no.dot", "tilde~"):
        script(node, name, text)
    script(node, "plain", text, mode=0o644)
    pathlib.Path(node.paths.hooks_dir, "watcher", "dir").mkdir()
    node_part.run_hooks(node.watch(), {**os.environ, "MINE": "x"})
    assert out.read_text() == "a_1 C x\nb C x\n"
    assert "exited with code 3; output: said" in log.text


def test_a_hook_that_cannot_run_or_hangs_does_not_stop_the_others(
    node, log, tmp_path, monkeypatch
):
    node.runner = SystemRunner()
    monkeypatch.setattr(node_part, "_HOOK_S", 1.0)
    script(node, "a", "").write_text("#!/no/such/shell\n")
    script(node, "b", "exec sleep 1000")
    script(node, "c", f"touch {tmp_path}/done")
    node_part.run_hooks(node.watch(), os.environ)
    assert (tmp_path / "done").exists()
    assert "cannot be run" in log.text
    assert "did not end in time" in log.text


def test_without_hooks_nothing_runs(node):
    node_part.run_hooks(node.watch(), {})
    assert node.runner.lines == []
