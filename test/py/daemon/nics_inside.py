"""The part of `test_nics` that runs in a network namespace of its own, as root.

Arguments: a directory for nodes, one with boot files. Ends with ``all good``.
"""

import os
import subprocess
import sys

import pytest

from fakes import guests, nodes
from fakes.patience import until
from ganeti.base import errors
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.devices import taps

#: A high address, as many cards have one.
CARD = "f4:00:00:00:00:01"


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def nic(number, **params):
    return {
        "mac": f"aa:00:00:00:00:0{number}",
        "uuid": f"0c1d2e3f-4a5b-4c6{number}-8e7f-000000000001",
        "ip": f"192.0.2.{number}",
        "nicparams": {"mode": "bridged", "link": "br0", "vlan": "", **params},
    }


def read(path):
    with open(path) as src:
        return src.read()


def links():
    return {name for name in os.listdir("/sys/class/net") if name.startswith("gnt")}


def main(directory, boot):
    ip("link", "set", "lo", "up")
    ip("link", "add", "br0", "type", "bridge")
    # The card of the node: the bridge has its address, the lowest of its ports.
    ip("link", "add", "card", "address", CARD, "type", "veth", "peer", "name", "wire")
    ip("link", "set", "card", "mtu", "1400", "master", "br0")
    ip("link", "set", "br0", "mtu", "1400", "up")
    ip("addr", "add", "192.0.2.254/24", "dev", "br0")
    node, other = (nodes.make_node(directory, name) for name in ("n1", "n2"))
    params = guests.kvm_params(boot, migration_port=18110, migration_bandwidth=1000)
    routed = nic(2, mode="routed", link="")
    record = guests.kvm_instance("web1", params, nics=[nic(1), routed])
    started_nics_are_connected(node, record)
    plugging(node, record)
    migration(node, other, record)
    assert not links(), links()
    a_script_replaces_it_all(node)
    print("all good")


def started_nics_are_connected(node, record):
    nodes.call(node, "instance_start", record, False, [])
    kvm = f"{node.paths.run_dir}/kvm-hypervisor"
    names = [read(f"{kvm}/nic/web1/{index}") for index in (0, 1)]
    assert links() == set(names)
    base = "/sys/class/net"
    assert os.path.basename(os.readlink(f"{base}/{names[0]}/master")) == "br0"
    assert read(f"{base}/{names[0]}/mtu") == "1400\n"
    # Other nodes would lose a node whose address changes with its guests.
    assert read(f"{base}/br0/address") == f"{CARD}\n"
    assert read(f"{base}/{names[0]}/address") == "fe:00:00:00:00:01\n"
    shown = subprocess.run(
        ["ip", "route", "get", "192.0.2.2"], capture_output=True, text=True, check=True
    )
    assert f"dev {names[1]}" in shown.stdout, shown.stdout
    with guests.Console(node, "web1") as console:
        console.login()
        console.send(
            "ip addr add 192.0.2.1/24 dev eth0; cat /sys/class/net/*/address\r"
        )
        console.wait_for("aa:00:00:00:00:01\r\naa:00:00:00:00:02")
        console.send("ping -c 1 -W 5 192.0.2.254; echo rc=$?\r")
        console.wait_for("rc=0")
        console.send("exit\r")


def plugging(node, record):
    card = nic(3)
    nodes.call(node, "hotplug_device", record, "hotadd", "nic", card, None, 2)
    assert len(links()) == 3
    with guests.Console(node, "web1") as console:
        console.login()
        console.send("until [ -e /sys/class/net/eth2 ]; do sleep 0.1; done; echo ok\r")
        console.wait_for(r"\r\nok\r")
        moved = {**card, "mac": "aa:00:00:00:00:04"}
        nodes.call(node, "hotplug_device", record, "hotmod", "nic", moved, None, 2)
        wanted = "aa:00:00:00:00:04"
        console.send(
            f"until grep {wanted} /sys/class/net/*/address; do sleep 0.1; done\r"
        )
        console.wait_for(f"address:{wanted}")
        nodes.call(node, "hotplug_device", record, "hotremove", "nic", moved, None, 2)
        console.send("exit\r")
    until("the tap goes", lambda: len(links()) == 2)


def migration(node, other, record):
    with guests.Console(node, "web1") as console:
        before = console.wait_for_counter()
    text = nodes.call(node, "migration_info", record)
    nodes.call(other, "accept_instance", record, text, "127.0.0.1")
    nodes.call(node, "instance_migrate", "cluster", record, "127.0.0.1", True)

    def ended():
        status = nodes.call(node, "instance_get_migration_status", record)
        return status["status"] if status["status"] != "active" else None

    assert until("the migration ends", ended) == "completed"
    nodes.call(node, "instance_finalize_migration_src", record, True, True)
    nodes.call(other, "instance_finalize_migration_dst", record, text, True)
    tap = read(f"{other.paths.run_dir}/kvm-hypervisor/nic/web1/1")
    shown = subprocess.run(
        ["ip", "route", "get", "192.0.2.2"], capture_output=True, text=True, check=True
    )
    assert f"dev {tap}" in shown.stdout, shown.stdout
    with guests.Console(other, "web1") as console:
        console.wait_for_counter(above=before)
        console.login()
        console.send("ping -c 1 -W 5 192.0.2.254; echo rc=$?\r")
        console.wait_for("rc=0")
    nodes.call(other, "instance_shutdown", record, 20, [])


def a_script_replaces_it_all(node):
    script = f"{node.paths.conf_dir}/kvm-vif-bridge"
    with open(script, "w") as out:
        out.write('#!/bin/sh\necho "$INTERFACE $MODE"; exit 3\n')
    os.chmod(script, 0o755)
    effects = NodeEffects(node.paths, node.process, node.clock)
    with pytest.raises(errors.HypervisorError, match="code 3: gnt0 bridged"):
        taps.connect(effects, {"INTERFACE": "gnt0", "MODE": "bridged"})


if __name__ == "__main__":
    main(*sys.argv[1:])
