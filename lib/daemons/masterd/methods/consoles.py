"""LUXI method that issues tickets for consoles; an addition to Ganeti.

The ticket is a secret of whoever asked for it: the node gets its digest, and no log has
either of them.
"""

import hashlib
import secrets
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.daemons.masterd import audit
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.model.objects import Instance, lookup, params
from ganeti.protocols.console import stream
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.runner import node_port

#: Bytes of a ticket.
_SIZE: Final = 32
#: Seconds for which a ticket is valid: a viewer connects at once.
VALID_S: Final = 30.0


@method("OpenConsole")
def open_console(
    deps: MasterDeps, name: str, kind: stream.Kind, session: stream.Session = ""
) -> Later:
    """Issue a ticket for a console, which one viewer may present to its node.

    Keys: ``instance`` and ``uuid`` of the instance, ``kind``, ``node`` (name),
    ``node_uuid``, ``address`` and ``port`` of its node daemon, ``ticket``, and
    ``seconds`` for which it is valid.

    Raises:
        OpPrereqError: the instance is unknown, only reserved, or on an offline node.
    """
    snapshot = deps.config.snapshot()
    instance = snapshot.instances[lookup.expand_instance(snapshot, name)]
    if instance.forthcoming:
        raise errors.OpPrereqError(
            f"instance {instance.name}: is only reserved, so it has no console",
            ecodes.ECODE_STATE,
        )
    holder = audit.asking()
    return Later(deps.slow.submit(_issue, deps, instance, kind, session, holder))


def _issue(
    deps: MasterDeps, instance: Instance, kind: str, session: str, holder: str
) -> dict[str, Any]:
    snapshot = deps.config.snapshot()
    node = snapshot.nodes[instance.primary_node]
    ticket = secrets.token_urlsafe(_SIZE)
    request = {
        "digest": hashlib.sha256(ticket.encode()).hexdigest(),
        "instance": instance.uuid,
        "name": instance.name,
        "hypervisor": instance.hypervisor,
        "hvparams": params.fill_hvparams(snapshot, instance),
        "kind": kind,
        "session": session,
        "holder": holder,
        "seconds": VALID_S,
    }
    answer = deps.rpc.call_node(node.uuid, calls.console_ticket(request))
    answer.unwrap(f"cannot open the {kind} console of instance {instance.name}")
    return {
        "instance": instance.name,
        "uuid": instance.uuid,
        "kind": kind,
        "node": node.name,
        "node_uuid": node.uuid,
        "address": node.primary_ip,
        "port": node_port(),
        "ticket": ticket,
        "seconds": VALID_S,
    }
