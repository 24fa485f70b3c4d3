"""Names and addresses."""

import os
import socket

import msgspec
import pytest

from ganeti.base import errors
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.model import ht


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def test_a_virtual_nodes_hosts_file_comes_first(tmp_path):
    paths = Paths(root=str(tmp_path), hostname="n1.tst")
    os.makedirs(tmp_path / "etc")
    (tmp_path / "etc/hosts").write_text("# all\n127.9.9.9 other n2.tst # two\n")
    assert netutils.lookup("n2.tst", paths) == "127.9.9.9"
    assert netutils.lookup("192.0.2.7", paths) == "192.0.2.7"
    with pytest.raises(errors.ResolverError) as caught:
        netutils.lookup("no-such-name.invalid", paths)
    assert caught.value.args[0] == "no-such-name.invalid"
    for wrong in ("bogus..", "x" * 70 + ".tst"):
        with pytest.raises(errors.ResolverError):
            netutils.lookup(wrong, paths)


def test_ping_needs_somebody_who_listens(listening):
    assert netutils.tcp_ping("127.0.0.1", listening, live_port_needed=True)


def test_a_refusal_is_an_answer_unless_a_service_is_wanted(listening):
    unused = "127.0.0.2"
    assert netutils.tcp_ping(unused, listening, timeout_s=1)
    assert not netutils.tcp_ping(unused, listening, timeout_s=1, live_port_needed=True)


def test_whose_address_it_is():
    assert netutils.owns_address("127.44.0.1")
    assert not netutils.owns_address("192.0.2.123")
    with pytest.raises(errors.GenericError, match="no-such-device"):
        netutils.interface_address("no-such-device")
    assert netutils.interface_address("lo") == "127.0.0.1"


def test_families():
    assert netutils.family("::1") == socket.AF_INET6
    with pytest.raises(errors.IPAddressError, match="example"):
        netutils.family("example")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", True),
        ("2001:db8::1", True),
        ("192.0.2.256", False),
        ("1.2.3", False),
        ("12", False),
        ("eth0:1", False),
        ("eth0", True),
        ("br-lan.12", True),
        ("a" * 15, True),
        ("a" * 16, False),
        ("", False),
        ("a/b", False),
        ("a b", False),
    ],
)
def test_a_service_listens_on_an_address_or_an_interface(text, expected):
    assert netutils.is_bind_target(text) is expected


def test_loopback_addresses():
    own = ["127.0.0.1", "127.255.0.9", "::1"]
    others = ["128.0.0.1", "::2", "localhost", ""]
    assert [text for text in own + others if netutils.is_loopback(text)] == own
    assert netutils.family("192.0.2.1") == socket.AF_INET


def test_a_virtual_node_finds_addresses_of_the_wanted_family(tmp_path):
    paths = Paths(root=str(tmp_path), hostname="n1.tst")
    os.makedirs(tmp_path / "etc")
    (tmp_path / "etc/hosts").write_text(
        "\n# 127.1.1.1 n2.tst\nodd n2.tst\n127.2.2.2\n"
        "127.9.9.9 two.tst n2.tst\n2001:db8::9 n2.tst\n127.9.9.8 n2.tst\n"
    )
    everything = ("two.tst", ["127.9.9.9", "2001:db8::9", "127.9.9.8"])
    assert netutils.lookup_host("n2.tst", paths) == everything
    old = ("two.tst", ["127.9.9.9", "127.9.9.8"])
    assert netutils.lookup_host("n2.tst", paths, want=socket.AF_INET) == old
    new = ("n2.tst", ["2001:db8::9"])
    assert netutils.lookup_host("n2.tst", paths, want=socket.AF_INET6) == new
    assert netutils.lookup("n2.tst", paths, want=socket.AF_INET6) == "2001:db8::9"
    assert list(netutils.read_hosts(str(tmp_path / "none"))) == []


