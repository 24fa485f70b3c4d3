"""Addresses as texts: no scope unless wanted, and then the name of an interface."""

import pytest

from ganeti.base.net import ip, netutils

#: Texts behind ``%`` with which a user reached a node, and their like.
SCOPES = [
    "lo,unix=on,addr=NAME",
    "$(id)",
    "a\nvif = b",
    "a\0",
    "a b",
    "a/b",
    "a'b",
    'a"b',
    "`id`",
    "a;b",
    "%",
    "",
    "sixteen-letters-",
    "é",
]
PARSERS = [ip.parse, ip.ipv6, ip.interface, ip.ipv6_range]


@pytest.mark.parametrize("scope", [*SCOPES, "lo", "1"])
@pytest.mark.parametrize("parse", PARSERS)
def test_no_scope_is_part_of_an_address(parse, scope):
    with pytest.raises(ValueError, match="wanted no scope"):
        parse(f"fe80::1%{scope}")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_is_the_name_of_an_interface(scope):
    with pytest.raises(ValueError, match="wanted the name of an interface"):
        ip.parse(f"fe80::1%{scope}", scope_ok=True)
    assert not netutils.is_bind_target(f"fe80::1%{scope}")
    assert not netutils.is_address(f"fe80::1%{scope}")


def test_a_place_that_wants_a_scope_gets_it():
    assert str(ip.parse("fe80::1%br-0.7", scope_ok=True)) == "fe80::1%br-0.7"
    assert netutils.is_bind_target("fe80::1%eth0")
    assert not netutils.is_address("fe80::1%eth0")


@pytest.mark.parametrize(
    "value", [1, b"\x7f\0\0\1", None, True, "1.2.3.4\n", "\uff11.2.3.4"]
)
def test_numbers_bytes_and_other_texts_are_no_addresses(value):
    for parse in (ip.parse, ip.ipv4, ip.interface, ip.ipv4_range):
        with pytest.raises(ValueError, match=r".+"):
            parse(value)


def test_addresses_and_ranges():
    assert ip.parse("2001:db8::0:1").compressed == "2001:db8::1"
    assert str(ip.interface("192.0.2.7/24").network) == "192.0.2.0/24"
    assert ip.ipv4_range("192.0.2.7/24", strict=False).num_addresses == 256
    assert ip.from_bytes(b"\x7f\0\0\1") == ip.ipv4("127.0.0.1")


@pytest.mark.parametrize("name", ["eth0", "br-0.7", "vmbr0_1", "a" * 15])
def test_names_of_interfaces(name):
    assert ip.is_interface(name)
    assert netutils.is_bind_target(name)


@pytest.mark.parametrize(
    "name", ["", "a,b", "lo;id", "-x", ".", "..", "a b", "a/b", "a:b", "a\n", "a" * 16]
)
def test_what_is_no_interface(name):
    assert not ip.is_interface(name)
    assert not netutils.is_bind_target(name)
