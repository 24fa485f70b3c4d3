"""Changes of hosts files: lines of the administrator stay."""

import pytest

from ganeti.node.calls.membership import uploads

OURS = "192.0.2.12\tn2.tst n2 # added by Ganeti"
ADMIN = "192.0.2.12  n2.tst  n2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [OURS]),
        (["127.0.0.1 localhost"], ["127.0.0.1 localhost", OURS]),
        ([ADMIN], [ADMIN]),
        ([f"{ADMIN} # rack 4"], [f"{ADMIN} # rack 4"]),
        (["# 192.0.2.12 n2.tst"], ["# 192.0.2.12 n2.tst", OURS]),
        # Another address of the same family would be found first.
        (["127.0.1.1 n2.tst n2"], [OURS]),
        (["127.0.1.1 n2.tst n2 www # x"], ["127.0.1.1\twww # x", OURS]),
        (["192.0.2.99\tn2.tst n2 # added by Ganeti"], [OURS]),
        # An address of the other family is no contradiction.
        (["2001:db8::12 n2.tst n2"], ["2001:db8::12 n2.tst n2", OURS]),
        (["not-an-address n2.tst"], ["not-an-address n2.tst", OURS]),
        # The name alone, without the address, is another host.
        (["192.0.2.12 other.tst"], ["192.0.2.12 other.tst", OURS]),
    ],
)
def test_a_host_is_added_where_no_line_has_it(before, after):
    assert uploads.with_host(before, "n2.tst", "192.0.2.12") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([OURS], []),
        ([ADMIN, OURS], [ADMIN]),
        # As written by Debian's installer and by hand: never touched.
        (["192.0.2.12\tn2.tst n2"], ["192.0.2.12\tn2.tst n2"]),
        (["192.0.2.12\tn2.tst\tn2"], ["192.0.2.12\tn2.tst\tn2"]),
        # The administrator has put another name into our line.
        (
            ["192.0.2.12 n2.tst n2 www # added by Ganeti"],
            ["192.0.2.12\twww # added by Ganeti"],
        ),
        (["192.0.2.13\tn3.tst n3 # added by Ganeti"],) * 2,
    ],
)
def test_only_lines_that_were_added_are_removed(before, after):
    assert uploads.without_host(before, "n2.tst") == after


def test_ipv6_addresses_are_equal_in_every_form():
    lines = ["2001:DB8:0::12 n2.tst"]
    assert uploads.with_host(lines, "n2.tst", "2001:db8::12") == lines