def test_a_comment_in_the_hosts_file_may_have_any_bytes(tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(b"# K\xfcche\n192.0.2.7 printer\n")
    assert list(netutils.read_hosts(str(path))) == [("192.0.2.7", ["printer"])]


def test_other_nodes_ask_the_resolver(monkeypatch):
    asked = []
    rows = [
        (socket.AF_INET, 1, 6, "web1.example.com", ("192.0.2.1", 0)),
        (socket.AF_INET, 1, 6, "", ("192.0.2.2", 0)),
    ]

    def resolve(*args, **options):
        asked.append((args, options))
        return rows

    monkeypatch.setattr(netutils.socket, "getaddrinfo", resolve)
    paths = Paths(root="", hostname="n1")
    answer = ("web1.example.com", ["192.0.2.1", "192.0.2.2"])
    assert netutils.lookup_host("web1", paths, want=socket.AF_INET) == answer
    assert netutils.lookup("web1", paths) == "192.0.2.1"
    flags = {"flags": socket.AI_CANONNAME}
    assert asked == [
        (("web1", None, socket.AF_INET, socket.SOCK_STREAM), flags),
        (("web1", None, socket.AF_UNSPEC, socket.SOCK_STREAM), flags),
    ]
    # Not every resolver gives a full name.
    rows[:] = rows[1:]
    assert netutils.lookup_host("web1", paths) == ("web1", ["192.0.2.2"])


def test_failures_of_the_resolver_have_name_number_and_text(monkeypatch):
    def fail(*_args, **_options):
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    paths = Paths(root="", hostname="n1")
    with pytest.raises(errors.ResolverError) as caught:
        netutils.lookup("x" * 64 + ".tst", paths)
    assert caught.value.args == (
        "x" * 64 + ".tst",
        socket.EAI_NONAME,
        "not a valid host name",
    )
    monkeypatch.setattr(netutils.socket, "getaddrinfo", fail)
    with pytest.raises(errors.ResolverError) as caught:
        netutils.lookup("web1", paths)
    assert caught.value.args == ("web1", socket.EAI_AGAIN, "try again")


def test_a_machine_is_asked_from_the_given_address(listening):
    assert netutils.tcp_ping("127.0.0.1", listening, source="127.0.0.3")
    # An address of another machine cannot be used as one's own.
    assert not netutils.tcp_ping("127.0.0.1", listening, source="192.0.2.123")


def test_silence_is_no_answer(monkeypatch):
    class Silent:
        def __init__(self, *kind):
            assert kind == (socket.AF_INET6, socket.SOCK_STREAM)

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            pass

        def settimeout(self, seconds):
            assert seconds == 2.5

        def connect(self, address):
            assert address == ("2001:db8::1", 22)
            raise TimeoutError

    monkeypatch.setattr(netutils.socket, "socket", Silent)
    assert not netutils.tcp_ping("2001:db8::1", 22, timeout_s=2.5)


class Routes:
    """The kernel's tables of interfaces and addresses."""

    changes = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def get_links(self):
        return [Row({"index": 3}, IFLA_IFNAME="br0")]

    def get_addr(self):
        return [
            Row({"index": 3, "prefixlen": 24}, IFA_LOCAL="192.0.2.5", IFA_ADDRESS="x"),
            Row({"index": 4, "prefixlen": 64}, IFA_ADDRESS="2001:db8::5"),
        ]

    def link_lookup(self, ifname):
        return [3] if ifname == "br0" else []

    def addr(self, action, **options):
        from pyroute2.netlink.exceptions import NetlinkError

        self.changes.append((action, options))
        if options["address"] == "192.0.2.66":
            raise NetlinkError(17, "File exists")


class Row(dict):
    """A row of a table: some members, and attributes."""

    def __init__(self, members, **attributes):
        super().__init__(members)
        self._attributes = attributes

    def get_attr(self, name):
        return self._attributes.get(name)


@pytest.fixture
def routes(monkeypatch):
    import pyroute2

    monkeypatch.setattr(pyroute2, "IPRoute", Routes)
    monkeypatch.setattr(Routes, "changes", [])
    return Routes


def test_addresses_of_this_machine(routes):
    assert netutils.own_addresses() == [
        ("br0", "192.0.2.5", 24),
        ("", "2001:db8::5", 64),
    ]
    assert netutils.owns_address("192.0.2.5")
    assert netutils.owns_address("2001:DB8:0::5")
    assert not netutils.owns_address("192.0.2.6")
    assert netutils.interface_address("br0") == "192.0.2.5"
    with pytest.raises(errors.GenericError, match="br0: has no address to bind to"):
        netutils.interface_address("br0", socket.AF_INET6)


def test_an_address_is_added_with_a_label_and_never_as_a_source(routes):
    netutils.add_address("br0", "192.0.2.100", 24, label="br0:0")
    netutils.add_address("br0", "192.0.2.101", 32)
    # Labels are names of IPv4 addresses alone.
    netutils.add_address("br0", "2001:db8::100", 64, label="br0:0")
    netutils.remove_address("br0", "192.0.2.100", 24)
    one = {"index": 3, "address": "192.0.2.100", "prefixlen": 24}
    assert routes.changes == [
        ("add", one | {"preferred_lft": 0, "label": "br0:0"}),
        ("add", one | {"address": "192.0.2.101", "prefixlen": 32, "preferred_lft": 0}),
        (
            "add",
            {
                "index": 3,
                "address": "2001:db8::100",
                "prefixlen": 64,
                "preferred_lft": 0,
            },
        ),
        ("del", one),
    ]


def test_an_address_that_cannot_be_changed_is_named(routes):
    for change, verb in (
        (netutils.add_address, "add"),
        (netutils.remove_address, "del"),
    ):
        with pytest.raises(errors.IPAddressError) as caught:
            change("br9", "192.0.2.1", 24)
        text = f"{verb} 192.0.2.1/24 on br9: no such interface"
        assert caught.value.args == (text,)
        with pytest.raises(errors.IPAddressError, match=f"{verb} .*66/24.*File exists"):
            change("br0", "192.0.2.66", 24)


def test_ports_come_from_the_services_file_or_are_the_default(monkeypatch):
    asked = []

    def find(name, protocol):
        asked.append((name, protocol))
        if name == "none":
            raise OSError("service/proto not found")
        return 1999

    monkeypatch.setattr(netutils.socket, "getservbyname", find)
    assert netutils.service_port("ganeti-noded", 1811) == 1999
    assert netutils.service_port("none", 1814, "udp") == 1814
    assert asked == [("ganeti-noded", "tcp"), ("none", "udp")]


def test_a_name_is_normalised():
    assert netutils.normalize_host_name("Node1.Example.COM.") == "node1.example.com"


@pytest.mark.parametrize(
    "name", ["good\n", "good\n.node9\n", "a\n.b", "", "-x", "a..b", "a b", "x" * 256]
)
def test_other_texts_are_refused(name):
    with pytest.raises(errors.OpPrereqError, match="wanted a host name"):
        netutils.normalize_host_name(name)


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
    assert netutils.normalize_host_name(longest) == longest
    assert netutils.normalize_host_name("a_b-1") == "a_b-1"
    for wrong in (f"{label}x", f"{longest}z", f"{longest[:-1]}.z", "a-", "a-.b", "a.."):
        with pytest.raises(errors.OpPrereqError) as caught:
            netutils.normalize_host_name(wrong)
        assert caught.value.args == (
            f"wanted a host name such as web1.example.com, found {wrong!r}",
            "wrong_input",
        )


def test_a_name_that_could_be_a_uuid_is_refused():
    netutils.refuse_uuid("web1", "group web1")
    uuid = "00000000-0000-4000-8000-0000000000a0"
    netutils.refuse_uuid(f"{uuid}0", "group x")
    with pytest.raises(errors.OpPrereqError) as caught:
        netutils.refuse_uuid(uuid, f"group {uuid}")
    text = f"group {uuid}: a name must not look like a uuid"
    assert caught.value.args == (text, "wrong_input")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://a.example/b/c.img", "https://a.example/b/c.img"),
        ("https://u:p@a.example:8443/c", "https://a.example:8443/c"),
        ("https://u:p@q@a.example/c", "https://a.example/c"),
        ("https://a.example/c@d", "https://a.example/c@d"),
        ("https://a.example?token=u:p@b", "https://a.example?..."),
        ("https://u:p?q@a.example/c", "https://u..."),
        ("https://u:p#q@a.example/c", "https://u..."),
        ("https://u:1/q@a.example/c", "https://u..."),
        ("https://u:p/q?r@a.example/c", "https://u..."),
        ("https://a/u:p@a.example/c", "https://a/u..."),
        ("https://u:p@a.example:80/c?t=e@f", "https://a.example..."),
        ("https://a.example/c#token", "https://a.example/c#..."),
        ("https:u:p@a.example/c?t", "a.example/c?..."),
        ("u:p@a.example/c?t", "a.example/c?..."),
        ("https://", "https://"),
        ("/srv/images", "/srv/images"),
    ],
)
def test_messages_show_a_url_without_secrets(url, text):
    assert netutils.shown_url(url) == text
