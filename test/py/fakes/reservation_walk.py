"""Random operations about reservations on the real engine, and the rules they must keep.

Rules, checked after every operation:

1. A commit inside a valid reservation is never refused for capacity, and never fails.
   A reservation is valid while its node is online, unless it has a low priority and a
   failover took memory of its node.
2. No node with reservations starts a guest or makes a disk that it has no room for.
3. Each online node has the memory free that its reservations hold; those of low
   priority do not count on a node where a failover took memory.
"""

import collections
import random

from fakes import reservations
from fakes.clusters import node_uuid
from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.master import config
from ganeti.operations.instance import capacity

#: Operations and their share.
WEIGHTS = {
    "reserve": 18,
    "rename": 6,
    "modify": 9,
    "move": 8,
    "commit": 14,
    "create": 10,
    "expire": 6,
    "release": 3,
    "fail_node": 1,
    "return_node": 3,
    "rescue": 5,
    "stop": 5,
    "start": 6,
    "reboot": 2,
    "migrate": 4,
    "grow": 3,
    "balloon": 2,
    "remove": 9,
}
MEMORY = (256, 512, 1024, 1536, 2048, 3072)
DISK = (256, 1024, 4096, 8192)
TEMPLATES = ("file", "file", "sharedfile", "diskless")
#: Refusals that mean a lack of resources.
NO_ROOM = (ecodes.ECODE_NORES, ecodes.ECODE_TEMP_NORES)


class Broken(AssertionError):
    """A rule does not hold."""


