"""Calls that are made again while a node is silent; its daemon may be restarting."""

import threading
from typing import Any, Final

from ganeti.operations import base
from ganeti.operations.instance.move import transfer_watch
from ganeti.protocols import rpc

#: Seconds until a node that was silent is asked again.
_AGAIN_S: Final = 2.0


def ask(ctx: base.Context, procedure: str, node: str, *args: Any) -> rpc.Result:
    """Call a node; again for a while if it does not answer. Calls can be repeated."""
    begun = ctx.clock.monotonic()
    while True:
        result = ctx.rpc.call_one(procedure, node, *args)
        is_unsure = result.failed and (result.is_silent or result.is_lost)
        silent_s = ctx.clock.monotonic() - begun
        if not is_unsure or silent_s >= transfer_watch.SILENCE_S:
            return result
        ctx.clock.wait(threading.Event(), _AGAIN_S)
