"""``mon-collector``: options that each of its commands knows."""

import pytest

from ganeti.base.constants import exitcodes
from ganeti.node.collectors import sources
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[", "not JSON"), ("[" * 200_000, "not JSON: nested too deeply"), ("{}", "")],
    ids=["broken", "deep", "other"],
)
@pytest.mark.parametrize(
    "arguments",
    [["lv", "-f", "{}"], ["lv", "-f", "{}", "-i", "{}"], ["drbd", "-s", "{}"]],
    ids=lambda arguments: "".join(arguments[::2]),
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path, capsys, monkeypatch, arguments, text, problem
):
    monkeypatch.setattr(sources.Sources, "minor_owners", lambda _self: {})
    monkeypatch.setattr(sources.Sources, "volume_owners", lambda _self: {})
    path = tmp_path / "data"
    path.write_text(text)
    words = [word.format(path) for word in arguments]
    assert mon_collector.main(words) == exitcodes.EXIT_FAILURE
    error = capsys.readouterr().err
    assert error.startswith(f"mon-collector: {words[0]}: {path}: ")
    assert problem in error or words[0] == "drbd"
