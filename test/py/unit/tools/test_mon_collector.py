"""``mon-collector``: options that each of its commands knows."""

import pytest

from ganeti.tools import mon_collector


@pytest.mark.parametrize("name", ["lv", "drbd", "diskstats", "diagnose"])
def test_each_command_knows_version_and_completion(name, capsys):
    for option, wanted in (
        ("--version", "mon-collector (ganeti) "),
        ("--help-completion", "--version none\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            mon_collector.main([name, option])
        assert ended.value.code == 0
        assert wanted in capsys.readouterr().out


def test_the_completion_names_kinds_of_arguments(capsys):
    with pytest.raises(SystemExit):
        mon_collector.main(["lv", "--help-completion"])
    lines = capsys.readouterr().out.splitlines()
    assert {"-f,--file file", "-a,--address host", "-p,--port integer"} < set(lines)
