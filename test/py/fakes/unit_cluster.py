"""A cluster with an instance of each kind, and nodes on which everything succeeds.

Nodes answer questions as the records of the cluster say. Calls that act succeed, with the
answers that plans assume, see `ganeti.operations.mcpu.simulated_nodes`.
"""

import copy
import hashlib
import itertools
import json

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import failure, reads
from ganeti.model import objects
from ganeti.operations.mcpu import simulated_nodes
from ganeti.protocols.rpc import PROCEDURES

RACK = "00000000-0000-4000-8000-0000000000b0"
LAN = clusters.NETWORK
_TEMPLATES = ["diskless", "file", "sharedfile", "plain", "drbd"]
#: State of a copy that has ended well.
_COPIED = {
    "exit_status": 0,
    "listen_port": 4711,
    "connected": True,
    "error_message": None,
    "recent_output": [],
    "progress_mbytes": 2048,
    "progress_throughput": 5.0,
    "progress_eta": 0,
    "progress_percent": 100,
}
_CONNECTION = {"mode": "bridged", "link": "br0", "vlan": ""}


def _nic(number, **changes):
    nic = {
        "uuid": f"nic{number}",
        "mac": f"aa:00:00:00:00:0{number}",
        "ip": None,
        "nicparams": {},
        "name": None,
        "network": None,
    }
    return nic | changes


def _disk(uuid, node, kind="plain", **changes):
    places = {"plain": ("xenvg", f"{uuid}.disk"), "file": ("loop", f"/srv/{uuid}")}
    disk = {
        "uuid": uuid,
        "dev_type": kind,
        "logical_id": places[kind],
        "size": 2048,
        "nodes": (clusters.node_uuid(node),),
        "iv_name": "disk/0",
        "serial_no": 1,
    }
    return objects.Disk(**disk | changes)


def _instances():
    """Return instances: mirrored 1, volume 2, file 3, no disk 4, mirrored 5.

    2 and 5 are stopped.
    """
    stopped = {"admin_state": "down", "disks_active": False}
    spare = clusters.drbd_disk("d5", 2, 3).replace(iv_name="disk/0")
    spare = spare.replace(logical_id=(*spare.logical_id[:2], 11002, 2, 0, "secret"))
    network = _nic(1, ip="198.51.100.5", network=LAN, name="eth")
    mirror = [clusters.drbd_disk("d1", 1, 2), clusters.drbd_disk("d2", 1, 2)]
    mirror = [
        disk.replace(
            iv_name=f"disk/{n}",
            name=f"data{n}",
            logical_id=(*disk.logical_id[:2], 11000 + n, n, n, "secret"),
        )
        for n, disk in enumerate(mirror)
    ]
    return [
        *mirror,
        clusters.instance(
            1, disks=["d1", "d2"], nics=[network], tags=["blue"], network_port=11005
        ),
        _disk("d3", 2),
        clusters.instance(
            2,
            primary=2,
            disks=["d3"],
            nics=[_nic(2)],
            **stopped,
        ),
        _disk("d4", 1, "file"),
        clusters.instance(3, disks=["d4"], osparams={"dns": "none"}),
        clusters.instance(4, primary=3, disks=[], nics=[_nic(3), _nic(4)]),
        spare,
        clusters.instance(5, primary=2, disks=["d5"], **stopped),
    ]


def start(**changes):
    """Return the cluster: three nodes and a drained one; one apart, one offline."""
    cluster = clusters.cluster()
    policy = copy.deepcopy(cluster.ipolicy)
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["minmax"][0]["min"]["disk-count"] = 0
    policy["disk-templates"] = _TEMPLATES
    taken = "".join("1" if n == 5 else "0" for n in range(16))
    return clusters.snapshot(
        extra=[
            clusters.group(networks={LAN: _CONNECTION}),
            clusters.group("rack", RACK),
            clusters.network(reservations=taken),
            clusters.node(4, drained=True, master_candidate=False),
            clusters.node(8, offline=True, master_candidate=False),
            clusters.node(9, group=RACK, master_candidate=False, tags=["apart"]),
            *_instances(),
        ],
        **{
            "ipolicy": policy,
            "enabled_disk_templates": _TEMPLATES,
            "volume_group_name": "xenvg",
            "drbd_usermode_helper": "/bin/true",
            "candidate_pool_size": 3,
            "highest_used_port": 11010,
        }
        | changes,
    )


