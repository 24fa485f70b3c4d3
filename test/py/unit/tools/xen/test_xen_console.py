"""``xen-console-wrapper``: paused guests, and who may be connected to."""

import types

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors, pathutils
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.tools.xen import xen_console

HEAD = "Name ID Mem VCPUs State Time(s)\nDomain-0 0 979 1 r----- 1.0\n"


@pytest.fixture
def node(tmp_path):
    paths = pathutils.Paths(str(tmp_path), "n1")
    runner = FakeRunner(
        xl=lambda _argv: (0, f"{HEAD}web1 3 96 1 {node.state} 1.0\n", "")
    )
    effects = NodeEffects(paths, runner, nodes.CountedClock())
    node = types.SimpleNamespace(effects=effects, runner=runner, state="--p---")
    return node


def test_a_paused_guest_is_resumed_once(node):
    shown = []
    xen_console.unpause(node.effects, "web1", shown.append)
    assert node.runner.lines[-1] == "xl unpause web1"
    assert shown == ["Instance web1 is paused, unpausing"]
    node.state = "-b----"
    xen_console.unpause(node.effects, "web1", shown.append)
    assert len(shown) == 1
    assert node.runner.lines[-1] == "xl list"


@pytest.mark.parametrize(
    ("name", "state"), [("web2", "-b----"), ("web1", "---s--"), ("0", "-b----")]
)
def test_other_guests_have_no_console(node, name, state):
    node.state = state
    with pytest.raises(errors.HypervisorError, match=f"instance {name}: "):
        xen_console.is_paused(node.effects, name)


def test_the_program_becomes_the_console_of_xl(node, monkeypatch, capsys):
    begun, become = [], []
    monkeypatch.setattr(xen_console, "NodeEffects", lambda *_args: node.effects)
    monkeypatch.setattr(xen_console, "_in_background", begun.append)
    monkeypatch.setattr(xen_console, "_become", become.append)
    xen_console.main(["xl", "web1"])
    node.state = "r-----"
    xen_console.main(["xl", "web1"])
    assert become == [["xl", "console", "web1"]] * 2
    assert len(begun) == 1
    assert "Connecting to web1, Control-] leaves." in capsys.readouterr().out
    assert xen_console.main(["xl", "web9"]) == 1
    text = "xen-console-wrapper: instance web9: not running here\n"
    assert capsys.readouterr().err == text
    assert len(become) == 2


def test_other_programs_than_xl_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        xen_console.main(["xm", "web1"])
    assert ended.value.code == 2
    assert "xl" in capsys.readouterr().err
