"""Procedures of one step, wrong arguments, and the switch of a node."""

import dataclasses
import errno
import os
import threading
import types

import msgspec
import pytest

from fakes import clusters, nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.node.calls import power, registry, verify
from ganeti.node.calls.membership import roles


@pytest.fixture
def clock():
    return nodes.CountedClock()


@pytest.fixture
def node(tmp_path, clock):
    made = nodes.make_node(tmp_path, time=clock)
    os.makedirs(made.paths.data_dir)
    return made


def test_a_node_knows_its_protocol_and_its_master(node):
    values = {"master_node": "other.example", "cluster_name": "c1"}
    nodes.call(node, "write_ssconf_files", values)
    assert nodes.call(node, "version") == versions.PROTOCOL_VERSION
    assert nodes.call(node, "master_node_name") == "other.example"


@pytest.mark.parametrize("duration", [0, 0.5, 7])
def test_a_delay_lasts_as_long_as_wanted(node, clock, duration):
    nodes.call(node, "test_delay", duration)
    assert clock.now == 1000.0 + duration


def test_a_delay_is_not_negative(node, clock):
    with pytest.raises(errors.GenericError) as caught:
        nodes.call(node, "test_delay", -0.5)
    expected = "test_delay: wanted a duration of at least 0 s, found -0.5"
    assert str(caught.value) == expected
    assert clock.now == 1000.0


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("no_such_call", [], "no_such_call: no such procedure"),
        ("test_delay", [], "test_delay: wanted 1 arguments, found 0"),
        ("version", [1], "version: wanted 0 arguments, found 1"),
        ("test_delay", ["x"], "test_delay: "),
    ],
)
def test_calls_that_do_not_fit_are_refused(node, name, args, text):
    with pytest.raises(errors.RpcError) as caught:
        nodes.call(node, name, *args)
    assert str(caught.value).startswith(text)


def test_a_name_has_one_procedure():
    with pytest.raises(errors.ProgrammerError, match="version is registered twice"):
        registry.procedure("version")(lambda node: None)


def request(*, own=None, group=None, **params):
    """Return the call for the console of an instance under KVM, in wire form."""
    instance = clusters.instance(1, hypervisor="kvm")
    at = clusters.node(1, ndparams={} if own is None else {"ssh_port": own})
    return instance.name, {
        "instance": msgspec.to_builtins(instance),
        "node": msgspec.to_builtins(at),
        "group": {} if group is None else {"ndparams": {"ssh_port": group}},
        "hvParams": {"serial_console": True} | params,
        "beParams": {},
    }


@pytest.mark.parametrize(
    ("own", "listed", "group", "port"),
    [
        (2201, "2202", 2203, 2201),
        (None, "2202", 2203, 2202),
        (None, None, 2203, 2203),
        (None, None, None, 22),
    ],
)
def test_a_serial_console_is_reached_over_the_port_of_its_node(
    node, own, listed, group, port
):
    name, wire = request(own=own, group=group)
    at = wire["node"]
    if listed is not None:
        row = f"{at['name']}={listed}"
        nodes.call(node, "write_ssconf_files", {"ssh_ports": row})
    ((found_name, console),) = nodes.call(
        node, "instance_console_info", {name: wire}
    ).items()
    assert (found_name, console["instance"], console["kind"]) == (name, name, "ssh")
    assert (console["host"], console["port"]) == (at["primary_ip"], port)
    assert name in " ".join(console["command"])


def test_a_console_of_an_unknown_hypervisor_is_refused(node):
    name, wire = request()
    wire["instance"]["hypervisor"] = "vmware"
    with pytest.raises(errors.GenericError, match="vmware"):
        nodes.call(node, "instance_console_info", {name: wire})