class Walk:
    """A sequence of operations that a seed, and PYTHONHASHSEED, determine."""

    def __init__(self, seed, nodes=6):
        self.dice = random.Random(seed)
        self.count = nodes
        self.eng = reservations.engine(
            entropy=self.dice.randbytes,
            nodes=nodes,
            enabled_disk_templates=["file", "sharedfile", "diskless"],
        )
        self.nodes = self.eng.nodes
        self.number = 0
        #: Nodes on which a failover took memory that low reservations hold.
        self.gave_way = set()
        #: Commits inside a valid reservation.
        self.commits = 0
        self.done = collections.Counter()
        self.refused = collections.Counter()
        self.history = []

    # Choices
    def instances(self, *, forthcoming):
        rows = self.eng.snapshot.instances.values()
        chosen = [row for row in rows if row.forthcoming == forthcoming]
        return sorted(chosen, key=lambda row: row.uuid)

    def pick(self, *, forthcoming):
        rows = self.instances(forthcoming=forthcoming)
        return self.dice.choice(rows) if rows else None

    def node(self):
        return f"node{self.dice.randint(1, self.count)}.example.com"

    def is_online(self, uuid):
        return not self.eng.snapshot.nodes[uuid].offline

    def sizes(self):
        memory, template = self.dice.choice(MEMORY), self.dice.choice(TEMPLATES)
        params = {
            "disk_template": template,
            "beparams": {"maxmem": memory, "minmem": self.dice.choice((128, memory))},
            "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
            "nics": [{}],
            "disks": [],
        }
        if template != "diskless":
            params["disks"] = [{"size": self.dice.choice(DISK)}]
        if self.dice.random() < 0.5:
            params["pnode"] = self.node()
        return params

    def name(self):
        self.number += 1
        return f"i{self.number}.example.com"

    # Steps
    def run(self, wire):
        """Carry out an operation; return the error, None if there was none."""
        self.history.append(wire)
        try:
            self.eng.run(wire)
        except errors.GenericError as err:
            self.refused[wire["OP_ID"]] += 1
            return err
        self.done[wire["OP_ID"]] += 1
        # A failover, or a migration of an instance whose node is lost.
        if "low priority hold" in self.eng.callbacks.text():
            moved = self.eng.snapshot.instances[wire["instance_name"]]
            self.gave_way.add(moved.primary_node)
            self.done["gave way"] += 1
        return None

    def step(self):
        """Do one random operation, and check the rules."""
        kind = self.dice.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        getattr(self, f"do_{kind}")()
        self.check()

    def check(self):
        snapshot = self.eng.snapshot
        for text, uuid in self.nodes.overdrawn:
            if capacity.memory(snapshot, uuid, besides="").mib:
                raise Broken(f"overdrawn: {text}")
        self.nodes.overdrawn.clear()
        for uuid in snapshot.nodes:
            gave_way = uuid in self.gave_way
            held = capacity.memory(snapshot, uuid, besides="", but_low=gave_way)
            free = self.nodes.free_memory(uuid)
            if self.is_online(uuid) and free < held.mib:
                raise Broken(f"{uuid}: {free} MiB free, reserved for {held}")

    def verify(self):
        problems = config.verify(self.eng.snapshot)
        problems = [line for line in problems if "candidate" not in line]
        if problems:
            raise Broken(f"configuration: {problems}")

    # Operations
    def do_reserve(self):
        wire = {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True, **self.sizes()}
        if self.dice.random() < 0.6:
            wire["instance_name"] = self.name()
        if self.dice.random() < 0.7:
            wire["os_type"] = "tiny"
        if self.dice.random() < 0.5:
            wire["expires"] = self.dice.randint(60, 100000)
        wire["reservation_priority"] = self.dice.choice(("low", "normal", "high"))
        self.run(wire)

    def do_rename(self):
        if chosen := self.pick(forthcoming=True):
            wire = {"instance_name": chosen.uuid, "new_name": self.name()}
            self.run({"OP_ID": "OP_INSTANCE_RENAME", **wire})

    def do_modify(self):
        chosen = self.pick(forthcoming=self.dice.random() < 0.8)
        if chosen is None:
            return
        memory = self.dice.choice(MEMORY)
        changes = [{"beparams": {"maxmem": memory, "minmem": min(memory, 256)}}]
        if chosen.forthcoming:
            changes.append({"os_name": "tiny"})
            changes.append({"expires": self.dice.randint(60, 100000)})
            changes.append({"pnode": self.node()})
            if chosen.disks:
                size = {"size": self.dice.choice(DISK)}
                changes.append({"disks": [["modify", 0, size]]})
        wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": chosen.uuid}
        force = {"force": self.dice.random() < 0.3}
        self.run({**wire, **self.dice.choice(changes), **force})

    def do_move(self):
        if chosen := self.pick(forthcoming=True):
            op_id = self.dice.choice(("OP_INSTANCE_FAILOVER", "OP_INSTANCE_MOVE"))
            wire = {"OP_ID": op_id, "instance_name": chosen.uuid}
            if op_id == "OP_INSTANCE_MOVE" or self.dice.random() < 0.5:
                wire["target_node"] = self.node()
            self.run(wire)

    def do_commit(self):
        chosen = self.pick(forthcoming=True)
        if chosen is None:
            return
        if chosen.is_nameless:
            wire = {"instance_name": chosen.uuid, "new_name": self.name()}
            self.run({"OP_ID": "OP_INSTANCE_RENAME", **wire})
        terms = chosen.reservation
        may_lack = terms.priority == "low" and chosen.primary_node in self.gave_way
        is_valid = self.is_online(chosen.primary_node) and not may_lack
        wire = {"instance_name": chosen.uuid, "commit": True, "os_type": "tiny"}
        error = self.run({"OP_ID": "OP_INSTANCE_CREATE", **wire})
        if error is not None and is_valid:
            raise Broken(f"commit of {chosen} was refused: {error}")
        self.commits += error is None and is_valid

    def do_create(self):
        wire = {"OP_ID": "OP_INSTANCE_CREATE", "mode": "create", **self.sizes()}
        start = {"start": self.dice.random() < 0.8}
        self.run({**wire, **start, "os_type": "tiny", "instance_name": self.name()})

    def do_expire(self):
        self.eng.clock.now += self.dice.randint(60, 20000)
        now = self.eng.clock.time()
        for row in self.instances(forthcoming=True):
            if 0 < row.reservation.expires <= now:
                wire = {"instance_name": row.uuid, "if_expired": True}
                error = self.run({"OP_ID": "OP_INSTANCE_REMOVE", **wire})
                if error is not None:
                    raise Broken(f"release of {row}: {error}")

    def do_release(self):
        if chosen := self.pick(forthcoming=True):
            self.run({"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": chosen.uuid})

    def do_fail_node(self):
        uuid = node_uuid(self.dice.randint(2, self.count))
        offline = [u for u in self.eng.snapshot.nodes if not self.is_online(u)]
        if uuid in offline or len(offline) >= self.count // 3:
            return
        self.nodes.fail(uuid)
        self._mark(uuid, offline=True)

    def do_return_node(self):
        offline = [u for u in self.eng.snapshot.nodes if not self.is_online(u)]
        if offline:
            self._mark(self.dice.choice(sorted(offline)), offline=False)

    def _mark(self, uuid, *, offline):
        with self.eng.config.edit("walk") as edit:
            edit.update(edit.snapshot.nodes[uuid].replace(offline=offline))
        self.done["offline" if offline else "online"] += 1

    def do_rescue(self):
        rows = [
            row
            for row in self.instances(forthcoming=self.dice.random() < 0.3)
            if not self.is_online(row.primary_node)
        ]
        if not rows:
            return
        chosen = self.dice.choice(rows)
        wire = {"OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": chosen.uuid}
        if self.dice.random() < 0.6:
            wire["target_node"] = self.node()
        self.run(wire)

    def _on_existing(self, op_id, **params):
        if chosen := self.pick(forthcoming=False):
            self.run({"OP_ID": op_id, "instance_name": chosen.uuid, **params})

    def do_stop(self):
        self._on_existing("OP_INSTANCE_SHUTDOWN")

    def do_start(self):
        self._on_existing("OP_INSTANCE_STARTUP")

    def do_reboot(self):
        kind = self.dice.choice(("soft", "hard", "full"))
        self._on_existing("OP_INSTANCE_REBOOT", reboot_type=kind)

    def do_migrate(self):
        target = {"target_node": self.node()} if self.dice.random() < 0.6 else {}
        self._on_existing("OP_INSTANCE_MIGRATE", allow_failover=True, **target)

    def do_grow(self):
        chosen = self.pick(forthcoming=self.dice.random() < 0.5)
        if chosen and chosen.disks:
            wire = {"instance_name": chosen.uuid, "disk": 0, "amount": 1024}
            self.run({"OP_ID": "OP_INSTANCE_GROW_DISK", **wire})

    def do_balloon(self):
        memory = self.dice.choice(MEMORY)
        self._on_existing("OP_INSTANCE_SET_PARAMS", runtime_mem=memory)

    def do_remove(self):
        self._on_existing("OP_INSTANCE_REMOVE")
