"""Made-up clusters for the placement benches: text files from a seed."""

import random
from dataclasses import dataclass

GROUP = "aaaaaaaa-0000-4000-8000-000000000001"
SPEC = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12"


@dataclass(frozen=True)
class Shape:
    """What a made-up cluster is like."""

    nodes: int
    instances: int
    template: str = "drbd"
    offline: int = 0
    mixed: bool = False


def cluster(shape: Shape, seed: int) -> str:
    """Make the text form of a cluster with instances on nodes by chance."""
    rng = random.Random(seed)
    memory = [
        rng.choice((65536, 98304)) if shape.mixed else 65536 for _ in range(shape.nodes)
    ]
    disk = [rng.choice((2097152, 4194304)) if shape.mixed else 2097152 for _ in memory]
    free_memory = [total - 1024 for total in memory]
    free_disk = list(disk)
    per_node = max(1, shape.instances // shape.nodes)
    sizes = [s for s in (512, 1024, 2048, 4096) if s * per_node <= 24576] or [512]
    lines = []
    live = shape.nodes - shape.offline
    for number in range(shape.instances):
        size = rng.choice(sizes)
        space = rng.choice((5120, 10240, 20480))
        first = (
            min(rng.randrange(live), rng.randrange(live))
            if rng.random() < 0.5
            else rng.randrange(shape.nodes)
        )
        second = rng.choice([n for n in range(shape.nodes) if n != first])
        status = rng.choices(("running", "ADMIN_down"), (19, 1))[0]
        free_memory[first] -= size if status == "running" else 0
        if shape.template in {"drbd", "plain"}:
            free_disk[first] -= space
        secondary = ""
        if shape.template == "drbd":
            free_disk[second] -= space
            secondary = f"node{second:03d}.bench.test"
        vcpus = rng.choice((1, 1, 2))
        lines.append(
            f"inst{number:04d}.bench.test|{size}|{space}|{vcpus}|{status}|Y"
            f"|node{first:03d}.bench.test|{secondary}|{shape.template}||1|-|N"
        )
    nodes = [
        f"node{n:03d}.bench.test|{memory[n]}|1024|{max(free_memory[n], 0)}|{disk[n]}"
        f"|{max(free_disk[n], 0)}|16|{'Y' if n >= live else 'M' if n == 0 else 'N'}"
        f"|{GROUP}|4||N|0|1|1.0"
        for n in range(shape.nodes)
    ]
    policy = f"{SPEC}|diskless,file,sharedfile,plain,drbd,rbd,ext|16.0|128.0"
    parts = (
        [f"default|{GROUP}|preferred||"],
        nodes,
        lines,
        [],
        [f"|{policy}", f"default|{policy}"],
    )
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts)