class UnitCluster:
    """The engine over this cluster, and the answers of its nodes."""

    def __init__(self, **changes):
        script = {
            name: self._acting(row) for name, row in PROCEDURES.items() if not row.reads
        }
        script |= reads(self)
        script |= {
            name.removeprefix("_ask_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_ask_")
        }
        self.engine = Engine(start(**changes), script, entropy=self._entropy())
        self.engine.hosts = {
            name.split(".")[0]: (name, [address])
            for name, address in (
                ("node9.example.com", "192.0.2.9"),
                ("node7.example.com", "192.0.2.7"),
                ("web9.example.com", "192.0.2.99"),
                ("new.example.com", "192.0.2.200"),
            )
        }
        self.engine.dead |= {"192.0.2.99", "192.0.2.200"}
        self.allocation = []

    def answer(self, procedure, payload):
        """Let the nodes answer a procedure.

        Args:
            procedure: its name.
            payload: the answer; ``{"fail": text}`` for a failure, ``{"turns": [...]}``
                for one answer per call, the last of which stays.
        """
        if isinstance(payload, dict) and "turns" in payload:
            turns = list(payload["turns"])

            def answer(_node, _args):
                return turns.pop(0) if len(turns) > 1 else turns[0]

            self.engine.rpc.script[procedure] = answer
            return
        if isinstance(payload, dict) and "fail" in payload:
            payload = failure(payload["fail"])
        self.engine.rpc.script[procedure] = payload

    @staticmethod
    def _entropy():
        numbers = itertools.count()
        return lambda size: hashlib.shake_128(b"%d" % next(numbers)).digest(size)

    @staticmethod
    def _acting(row):
        return lambda _node, args: simulated_nodes.answer(row, args)

    @property
    def _snapshot(self):
        return self.engine.snapshot

    # State
    def guests_on(self, node, _hypervisors):
        return {
            item.name: simulated_nodes.guest_info(128, 1, 1.5)
            for item in self._snapshot.instances.values()
            if item.primary_node == node and item.admin_state == "up"
        }

    def guest_on(self, node, name):
        return self.guests_on(node, ()).get(name, {})

    def disk_on(self, _node, disk):
        path = {"dev_path": f"/dev/{disk['uuid']}", "major": 147, "minor": 1}
        return simulated_nodes.disk_status(disk) | path

    # Questions
    def _ask_node_info(self, _node, args):
        units = [
            {
                "type": kind,
                "name": name,
                "storage_free": 70_000,
                "storage_size": 90_000,
            }
            for kind, name, _ in args[0]
        ]
        memory = {"memory_total": 16384, "memory_free": 9000, "memory_dom0": 512}
        machine = {"cpu_total": 8, "cpu_dom0": 1, "hv_version": [7, 2]}
        return ["boot", units, [memory | machine for _ in args[1]]]

    def _ask_instance_get_migration_status(self, _node, _args):
        return {"status": "completed"}

    def _ask_migration_info(self, _node, _args):
        return "opaque"

    def _agrees(self, _node, _args):
        return None

    _ask_bridges_exist = _ask_hotplug_supported = _agrees
    _ask_hypervisor_validate_params = _ask_instance_migratable = _agrees

    def _ask_blockdev_getmirrorstatus(self, node, args):
        return [self.disk_on(node, disk) for disk in args[0]]

    def _ask_drbd_wait_sync(self, _node, _args):
        return [True, 100]

    def _ask_bdev_sizes(self, _node, args):
        return dict.fromkeys(args[0], 4096)

    def _ask_lv_list(self, _node, _args):
        return {"xenvg/d3.disk": ["2048.00", False, True, False]}

    def _ask_vg_list(self, _node, _args):
        return {"xenvg": 90_000}

    def _ask_version(self, _node, _args):
        return 3010000

    def _ask_node_verify(self, _node, _args):
        return {"nodelist": {}}

    def _ask_store_status(self, _node, _args):
        return {"revision": 1, "term": 1, "digest": ""}

    def _ask_node_crypto_tokens(self, _node, args):
        return [[kind, clusters.DIGEST] for kind, _action, _options in args[0]]

    def _ask_node_has_ip_address(self, node, _args):
        return node == clusters.node_uuid(1)

    def _ask_storage_list(self, _node, args):
        known = {"name": "xenvg", "size": 9000.0, "used": 4000.0, "free": 5000.0}
        known["allocatable"] = True
        return [[known.get(field) for field in args[3]]]

    def _ask_node_volumes(self, _node, _args):
        row = {"name": "d3.disk", "vg": "xenvg", "size": 2048.0, "dev": "/dev/vdb"}
        return [row, {**row, "name": "swap", "size": 512.0}]

    def _ask_os_diagnose(self, _node, _args):
        return [["tiny", "/os/tiny", True, "", ["a"], [["dns", "server"]], [20], False]]

    def _ask_extstorage_diagnose(self, _node, _args):
        return [["box", "/ext/box", True, "", [["tier", "speed"]]]]

    def _ask_os_validate(self, _node, _args):
        return True

    def _ask_iallocator_runner(self, _node, _args):
        return json.dumps({"success": True, "info": "fits", "result": self.allocation})

    def _ask_run_oob(self, _node, args):
        answers = {
            "power-status": {"powered": True},
            "health": [["fan", "OK"], ["disk", "CRITICAL"]],
        }
        return answers.get(args[1])

    def _ask_restricted_command(self, _node, _args):
        return "output"

    def _ask_instance_console_info(self, _node, args):
        return {"kind": "ssh", "instance": args[0]["name"], "host": "node1"}

    def _ask_drbd_helper(self, _node, _args):
        return "/bin/true"

    def _ask_impexp_status(self, _node, _args):
        return [_COPIED]
