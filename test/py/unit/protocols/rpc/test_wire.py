"""Forms of arguments."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols.rpc import runner, wire


@given(st.binary(max_size=3000))
def test_packing_loses_nothing(data):
    assert wire.unpack(wire.pack(data)) == data


def test_short_texts_travel_plain_and_long_ones_compressed():
    assert wire.pack("short") == [0, "short"]
    assert wire.pack("x" * 511)[0] == 0
    encoding, text = wire.pack("x" * 512)
    assert encoding == 1
    assert len(text) < 100


@pytest.mark.parametrize(
    "packed",
    [None, [0], [7, "x"], [0, 5], [1, "no base64!"], [1, "eJw="], [0, "a", "b"]],
)
def test_wrong_forms_are_refused(packed):
    with pytest.raises(errors.ParseError):
        wire.unpack(packed)


def test_a_bomb_is_not_unpacked(monkeypatch):
    packed = wire.pack("x" * 5000)
    monkeypatch.setattr(wire, "MAX_UNPACKED", 4999)
    with pytest.raises(errors.ParseError, match="too large"):
        wire.unpack(packed)


def test_values_that_differ_by_node():
    args = ["a", {"deep": [wire.PerNode(n1={"minor": 1}, n2={"minor": 2})]}]
    assert wire.differs_by_node(args)
    assert wire.resolve(args, "n2") == ["a", {"deep": [{"minor": 2}]}]
    assert wire.resolve(args, "n3") == ["a", {"deep": [None]}]
    assert not wire.differs_by_node(["a", {"b": [1, (2, 3)]}])


def test_uploads_carry_virtual_paths_and_names(tmp_path):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    os.makedirs(paths.data_dir)
    path = paths.data("hmac.key")
    with open(path, "w") as stream:
        stream.write("secret")
    os.chmod(path, 0o440)
    name, content, mode, user, group, _atime, mtime = wire.upload(path, paths)
    assert name == "/###-VIRTUAL-PATH-###,/var/lib/ganeti/hmac.key"
    assert (wire.unpack(content), mode) == (b"secret", 0o440)
    assert isinstance(user, str)
    assert isinstance(group, str)
    assert mtime == os.stat(path).st_mtime


def test_nodes_whose_arguments_are_equal_share_one_body():
    args = [wire.PerNode(n1={"minor": 1}), "x" * 100]
    one, other, same = runner._bodies(args, ["n1", "n2", "n3"])
    assert one != other
    assert other is same
    assert runner._bodies(lambda node: [node[:1]], ["n1", "n2"])[1] == b'["n"]'
