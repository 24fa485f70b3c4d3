"""Private parameters come from files too, and errors never show them."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

LINE = "gnt-debug test-osparams --os-parameters-secret"


def secrets_of(master):
    (ops,) = master.jobs.values()
    (op,) = ops
    return op.osparams_secret


def test_a_file_has_a_value_a_line(tmp_path):
    path = tmp_path / "secrets"
    path.write_text("# of the test\n\npass=a,b=c \nempty=\n  key=x\n")
    master = FakeMaster()
    assert commands.run([*LINE.split(), f"@{path}"], master).code == 0
    assert secrets_of(master) == {"pass": "a,b=c ", "empty": "", "key": "x"}


def test_standard_input_works_as_well():
    master = FakeMaster()
    done = commands.run([*LINE.split(), "@-"], master, stdin="pass=secret\n")
    assert done.code == 0
    assert secrets_of(master) == {"pass": "secret"}


def test_the_short_form_is_as_ever():
    master = FakeMaster()
    assert commands.run([*LINE.split(), "pass=@home,on"], master).code == 0
    assert secrets_of(master) == {"pass": "@home", "on": True}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("pass=hush\nhush\n", "line 2: wanted key=value"),
        ("=hush\n", "line 1: wanted key=value"),
        ("pass=hush\npass=hush\n", "line 2: key pass is given twice"),
    ],
)
def test_wrong_lines_are_named_but_not_shown(tmp_path, content, text):
    path = tmp_path / "secrets"
    path.write_text(content)
    master = FakeMaster()
    done = commands.run([*LINE.split(), f"@{path}"], master)
    assert (done.code, done.out, master.jobs) == (1, "", {})
    assert f"--os-parameters-secret: {path}, {text}" in done.err
    assert "hush" not in done.err


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    done = commands.run([*LINE.split(), f"@{tmp_path}/none"], FakeMaster())
    assert done.code == 1
    assert f"cannot read {tmp_path}/none: No such file" in done.err
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    done = commands.run([*LINE.split(), f"@{tmp_path}/binary"], FakeMaster())
    assert "binary: is not text" in done.err


def test_wrong_words_are_not_shown():
    done = commands.run([*LINE.split(), "pass=hush,pass=hush"], FakeMaster())
    assert done.code == 1
    assert "hush" not in done.err
    assert "given twice" in done.err
