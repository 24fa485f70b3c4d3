"""Daemons that an administrator does not want on a node."""

import pytest

from ganeti.base.filesystem import disabled_daemons
from ganeti.base.pathutils import Paths


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "n1/etc/default").mkdir(parents=True)
    return Paths(root=str(tmp_path / "n1"), hostname="n1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("DISABLED_DAEMONS=ganeti-mond\n", {"ganeti-mond"}),
        (
            '  DISABLED_DAEMONS="ganeti-mond  ganeti-rapi" # no\n',
            {"ganeti-mond", "ganeti-rapi"},
        ),
        ("#DISABLED_DAEMONS=ganeti-mond\nX=DISABLED_DAEMONS=ganeti-rapi\n", set()),
        # The last assignment counts, as in a shell.
        ("DISABLED_DAEMONS=a\nDISABLED_DAEMONS='b'\n", {"b"}),
        ("DISABLED_DAEMONS=a\nDISABLED_DAEMONS=\n", set()),
        # A line that no shell can read changes nothing.
        ("DISABLED_DAEMONS=a\nDISABLED_DAEMONS='b\nX=1\n", {"a"}),
    ],
)
def test_the_variable_of_the_defaults_lists_them(paths, text, names):
    with open(paths.at("/etc/default/ganeti"), "w") as out:
        out.write(text)
    assert disabled_daemons.names(paths) == names


def test_without_the_file_none_is_disabled(paths):
    assert disabled_daemons.names(paths) == frozenset()
    with open(paths.at("/etc/default/ganeti"), "wb") as out:
        out.write(b"# \xff\nDISABLED_DAEMONS=ganeti-mond\n")
    assert disabled_daemons.names(paths) == {"ganeti-mond"}
