"""The part on every node: daemons, hooks, processes of guests, the cluster address."""

import logging
import os
import pathlib

import pytest

from fakes import clusters
from ganeti.automation.watcher import node_part
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.process import SystemRunner
from ganeti.model.objects import Update
from ganeti.node.hypervisor.kvm.devices import helper_processes
from ganeti.node.hypervisor.kvm.devices.helper_processes import Need
from ganeti.protocols.rpc import Result
from ganeti.store import open_master


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


# Guests that have lost a process are named in the log of their node, once.

SHARE = {"web1": [Need("/srv/data")]}
BOTH = {"web1": [Need("/srv/data"), Need()]}
STATE = "watcher.lost-processes"


@pytest.fixture
def look(node, monkeypatch, caplog):
    """Return a run over a node whose guests have lost this; it returns its messages."""
    caplog.set_level(logging.DEBUG)
    os.makedirs(f"{node.paths.run_dir}/kvm-hypervisor/pid")

    def run(lost):
        def answer(paths):
            assert paths is node.paths
            if isinstance(lost, Exception):
                raise lost
            return lost

        monkeypatch.setattr(helper_processes, "lost", answer)
        caplog.clear()
        node_part.report_lost_processes(node.watch())
        return [(row.levelname, row.getMessage()) for row in caplog.records]

    return run


def test_each_loss_and_its_end_are_logged_once(node, look):
    assert look({}) == []
    [(level, text)] = look(SHARE)
    assert level == "WARNING"
    assert text.startswith("instance web1: shared directory /srv/data: its process has")
    assert look(SHARE) == []
    [(level, text)] = look(BOTH)
    assert text.startswith("instance web1: TPM: its process has ended")
    ends = look({})
    assert [level for level, _text in ends] == ["INFO", "INFO"]
    assert all(text.startswith("over: instance web1: ") for _level, text in ends)
    assert not os.path.exists(node.paths.data(STATE))
    assert look({}) == []


def test_a_node_that_cannot_be_read_keeps_its_state(node, look):
    look(SHARE)
    [(level, text)] = look(errors.HypervisorError("no /proc"))
    assert (level, text) == ("WARNING", "processes of guests: no /proc")
    assert look(SHARE) == []


@pytest.mark.parametrize("text", ["{", "7", '{"a": 1}'])
def test_a_damaged_state_only_repeats_the_message(node, look, text):
    with open(node.paths.data(STATE), "w") as out:
        out.write(text)
    assert look(SHARE)[-1][0] == "WARNING"
    assert look(SHARE) == []


def test_a_node_without_guests_of_kvm_loads_no_driver(node, monkeypatch):
    monkeypatch.setattr(helper_processes, "lost", None)
    node_part.report_lost_processes(node.watch())


# The address of the cluster on a node that is not the master.

ADDRESS = "192.0.2.10"


@pytest.fixture
def dropped(node, monkeypatch):
    """Another master; this machine has the address. Returns the removed addresses."""
    node.ssconf(master_node="n2.tst", master_ip=ADDRESS, nodegroups="")
    dropped = []
    monkeypatch.setattr(node_part, "has_address", lambda address: True)
    monkeypatch.setattr(
        node_part, "_drop", lambda _watch, address: dropped.append(address)
    )
    return dropped


def masterd(node, *, runs):
    node.runner.answers["daemon-util"] = (0 if runs else 1, "", "")


def test_the_address_of_another_master_is_removed(node, dropped, caplog):
    caplog.set_level(logging.DEBUG)
    masterd(node, runs=False)
    node_part.remove_stray_address(node.watch())
    assert dropped == [ADDRESS]
    assert "but the master is n2.tst; removing" in caplog.text


def test_a_running_master_daemon_keeps_it(node, dropped):
    masterd(node, runs=True)
    node_part.remove_stray_address(node.watch())
    assert dropped == []


def test_the_master_keeps_it(node, dropped):
    masterd(node, runs=False)
    node.ssconf(master_node=node.paths.hostname)
    node_part.remove_stray_address(node.watch())
    assert dropped == []


@pytest.mark.parametrize("address", ["127.0.0.1", ADDRESS, "nonsense"])
def test_addresses_of_other_machines_and_loopback_do_not_count(address):
    assert node_part.has_address(address) is False


@pytest.mark.parametrize("form", ["answer", "error"])
def test_an_address_that_stays_is_an_error_in_the_log(
    node, dropped, monkeypatch, caplog, form
):
    def drop(_watch, _address):
        if form == "error":
            raise errors.StorageError("no route")
        return "no route"

    monkeypatch.setattr(node_part, "_drop", drop)
    masterd(node, runs=False)
    node_part.remove_stray_address(node.watch())
    assert f"address {ADDRESS} of the cluster: not removed: no route" in caplog.text


def test_a_node_that_does_not_know_the_master_keeps_it(node, dropped):
    masterd(node, runs=False)
    os.unlink(node.paths.data("ssconf_master_node"))
    node_part.remove_stray_address(node.watch())
    assert dropped == []


@pytest.mark.parametrize("is_external", [False, True, None])
def test_the_node_daemon_gets_the_parameters_of_the_cluster(
    node, monkeypatch, is_external
):
    from ganeti.master import address_removal as cluster_address

    asked = []

    def drop(_paths, own, parameters, *, is_external):
        asked.append((own, parameters, is_external))
        return Result("node_deactivate_master_ip", "n")

    monkeypatch.setattr(cluster_address, "drop", drop)
    name = node.paths.hostname
    node.ssconf(
        master_netmask="28",
        master_netdev="eth1",
        primary_ip_family="2",
        node_primary_ips=f"{name} 192.0.2.7",
    )
    if is_external is not None:
        cluster = clusters.cluster(use_external_mip_script=is_external)
        db = open_master(
            node.paths.store_db, replicate=None, clock=SystemClock(), node="x"
        )
        db.commit([Update("cluster", "", cluster)])
        db.close()
    assert node_part._drop(node.watch(), ADDRESS) is None
    wanted = {
        "uuid": name,
        "ip": ADDRESS,
        "netmask": 28,
        "netdev": "eth1",
        "ip_family": 2,
    }
    ((own, parameters, used),) = asked
    assert (own, used) == ("192.0.2.7", bool(is_external))
    assert {**parameters, "netmask": int(parameters["netmask"])} == wanted
