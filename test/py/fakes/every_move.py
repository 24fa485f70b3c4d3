"""All moves of a cluster, for tests that compare a search with trying everything."""

from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.rules.moves import Move, MoveKind


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
