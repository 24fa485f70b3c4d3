"""Made-up clusters as values, for the placement tools, and all moves of a cluster."""

import pathlib
import random

import msgspec

from ganeti.decisions.htools.model import text
from ganeti.decisions.htools.model.cluster import Cluster, Group, Instance, Node
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.moves import Move, MoveKind

KITE = pathlib.Path(__file__).parents[2] / "data" / "htools" / "kite.data"


def random_cluster(
    seed: int, *, template: str = "drbd", offline: int = 0, tags: bool = False
) -> Cluster:
    """Five to seven unlike nodes with instances put on them by chance."""
    rng = random.Random(seed)
    base = text.load(KITE.read_text(), "kite")
    count = rng.randint(5, 7)
    instances = []
    for number in range(14):
        first, second = rng.sample(range(count), 2)
        instances.append(
            Instance(
                name=f"inst{number}.test",
                memory=rng.choice((512, 1024, 2048)),
                disk=rng.choice((1024, 10240)),
                vcpus=rng.choice((1, 2)),
                primary=first if rng.random() < 0.5 else 0,
                secondary=-1,
                template=template,
                status=rng.choice(("running", "running", "ADMIN_down")),
                tags=(rng.choice(("svc:a", "svc:b", "other")),) if tags else (),
            )
        )
        if template == "drbd":
            here = instances[-1].primary
            other = second if second != here else (second + 1) % count
            instances[-1] = msgspec.structs.replace(instances[-1], secondary=other)
    nodes = []
    for number in range(count):
        memory = rng.choice((16384, 24576))
        used = sum(i.memory for i in instances if i.primary == number and i.uses_memory)
        disk = sum(i.disk for i in instances if number in i.nodes and i.local)
        nodes.append(
            Node(
                name=f"node{number}.test",
                group=0,
                total_memory=float(memory),
                node_memory=512,
                free_memory=memory - 512 - used,
                total_disk=409600.0,
                free_disk=409600 - disk,
                cpus=8.0,
                offline=number < offline,
            )
        )
    return msgspec.structs.replace(
        base,
        groups=(Group("g", "u"),),
        nodes=tuple(nodes),
        instances=tuple(instances),
        tags=("htools:iextags:svc",) if tags else (),
    )


def every_move(now):
    """All moves in the order in which they are tried."""
    for index, inst in enumerate(now.instances):
        here = {now.pri[index], now.sec[index]}
        drbd = inst.template == "drbd"
        second_online = drbd and now.online[now.sec[index]]
        if second_online:
            yield index, Move(MoveKind.FAILOVER)
        for target in range(len(now.online)):
            if target in here or not now.online[target]:
                continue
            if not drbd:
                yield index, Move(MoveKind.FAILOVER_TO, target)
                continue
            yield index, Move(MoveKind.REPLACE_SECONDARY, target)
            yield index, Move(MoveKind.REPLACE_FAILOVER, target)
            if second_online:
                yield index, Move(MoveKind.REPLACE_PRIMARY, target)
                yield index, Move(MoveKind.FAILOVER_REPLACE, target)


def legal_moves(now, options):
    """List the moves of a cluster of DRBD or shared storage that options allow."""
    return [
        (index, move)
        for index, move in every_move(now)
        if (
            options.disk_moves or move.kind in {MoveKind.FAILOVER, MoveKind.FAILOVER_TO}
        )
        and not moves.failure(now, index, move, force=options.force)
    ]
