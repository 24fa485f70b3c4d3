"""Which socket commands talk to."""

import pytest

from ganeti.base.pathutils import Paths
from ganeti.commands.cli import context
from ganeti.protocols import luxi


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("", "/n1.tst/var/run/ganeti/socket/ganeti-query"),
        ("query", "/n1.tst/var/run/ganeti/socket/ganeti-query"),
        ("master", "/n1.tst/var/run/ganeti/socket/ganeti-master"),
        ("/tmp/other", "/tmp/other"),
    ],
)
def test_the_environment_may_name_another_socket(monkeypatch, word, wanted):
    monkeypatch.setenv("FORCE_LUXI_SOCKET", word)
    chosen = []

    def remember(path, **_):
        chosen.append(path)

    monkeypatch.setattr(luxi.Client, "__init__", lambda _, path, **kw: remember(path))
    paths = Paths(root="/n1.tst", hostname="n1.tst")
    context.real_effects().connect(paths, lambda _: None)
    assert chosen == [wanted]
