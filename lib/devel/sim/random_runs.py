"""Random simulations: a cluster and events from a seed, for the rules of automatons."""

import random
from typing import Final

from ganeti.devel.sim.description import (
    ETCD,
    FILE,
    ClusterDescription,
    GroupDescription,
    InstanceDescription,
    NodeDescription,
)
from ganeti.devel.sim.events import Event, parse_event
from ganeti.devel.sim.hardware import Helper
from ganeti.devel.sim.simulation import Report, Simulation

#: Simulated seconds of a run: half an hour of faults, and time to settle.
FAULTS_S: Final = 1800.0
TOTAL_S: Final = 3000.0
#: Seconds between the loss of a node and the moment when a person marks it offline.
_LATER_S: Final = 20.0
#: Share of the clusters whose store is in etcd, and of these: those whose master fails.
_ETCD_SHARE: Final = 0.3
_FAILED_SHARE: Final = 0.8
#: Share of the failed masters that a person replaces as well.
_PERSON_SHARE: Final = 0.2
#: Faults of a master, with the ends of them.
_MASTER_FAULTS: Final = (
    ("kill MASTER", "power-on MASTER"),
    ("freeze-node MASTER", "unfreeze-node MASTER"),
    ("cut MASTER both", "join MASTER"),
    ("cut MASTER in", "join MASTER"),
    ("power-cycle MASTER", "power-on MASTER"),
    ("restart-master 4", "thaw"),
    ("restart-master 60", "thaw"),
)
_PREFIX: Final = "ganeti:watcher:autorepair:"
_KINDS: Final = ("fix-storage", "migrate", "failover", "reinstall")
_TEMPLATES: Final = ("drbd", "drbd", "drbd", "plain", "sharedfile", "file")
#: Kinds of events with their weights; `_event` fills them in.
_WEIGHTS: Final = {
    "kill NODE": 8,
    "power-on NODE": 6,
    "freeze-node NODE": 4,
    "unfreeze-node NODE": 3,
    "stop-daemon NODE": 2,
    "start-daemon NODE": 2,
    "cut NODE DIRECTION": 5,
    "join NODE": 5,
    "slow NODE 20": 2,
    "slow NODE 1": 1,
    "helper NODE HELPER": 4,
    "diagnose NODE STATUS": 4,
    "diagnose NODE Ok": 2,
    "repairs NODE no": 1,
    "forge NODE yes": 1,
    "clock SECONDS": 1,
    "offline NODE yes": 4,
    "offline NODE no": 3,
    "drain NODE yes": 4,
    "drain NODE no": 3,
    "kill-guest INSTANCE": 6,
    "stop-instance INSTANCE": 2,
    "start-instance INSTANCE": 2,
    "tag instance:INSTANCE PERMISSION": 4,
    "untag instance:INSTANCE FAILURE": 4,
    "tag cluster PERMISSION": 2,
    "untag cluster ANY": 1,
    "freeze because": 2,
    "thaw": 4,
    "node-death no": 1,
    "node-death yes": 2,
    "cancel-incidents NODE": 1,
    "restart-master 5": 4,
}


def _dice(part: str, seed: int) -> random.Random:
    # Each part has numbers of its own, so more draws in one do not change the others.
    return random.Random(f"{part} {seed}")  # noqa: S311 - to be repeated


def cluster(seed: int) -> ClusterDescription:
    """Return a random cluster."""
    dice = _dice("cluster", seed)
    count = dice.randint(3, 7)
    names = [f"node{number}" for number in range(1, count + 1)]
    groups = ("default", "other") if count > 5 and dice.random() < 0.4 else ("default",)
    nodes = [
        NodeDescription(
            name=name,
            group=groups[place % len(groups)],
            memory_mib=dice.choice((4096, 8192, 16384)),
            candidate=place < 4,
            helper=dice.random() < 0.9,
        )
        for place, name in enumerate(names)
    ]
    return ClusterDescription(
        nodes=tuple(nodes),
        groups=tuple(
            GroupDescription(name=name, tags=_tags(dice, 0.2)) for name in groups
        ),
        instances=tuple(_instance(dice, i, nodes) for i in range(dice.randint(2, 8))),
        tags=_tags(dice, 0.7),
        node_death=dice.random() < 0.85,
        limits=_limits(dice),
        diagnose=dice.random() < 0.5,
        store=_store(seed),
    )


