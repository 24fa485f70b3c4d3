"""Where a guest has its console is read from the options of its start."""

import pytest

from ganeti.node.hypervisor.base import ConsolePlace
from ganeti.node.hypervisor.kvm.devices import display


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("unix:/run/vnc/web1.vnc", ConsolePlace(path="/run/vnc/web1.vnc")),
        ("unix:/a,,b/web1.vnc,password=on", ConsolePlace(path="/a,b/web1.vnc")),
        (":101", ConsolePlace(host="127.0.0.1", port=6001)),
        ("0.0.0.0:101,password=on", ConsolePlace(host="127.0.0.1", port=6001)),
        ("192.0.2.7:1", ConsolePlace(host="192.0.2.7", port=5901)),
        ("[::]:1", ConsolePlace(host="::1", port=5901)),
        ("[2001:db8::1]:1", ConsolePlace(host="2001:db8::1", port=5901)),
        ("none", None),
        ("host:name", None),
    ],
)
def test_the_option_of_a_display_is_its_place(option, place):
    assert display.vnc_place(["qemu", "-vnc", option, "-k", "de"]) == place


def test_a_guest_without_the_option_has_no_display():
    assert display.vnc_place(["qemu", "-display", "none"]) is None