@pytest.mark.parametrize("missing", ["sysrq", "trigger"])
def test_a_trigger_that_cannot_be_opened_leaves_no_file_open(tmp_path, missing):
    for name in ("sysrq", "trigger"):
        if name != missing:
            (tmp_path / name).write_text("")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        power.SysrqSwitch.open(str(tmp_path / "sysrq"), str(tmp_path / "trigger"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_machine_without_threads_is_reset_by_the_call_itself(
    node, clock, monkeypatch
):
    class Full:
        def __init__(self, **_options):
            pass

        def start(self):
            raise RuntimeError("can't start new thread")

    done = []
    switch = type("Switch", (), {"cycle": lambda _self: done.append(clock.now)})()
    broken = dataclasses.replace(node, power=switch)
    monkeypatch.setattr(roles.threading, "Thread", Full)
    answer = nodes.call(broken, "node_powercycle", "kvm", {})
    assert answer == "Reboot scheduled in 5 seconds"
    assert done == [1005.0]


@pytest.mark.parametrize(
    "problem", [OSError(errno.EIO, "I/O"), errors.HypervisorError("not permitted")]
)
def test_a_reset_that_fails_is_logged(node, caplog, problem):
    class Switch:
        def cycle(self):
            raise problem

    asked = []
    driver = types.SimpleNamespace(reset_host=lambda: asked.append("hypervisor"))
    broken = dataclasses.replace(node, power=Switch())
    roles._cycle(broken, None)
    assert f"power cycle failed: {problem}" in caplog.text
    # The hypervisor may still be able to.
    roles._cycle(broken, driver)
    assert asked == ["hypervisor"]


@pytest.mark.parametrize(("run", "verb"), [(True, "check-and-start"), (False, "stop")])
def test_a_helper_daemon_is_started_and_stopped(node, run, verb):
    (daemon,) = roles._HELPER_DAEMONS[:1]
    runner = FakeRunner(daemon_util=FakeRunner.DONE)
    given = dataclasses.replace(node, process=runner)
    assert nodes.call(given, "node_ensure_daemon", daemon, run) is True
    ((command, _options),) = runner.commands
    assert command == (f"{node.paths.tools_dir}/daemon-util", verb, daemon)
    runner.answers["daemon-util"] = (1, "", "broken")
    assert nodes.call(given, "node_ensure_daemon", daemon, run) is False


@pytest.mark.parametrize(
    ("missing", "problems"),
    [
        (None, []),
        ("/sys/block", ["sysfs"]),
        ("/sys/class/net", ["sysfs"]),
        ("/proc/sys", ["procfs"]),
        ("/proc/self/stat", ["procfs"]),
    ],
)
def test_a_missing_file_system_is_named(monkeypatch, missing, problems):
    monkeypatch.setattr(verify.os.path, "isdir", lambda path: path != missing)
    monkeypatch.setattr(verify.os.path, "exists", lambda path: path != missing)
    texts = {
        "sysfs": "the sysfs filesystem doesn't seem to be mounted under /sys",
        "procfs": "the procfs filesystem doesn't seem to be mounted under /proc",
    }
    assert verify._nodesetup(None, None) == [texts[each] for each in problems]


def test_a_thread_that_waits_for_the_reset_does_not_keep_the_daemon(
    node, clock, monkeypatch
):
    made = []

    class Thread(threading.Thread):
        def start(self):
            made.append(self.daemon)

    monkeypatch.setattr(roles.threading, "Thread", Thread)
    nodes.call(node, "node_powercycle", "kvm", {})
    assert made == [True]


# The switch of a node, against a recorded ``ovs-vsctl``.


@pytest.fixture
def switch_node(tmp_path):
    return dataclasses.replace(
        nodes.make_node(tmp_path), process=FakeRunner(ovs_vsctl=FakeRunner.DONE)
    )


def test_a_switch_with_its_port_is_created_once(switch_node):
    nodes.call(switch_node, "node_configure_ovs", "switch1", "lo")
    nodes.call(switch_node, "node_configure_ovs", "switch1", "")
    nodes.call(switch_node, "node_configure_ovs", "switch1", None)
    create = "ovs-vsctl --timeout=60 -- --may-exist add-br switch1"
    assert switch_node.process.lines == [
        f"{create} -- --may-exist add-port switch1 lo",
        create,
        create,
    ]


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("", "", "wanted the name of a switch, found ''"),
        ("--db", "", "wanted the name of a switch"),
        ("a b", "", "wanted the name of a switch"),
        ("switch1", "none0", "link of switch1, found 'none0'"),
        ("switch1", "../lo", "link of switch1"),
        ("switch1", "-x", "link of switch1"),
    ],
)
def test_malformed_names_and_absent_interfaces_are_refused(
    switch_node, name, link, text
):
    with pytest.raises(errors.GenericError, match=text):
        nodes.call(switch_node, "node_configure_ovs", name, link)
    assert switch_node.process.lines == []


def test_the_words_of_the_tool_are_passed_on(switch_node):
    switch_node.process.answers["ovs-vsctl"] = (1, "", "database connection failed")
    with pytest.raises(errors.GenericError, match="database connection failed"):
        nodes.call(switch_node, "node_configure_ovs", "switch1", "")


def test_a_node_without_the_package_says_which_one(tmp_path):
    if os.path.exists("/usr/bin/ovs-vsctl"):
        pytest.skip("Open vSwitch is installed here")
    switch_node = nodes.make_node(tmp_path)
    with pytest.raises(errors.GenericError, match="package openvswitch-switch"):
        nodes.call(switch_node, "node_configure_ovs", "switch1", "")
