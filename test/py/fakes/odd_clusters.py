"""Clusters in which every component of the score, and every rule, has something to do."""

import random

import msgspec

from fakes.some_cluster import random_cluster
from ganeti.decisions.htools.model.cluster import Cluster, Instance

#: Templates of instances that have no secondary and are moved when their node is lost.
_SINGLE = ("plain", "sharedfile")


def odd_cluster(seed: int) -> Cluster:
    """Return nodes of odd sizes, with tags, offline ones, and instances of all kinds.

    The spindles of all instances are known.
    """
    dice = random.Random(f"odd {seed}")
    base = random_cluster(seed, offline=dice.choice([0, 0, 1, 2]), tags=True)
    used = [0] * len(base.nodes)
    for item in base.instances:
        used[item.primary] += item.memory
    nodes = tuple(
        msgspec.structs.replace(
            node,
            # Often just as much is left as an instance or two would take.
            total_memory=float(node.node_memory + taken + left),
            free_memory=left + dice.choice([-512, 0, 0, 4096]),
            tags=(dice.choice(["rack:1", "rack:2"]), dice.choice(["hv:1", "hv:2"])),
            exclusive=dice.random() < 0.2,
            spindles=dice.choice([4, 12]),
            free_spindles=dice.choice([0, 1, 2, 9]),
            total_disk=dice.choice([0.0, 200000.0, 409600.0]),
            free_disk=dice.choice([1024, 10240, 11264, 20480, 200000]),
            cpus=dice.choice([4.0, 8.0]),
            cpu_speed=dice.choice([1.0, 1.5]),
            other_load=dice.choice([0.0, 0.25]),
        )
        for node, taken in zip(base.nodes, used, strict=True)
        for left in [512 * dice.choice([0, 1, 1, 2, 2, 3, 4, 4, 8])]
    )
    words = ["iextags:svc", "nlocation:rack", "migration:hv", "desiredlocation:rack"]
    tags = tuple(f"htools:{word}" for word in words if dice.random() < 0.5)
    if "htools:migration:hv" in tags:
        tags = (*tags, "htools:allowmigration:hv:1::hv:2")
    instances = tuple(_odd(item, dice) for item in base.instances)
    return msgspec.structs.replace(base, nodes=nodes, instances=instances, tags=tags)


def usual_cluster(seed: int) -> Cluster:
    """Return an odd cluster that tables of failures can describe.

    All nodes are online, and no instance is still to come or has an exclusion tag. A
    few that have their primary on the first node have a secondary.
    """
    dice = random.Random(f"usual {seed}")
    base = odd_cluster(seed)
    mirrored = [
        item for item in base.instances if item.primary == 0 and item.secondary > 0
    ]
    mirrored = mirrored[: seed % 4]
    locations = ("htools:nlocation:rack", "htools:desiredlocation:rack")
    return msgspec.structs.replace(
        base,
        nodes=tuple(msgspec.structs.replace(n, offline=False) for n in base.nodes),
        tags=locations if seed % 2 else (),
        instances=tuple(
            msgspec.structs.replace(
                item,
                template="drbd" if item in mirrored else dice.choice(_SINGLE),
                secondary=item.secondary if item in mirrored else -1,
                forthcoming=False,
                disks=(item.disk,),
            )
            for item in base.instances
        ),
    )


def _odd(item: Instance, dice: random.Random) -> Instance:
    shared = dice.random() < 0.25
    return msgspec.structs.replace(
        item,
        template="sharedfile" if shared else item.template,
        secondary=-1 if shared else item.secondary,
        spindles=dice.choice([0, 1, 2]),
        spindle_use=dice.choice([1, 2]),
        auto_balance=dice.random() < 0.9,
        forthcoming=dice.random() < 0.15,
        utilisation=tuple(dice.choice([0.25, 1.0, 1.75]) for _ in range(4)),
        status=dice.choice(["running", "running", "ADMIN_down", "ADMIN_offline"]),
        tags=(*item.tags, *dice.choice([(), ("rack:1",), ("rack:2",), ("rack:3",)])),
    )