def _store(seed: int) -> str:
    return ETCD if _dice("store", seed).random() < _ETCD_SHARE else FILE


def _tags(dice: random.Random, chance: float) -> tuple[str, ...]:
    if dice.random() >= chance:
        return ()
    return (f"{_PREFIX}{dice.choice(_KINDS)}",)


def _limits(dice: random.Random) -> dict[str, float]:
    limits: dict[str, float] = {}
    if dice.random() < 0.6:
        limits["fenced-per-hour"] = float(dice.randint(0, 3))
    if dice.random() < 0.4:
        limits["moved-share"] = float(dice.choice((0, 10, 30, 60)))
    if dice.random() < 0.3:
        limits["quiet-time"] = float(dice.choice((0, 60, 900)))
    return limits


def _instance(
    dice: random.Random, number: int, nodes: list[NodeDescription]
) -> InstanceDescription:
    first = dice.choice(nodes)
    others = [n for n in nodes if n is not first and n.group == first.group]
    template = dice.choice(_TEMPLATES) if others else "plain"
    return InstanceDescription(
        name=f"web{number}",
        primary=first.name,
        secondary=dice.choice(others).name if template == "drbd" else "",
        template=template,
        memory_mib=dice.choice((256, 512, 1024)),
        disks_mib=(dice.choice((1024, 10240)),),
        state="up" if dice.random() < 0.9 else "down",
        always_failover=dice.random() < 0.1,
        tags=_tags(dice, 0.3),
    )


def events(seed: int, described: ClusterDescription) -> list[Event]:
    """Return random events for a cluster, by time."""
    dice = _dice("events", seed)
    nodes = [node.name for node in described.nodes]
    instances = [item.name for item in described.instances]
    kinds, weights = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
    made = []
    # A helper that lies about a node that runs unheard cannot be found out. So liars
    # lose their power, or answer.
    liar = dice.choice(nodes[1:])
    for _ in range(dice.randint(2, 14)):
        line = dice.choices(kinds, weights)[0]
        if line.startswith(("freeze-node", "stop-daemon")):
            # The master itself cannot be frozen here.
            node = dice.choice(nodes[1:])
        else:
            node = dice.choice(nodes[1:] if dice.random() < 0.9 else nodes)
        if node == liar and line.startswith(("freeze-node", "cut", "stop-daemon")):
            continue
        helpers = tuple(Helper) if node == liar else (Helper.HONEST, Helper.FAILS)
        words = {
            "NODE": node,
            "INSTANCE": dice.choice(instances),
            "DIRECTION": dice.choice(("both", "in", "out")),
            "HELPER": dice.choice(helpers).value,
            "STATUS": dice.choice(
                ("live-repair mend", "evacuate", "evacuate-failover")
            ),
            "SECONDS": str(dice.choice((-3600, 3600, 60, 0))),
            "PERMISSION": f"{_PREFIX}{dice.choice((*_KINDS, 'suspend'))}",
            "FAILURE": f"{_PREFIX}result:",
            "ANY": _PREFIX,
        }
        for word, value in words.items():
            line = line.replace(word, value)
        when = dice.uniform(30, FAULTS_S)
        made.append(parse_event(f"{when:.1f} {line}"))
        if line == f"offline {node} yes":
            # It is the promise of a person that nothing runs there.
            made.append(parse_event(f"{when - _LATER_S:.1f} kill {node}"))
    if described.store == ETCD:
        made += _failed_master(seed, nodes)
    return sorted(made, key=lambda event: event.at_s)


def _failed_master(seed: int, nodes: list[str]) -> list[Event]:
    """Return a fault of the master and the end of it; perhaps none."""
    dice = _dice("master", seed)
    if dice.random() >= _FAILED_SHARE:
        return []
    fault, end = dice.choice(_MASTER_FAULTS)
    when = dice.uniform(30, FAULTS_S)
    made = [(when, fault), (when + dice.uniform(1, 300), end)]
    if dice.random() < _PERSON_SHARE:
        line = f"master-failover {dice.choice(nodes)}"
        made.append((when + dice.uniform(0, 60), line))
    return [
        parse_event(f"{at_s:.1f} {line.replace('MASTER', nodes[0])}")
        for at_s, line in made
    ]


def run(seed: int, *, skips_idle: bool = True) -> Report:
    """Simulate what a seed makes."""
    described = cluster(seed)
    simulation = Simulation(described, events(seed, described), skips_idle=skips_idle)
    return simulation.run(TOTAL_S)
