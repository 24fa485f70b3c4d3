"""``gnt-network`` where its other refusals are in test/data/client/network.txt."""

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.commands.cli.waiting import operation


def test_another_refusal_than_a_lack_of_changes_is_shown(monkeypatch):
    def refuse(_ctx):
        raise errors.refusal("gateway: no address")

    monkeypatch.setattr(operation, "fill", refuse)
    done = commands.run("gnt-network modify --gateway=x blue", FakeMaster())
    assert done.code == 1
    assert "gateway: no address" in done.err
    assert "at least one" not in done.err
