"""Texts that look like host names."""

import msgspec
import pytest

from ganeti.base import errors
from ganeti.base.net import hostnames
from ganeti.model import ht


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


def test_labels_have_up_to_63_characters_and_names_up_to_255():
    label = "x" * 63
    longest = ".".join([label] * 3 + ["y" * 63])
    assert len(longest) == 255
    assert hostnames.normalize(longest) == longest
    assert hostnames.normalize("a_b-1") == "a_b-1"
    for wrong in (f"{label}x", f"{longest}z", f"{longest[:-1]}.z", "a-", "a-.b", "a.."):
        with pytest.raises(errors.OpPrereqError) as caught:
            hostnames.normalize(wrong)
        assert caught.value.args == (
            f"wanted a host name such as web1.example.com, found {wrong!r}",
            "wrong_input",
        )


def test_a_name_that_could_be_a_uuid_is_refused():
    hostnames.refuse_uuid("web1", "group web1")
    uuid = "00000000-0000-4000-8000-0000000000a0"
    hostnames.refuse_uuid(f"{uuid}0", "group x")
    with pytest.raises(errors.OpPrereqError) as caught:
        hostnames.refuse_uuid(uuid, f"group {uuid}")
    text = f"group {uuid}: a name must not look like a uuid"
    assert caught.value.args == (text, "wrong_input")
