"""The program ``hail``: input, output, exit codes."""

import io
import json
import sys
from typing import Any

import pytest

from fakes import placement
from ganeti.commands.htools import hail

FOUR = {f"n{k}": placement.node() for k in range(1, 5)}


@pytest.fixture
def program(monkeypatch, capsys):
    def run(*argv: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hail", *argv])
        source = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        monkeypatch.setattr(sys, "stdin", source)
        try:
            code = hail.main()
        except SystemExit as err:
            code = int(err.code or 0)
        out, errors = capsys.readouterr()
        return code, out, errors

    return run


def asked(**more: Any) -> str:
    return json.dumps(placement.request(FOUR, placement.allocation("plain", **more)))


def test_the_answer_is_one_line(program, tmp_path) -> None:
    path = tmp_path / "request"
    path.write_text(asked())
    code, out, errors = program(str(path))
    assert (code, errors, out.count("\n")) == (0, "", 1)
    assert list(json.loads(out)) == ["success", "info", "result"]
    assert json.loads(out)["result"] == ["n4"]


def test_an_instance_that_exists_may_get_its_disks_again(program) -> None:
    asked = placement.allocation("plain", name="web1")
    there = {"web1": placement.instance("plain", nodes=["n1"])}
    request = json.dumps(placement.request(FOUR, asked, there))
    code, out, _errors = program("-", stdin=request)
    assert (code, json.loads(out)["success"]) == (0, True)


def test_refusals_end_with_success_too(program) -> None:
    code, out, _errors = program("-", stdin=asked(memory=99999))
    assert code == 0
    assert json.loads(out) == {
        "success": False,
        "info": "Request failed: Group group0 (preferred): No valid allocation"
        " solutions, failure reasons: FailMem: 4",
        "result": [],
    }


def test_options_reach_the_solver(program) -> None:
    _code, out, errors = program(
        "--restrict=n1,n2", "-pname", "-", "-v", "-v", stdin=asked()
    )
    assert json.loads(out)["result"] == ["n2"]
    assert errors.startswith('Received request: {"type": "allocate"')
    assert "Initial cluster status:\n Name\n n1  " in errors


def test_states_are_saved_and_can_be_read(program, tmp_path) -> None:
    path = str(tmp_path / "state")
    _code, _out, errors = program("-S", path, "-", stdin=asked())
    assert f"written to file '{path}.pre-ialloc'" in errors
    after = (tmp_path / "state.post-ialloc").read_text()
    assert "new|1024|4096|1|running|Y|n4||plain|" in after
    _code, out, _errors = program(
        "-t", f"{path}.post-ialloc", "-", stdin=asked(name="other")
    )
    assert json.loads(out)["result"] == ["n3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version": 2, "nod', "not valid JSON"),
        ("[]", "input: wanted an object"),
        ("{}", "wanted a value, found nothing"),
        (asked(memory=-1), "request.memory: wanted a number from 0, found -1"),
        (asked(type="dance"), "Invalid request type 'dance'"),
        (asked(**{"restrict-to-nodes": ["n9"]}), "known node names, found 'n9'"),
        (asked(memory=float("nan")), "request.memory"),
        ("[" * 100000, "request"),
    ],
)
def test_bad_input_gives_one_message(program, text: str, words: str) -> None:
    code, out, errors = program("-vv", "-", stdin=text)
    assert (code, out) == (1, "")
    last = errors.splitlines()[-1]
    assert last.startswith("Error: ")
    assert words in last


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 1, "Error: This program needs an input file."),
        (["a", "b"], 1, "Error: Only one argument is accepted (the input file)"),
        (["/nowhere/file"], 1, "Error: /nowhere/file: No such file or directory"),
        (["--dance", "a"], 2, "Command line error: "),
        (["--static-kvm-node-memory=x", "a"], 1, "Error while parsing command line"),
    ],
)
def test_wrong_use(program, argv: list[str], code: int, words: str) -> None:
    actual, out, errors = program(*argv)
    assert (actual, out) == (code, "")
    assert errors.startswith(words)


def test_help_version_completion(program) -> None:
    assert "Usage: hail [OPTION...]" in program("--help")[1]
    assert program("-V")[1].startswith("hail (ganeti) version ")
    assert "-t,--text-data file\n" in program("--help-completion")[1]
