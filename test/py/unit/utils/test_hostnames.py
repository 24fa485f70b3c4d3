"""Texts that look like host names."""

import msgspec
import pytest

from ganeti import errors, ht
from ganeti.utils import hostnames


def test_a_name_is_normalised():
    assert hostnames.normalize("Node1.Example.COM.") == "node1.example.com"


@pytest.mark.parametrize(
    "name", ["good\n", "good\n.node9\n", "a\n.b", "", "-x", "a..b", "a b", "x" * 256]
)
def test_other_texts_are_refused(name):
    with pytest.raises(errors.OpPrereqError, match="wanted a host name"):
        hostnames.normalize(name)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ht.IPv4Address, "192.0.2.1"),
        (ht.IPv4Network, "192.0.2.0/24"),
        (ht.IPv6Address, "2001:db8::1"),
        (ht.IPv6Network, "2001:db8::/64"),
        (ht.JobId, "12"),
    ],
)
def test_patterned_types_take_no_second_line(kind, text):
    assert msgspec.convert(text, kind) == text
    for more in ("\n", "\nx"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(text + more, kind)
