"""Seeded schedules of faults. Pure.

A schedule is a list of faults with their times. Nodes are named by number, so that a
seed means the same on each cluster of one size. Negative numbers are relative: `MASTER`
is whichever node serves when the fault is played, `NEXT` the candidate after it, and so
on.

Half of the faults are single ones at random. The others are what endangers a promise: a
master on the smaller side of a partition while another node is made master (`_usurp`),
loss that an operator accepts while a majority goes on (`_force`), a candidate that missed
changes and is made master (`_stale`), operators who know nothing of each other (`_rival`).

With a store in etcd, a third of the faults hit its servers, no operator can accept loss,
and most masters are replaced by a takeover.
"""

import dataclasses
import random

#: Stands for the node that serves at that time.
MASTER = -1
#: The candidates after it.
NEXT, SECOND = -2, -3
#: Seconds of faults; then everything is healed. A failover that waits for silent nodes
#: takes about ten.
LENGTH_S = 14.0
#: Share of the schedules in which operators may accept loss; the rules say less then.
_FORCED = 0.35
#: How often something dangerous comes before a fault.
_DANGEROUS = 0.3
#: Shortest fault, in seconds.
_SHORTEST_S = 0.4
#: Kinds of faults and their weights.
KINDS = {
    "kill": 5,
    "power": 2,
    "pause": 4,
    "cut": 4,
    "isolate": 5,
    "split": 4,
    "skew": 2,
    "slow": 3,
    "full": 2,
    "failover": 6,
    "restart": 3,
}
#: Words of operators who move the master role, and how often they choose them.
FAILOVER_WORDS = {
    (): 6,
    ("--no-voting", "--yes-do-it"): 2,
    ("--accept-loss",): 1,
    ("--no-voting", "--accept-loss", "--yes-do-it"): 1,
}
#: Words of operators who start a master daemon.
RESTART_WORDS = {(): 5, ("--no-voting", "--yes-do-it"): 1}
#: Kinds of faults of servers of etcd and their weights.
SERVER_KINDS = {"server_kill": 4, "server_pause": 4, "server_cut": 5}
#: Share of the faults that hit servers of etcd, if there are any.
_SERVERS = 0.35
#: How many of three servers are hit at the same time, and how often.
_SERVERS_HIT = {1: 6, 2: 3, 3: 1}
#: Longest backward step: the certificates are only some minutes old.
_BACK_S, _FORTH_S = 30.0, 90000.0


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at_s: seconds after the beginning.
        kind: one of `KINDS` or `SERVER_KINDS`.
        nodes: numbers of the nodes that it hits, or that cannot reach servers any more.
        others: numbers of the nodes that these cannot reach any more; none stands for
            all the others.
        daemon: ``masterd``, ``noded`` or ``standby``, where one is hit.
        servers: numbers of the servers of etcd that it hits.
        seconds: how long it lasts; or of a clock, how far it is set.
        words: options of an operator's command.
        is_killed: the operator's command is killed while it runs, after ``seconds``.
    """

    at_s: float
    kind: str
    nodes: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    daemon: str = ""
    seconds: float = 0.0
    words: tuple[str, ...] = ()
    is_killed: bool = False
    servers: tuple[int, ...] = ()

    @property
    def is_forced(self):
        """Return whether it accepts loss."""
        return "--accept-loss" in self.words or "--no-voting" in self.words

    def __str__(self):
        parts = [f"{self.at_s:5.2f} s {self.kind}", self.daemon]
        parts.append(" ".join(map(_name, self.nodes)))
        if self.others:
            parts.append(f"-> {' '.join(map(_name, self.others))}")
        if self.servers:
            parts.append(f"server {' '.join(str(n + 1) for n in self.servers)}")
        if self.seconds:
            parts.append(f"{self.seconds:.2f} s")
        parts += [*self.words, "killed" if self.is_killed else ""]
        return " ".join(part for part in parts if part)


def _name(number):
    if number < 0:
        return "master" if number == MASTER else f"master+{MASTER - number}"
    return f"node{number + 1}"


def make(seed, nodes, candidates, servers=0):
    """Return the faults of a seed for a cluster, in the order of their times.

    Args:
        seed: number or text.
        nodes: how many nodes there are; the first ones are candidates.
        candidates: how many candidates there are.
        servers: how many servers of etcd there are; none with files.
    """
    chance = random.Random(f"{seed}/{nodes}/{candidates}")
    faults = _draw(chance, nodes, candidates)
    if servers:
        faults = [_with_servers(chance, fault, nodes, servers) for fault in faults]
    elif chance.random() >= _FORCED:
        faults = [dataclasses.replace(fault, words=()) for fault in faults]
    return faults


def _draw(chance, nodes, candidates):
    faults, at_s = [], chance.uniform(0.3, 1.0)
    while at_s < LENGTH_S:
        if chance.random() < _DANGEROUS:
            danger = chance.choice((_usurp, _usurp, _force, _stale, _rival))
            faults += danger(chance, at_s)
            at_s += chance.uniform(2.0, 6.0)
        faults.append(_fault(chance, at_s, nodes, candidates))
        # Half of them come when the one before has hardly begun.
        is_soon = chance.random() < 0.5
        at_s += chance.uniform(0.0, 0.3) if is_soon else chance.uniform(0.3, 3.0)
    if not any(fault.kind in ("failover", "restart") for fault in faults):
        faults.append(_failover(chance, LENGTH_S - 0.1, candidates))
    return sorted(faults, key=lambda fault: fault.at_s)


def _with_servers(chance, fault, nodes, servers):
    """Return a fault as it is with a store in etcd, or one of the servers instead."""
    fault = dataclasses.replace(fault, words=())
    if chance.random() >= _SERVERS:
        if fault.daemon == "noded" and chance.random() < 0.5:
            return dataclasses.replace(fault, daemon="standby")
        return fault
    count = min(_choose(chance, _SERVERS_HIT), servers)
    hit = tuple(sorted(chance.sample(range(servers), count)))
    lasting = _lasting(chance)
    kind = _choose(chance, SERVER_KINDS)
    cut = (MASTER,) if chance.random() < 0.5 else _some(chance, nodes)
    cut = cut if kind == "server_cut" else ()
    return Fault(fault.at_s, kind, cut, seconds=lasting, servers=hit)


def _some(chance, nodes):
    """Return some nodes, or none, which stands for the other servers."""
    return tuple(number for number in range(nodes) if chance.random() < 0.4)


def _lasting(chance):
    """Return how long a fault lasts: as many short ones as long ones."""
    return _SHORTEST_S * (LENGTH_S / _SHORTEST_S) ** chance.random()


def _usurp(chance, at_s):
    """Cut off the master, alone or with another candidate, and replace it."""
    with_it = (NEXT,) if chance.random() < 0.3 else ()
    words = _choose(chance, FAILOVER_WORDS)
    lasting = chance.uniform(4.0, LENGTH_S)
    later = at_s + chance.uniform(0.0, 3.0)
    return [
        Fault(at_s, "split", (MASTER, *with_it), seconds=lasting),
        Fault(later, "failover", (SECOND,), words=words),
    ]


def _force(chance, at_s):
    """Make a node master that has no majority, while the old master may have one."""
    words = ("--no-voting", "--accept-loss", "--yes-do-it")
    lasting = chance.uniform(6.0, LENGTH_S)
    later = at_s + chance.uniform(0.0, 2.0)
    return [
        Fault(at_s, "split", (SECOND,), seconds=lasting),
        Fault(later, "failover", (SECOND,), words=words),
    ]


def _stale(chance, at_s):
    """Let a candidate miss changes, end the master, and make the candidate master."""
    missing, away = chance.uniform(0.5, 4.0), chance.uniform(3.0, LENGTH_S)
    end = at_s + missing
    how = chance.choice(("pause", "kill"))
    return [
        Fault(at_s, how, (NEXT,), daemon="noded", seconds=missing),
        Fault(end - 0.05, "power", (MASTER,), seconds=away),
        Fault(end + chance.uniform(0.0, 1.0), "failover", (NEXT,)),
    ]


def _rival(chance, at_s):
    """Let two operators make two nodes master at the same time."""
    later = at_s + chance.uniform(0.0, 1.5)
    return [
        Fault(at_s, "failover", (NEXT,), words=_choose(chance, FAILOVER_WORDS)),
        Fault(later, "failover", (SECOND,), words=_choose(chance, FAILOVER_WORDS)),
    ]


def _choose(chance, weights):
    return chance.choices(list(weights), list(weights.values()))[0]


def _node(chance, count):
    return MASTER if chance.random() < 0.5 else chance.randrange(count)


def _failover(chance, at_s, candidates):
    return Fault(
        at_s,
        "failover",
        (chance.randrange(candidates),),
        words=_choose(chance, FAILOVER_WORDS),
        is_killed=chance.random() < 0.25,
        seconds=chance.uniform(0.2, 8.0),
    )


def _fault(chance, at_s, nodes, candidates):
    kind = _choose(chance, KINDS)
    lasting = _lasting(chance)
    if kind == "failover":
        return _failover(chance, at_s, candidates)
    if kind == "restart":
        words = _choose(chance, RESTART_WORDS)
        return Fault(at_s, kind, (MASTER,), words=words)
    if kind in ("cut", "split"):
        numbers = list(range(nodes))
        chance.shuffle(numbers)
        size = chance.randint(1, nodes - 1)
        left, right = tuple(sorted(numbers[:size])), tuple(sorted(numbers[size:]))
        return Fault(at_s, kind, left, right, seconds=lasting)
    if kind == "isolate":
        # A one-way loss, or all of them, between one node and the rest.
        others = tuple(n for n in range(nodes) if chance.random() < 0.8)
        return Fault(at_s, kind, (_node(chance, nodes),), others, seconds=lasting)
    daemon = chance.choice(("masterd", "noded"))
    hit = _node(chance, nodes)
    if daemon == "masterd" and kind in ("kill", "pause"):
        hit = MASTER
    if kind == "skew":
        sign = chance.choice((-1.0, 1.0))
        far = _BACK_S if sign < 0 else chance.choice((_BACK_S, 600.0, _FORTH_S))
        return Fault(at_s, kind, (hit,), seconds=sign * chance.uniform(1.0, far))
    if kind in ("slow", "full", "power"):
        daemon = ""
    return Fault(at_s, kind, (hit,), daemon=daemon, seconds=lasting)
