"""The part of `test_nics` that runs on a machine: NICs without guests, on real links.

A frame that is written to the tap of a NIC is one that the guest has sent. Ends with
``all good``.
"""

import contextlib
import os
import select
import socket
import subprocess
import types

from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.model.objects.filled import NicX
from ganeti.node.calls import basics
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.devices import taps

#: For local experiments; nobody else sends these.
PROTOCOL = 0x88B5
MAC = "aa:00:00:00:00:01"
VLANS = (100, 200, 300)
EFFECTS = NodeEffects(Paths(), SystemRunner(), SystemClock())


def run(line):
    done = subprocess.run(line.split(), check=False, text=True, capture_output=True)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def frame(text, vlan=None):
    tag = b"" if vlan is None else b"\x81\x00" + vlan.to_bytes(2, "big")
    source = bytes.fromhex(MAC.replace(":", ""))
    head = b"\xff" * 6 + source + tag + PROTOCOL.to_bytes(2, "big")
    return (head + text.encode()).ljust(64, b"\0")


def of_frame(data):
    """Return the VLAN and the text of one of these frames, None for another frame."""
    vlan, place = None, 12
    if data[place : place + 2] == b"\x81\x00":
        vlan = int.from_bytes(data[place + 2 : place + 4], "big") & 0xFFF
        place += 4
    if int.from_bytes(data[place : place + 2], "big") != PROTOCOL:
        return None
    return vlan, data[place + 2 :].rstrip(b"\0").decode()


@contextlib.contextmanager
def connected(mode, link, vlan="", ip=None):
    """Open the tap of a NIC and connect it as at the start of a guest."""
    params = {"mode": mode, "link": link, "vlan": vlan}
    nic = NicX(
        mac=MAC,
        uuid=f"0c1d2e3f-4a5b-4c60-8e7f-{os.getpid():012d}",
        ip=ip,
        nicparams=params,
    )
    tap = taps.open_tap(nic, {"vnet_hdr": False}, "web1")
    env = {"INTERFACE": tap.name, "MODE": mode, "LINK": link, "MAC": MAC}
    env |= {"BRIDGE": link} if mode == "bridged" else {}
    env |= {"VLAN": vlan} if vlan else {}
    env |= {"IP": ip} if ip else {}
    try:
        taps.connect(EFFECTS, env)
        yield tap
        if mode == "openvswitch":
            networks.leave_switch(EFFECTS, tap.name)
    finally:
        tap.close()


@contextlib.contextmanager
def listening(names):
    """Open a socket for all frames of each interface."""
    with contextlib.ExitStack() as stack:
        opened = {}
        for name in names:
            opened[name] = sock = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(PROTOCOL))
            )
            sock.bind((name, PROTOCOL))
        yield opened


def received(read, fds, last):
    """Return what each of some files gets until the frame with the last text is there.

    That one is sent behind all others, on a way that is known to work.
    """
    texts, is_last = {name: [] for name in fds}, False
    while not is_last:
        ready, _, _ = select.select(list(fds.values()), [], [], 30)
        assert ready, f"no frame {last}, but {texts}"
        for name, file in fds.items():
            if file in ready and (seen := of_frame(read(file))):
                is_last = is_last or seen[1] == last
                texts[name].append(seen)
    return texts


def frames_stay_in_their_vlans(tap, link, port):
    """A NIC with VLAN 100 untagged and 200 tagged sends and gets those alone.

    Args:
        tap: of the NIC.
        link: the bridge or switch.
        port: VLAN -> interface of the node in that VLAN.
    """
    guest = tap.fds[0]
    with listening([port[vlan] for vlan in VLANS]) as sockets:
        for text, vlan in (
            ("other", 300),
            ("tagged", 200),
            ("plain", None),
            ("end", None),
        ):
            os.write(guest, frame(text, vlan))
        texts = received(lambda sock: sock.recv(2000), sockets, "end")
        names = {name: {text for _vlan, text in seen} for name, seen in texts.items()}
        assert names == {
            port[100]: {"plain", "end"},
            port[200]: {"tagged"},
            port[300]: set(),
        }, names
        for vlan in (300, 200, 100):
            sockets[port[vlan]].send(frame(f"from {vlan}"))
        sockets[port[100]].send(frame("end"))
        texts = received(lambda file: os.read(file, 2000), {"guest": guest}, "end")
        wanted = [(200, "from 200"), (None, "from 100"), (None, "end")]
        assert texts["guest"] == wanted, texts


def refusal(bridge, vlan):
    """Return why a NIC is not connected, empty if it is."""
    try:
        with connected("bridged", bridge, vlan):
            return ""
    except errors.HypervisorError as err:
        return str(err)


def bridges():
    run("ip link add br7 type bridge")
    run("ip link set br7 up")
    assert "ip link set br7 type bridge vlan_filtering 1" in refusal("br7", ".100")
    run("ip link set br7 type bridge vlan_filtering 1")
    port = {vlan: f"br7.{vlan}" for vlan in VLANS}
    for vlan, name in port.items():
        run(f"ip link add link br7 name {name} type vlan id {vlan}")
        run(f"bridge vlan add dev br7 vid {vlan} self")
        run(f"ip link set {name} up")
    with connected("bridged", "br7", ".100:200") as tap:
        frames_stay_in_their_vlans(tap, "br7", port)
    with connected("bridged", "br7") as tap, listening(["br7"]) as sockets:
        os.write(tap.fds[0], frame("end"))
        received(lambda sock: sock.recv(2000), sockets, "end")
    run("ip link del br7")


def switches():
    node = types.SimpleNamespace(process=SystemRunner())
    basics.node_configure_ovs(node, "sw7", None)
    basics.node_configure_ovs(node, "sw7", None)
    port = {vlan: f"in{vlan}" for vlan in VLANS}
    for vlan, name in port.items():
        run(
            f"ovs-vsctl add-port sw7 {name} tag={vlan}"
            f" -- set interface {name} type=internal"
        )
        run(f"ip link set {name} up")
    with connected("openvswitch", "sw7", ".100:200") as tap:
        assert tap.name in run("ovs-vsctl list-ports sw7").split()
        frames_stay_in_their_vlans(tap, "sw7", port)
    assert tap.name not in run("ovs-vsctl list-ports sw7").split()
    run("ovs-vsctl del-br sw7")


def routes():
    """Packets for the guest's address leave by its tap, found in a table of its own."""
    with connected("routed", "100", ip="192.0.2.7") as tap:
        assert f"192.0.2.7 dev {tap.name}" in run("ip route show table 100")
        run("ip rule add to 192.0.2.7 lookup 100")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", ("192.0.2.7", 9))
        while True:
            ready, _, _ = select.select(tap.fds, [], [], 30)
            assert ready, "nobody asks the guest for its address"
            data = os.read(tap.fds[0], 2000)
            if data[12:14] == b"\x08\x06" and data[38:42] == socket.inet_aton(
                "192.0.2.7"
            ):
                break
        run("ip rule del to 192.0.2.7 lookup 100")


if __name__ == "__main__":
    bridges()
    routes()
    switches()
    print("all good")
