"""Files of utilisation: a wrong line is named with its field."""

import pytest

from ganeti.commands.htools import utilisation
from ganeti.decisions.htools.model.cluster import DataError


def test_each_line_is_an_instance(tmp_path):
    path = tmp_path / "load"
    path.write_text("a.test 0.5 1 2 3\nb.test 1e-1 0 0 0\n")
    assert utilisation.read_file(str(path)) == {
        "a.test": (0.5, 1.0, 2.0, 3.0),
        "b.test": (0.1, 0.0, 0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (b"b.test 1 2 3", "wanted 'NAME cpu mem disk net', found 'b.test 1 2 3'"),
        (b"b.test 1e999 0 0 0", "field 'cpu': wanted a number from 0, found '1e999'"),
        (b"b.test 0 nan 0 0", "field 'mem': wanted a number from 0, found 'nan'"),
        (b"b.test 0 0 -1 0", "field 'disk': wanted a number from 0, found '-1'"),
        (b"b.test 0 0 0 x", "field 'net': wanted a number from 0, found 'x'"),
        (b"b.test \xff 0 0 0", "not a text file: invalid start byte, 0xff"),
    ],
)
def test_a_wrong_line_is_named(line, reported, tmp_path):
    path = tmp_path / "load"
    path.write_bytes(b"a.test 0 0 0 0\n" + line + b"\n")
    with pytest.raises(DataError) as caught:
        utilisation.read_file(str(path))
    assert str(caught.value).startswith(f"{path}, line 2")
    assert reported in str(caught.value)
