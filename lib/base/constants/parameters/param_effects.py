"""When a changed parameter takes effect, by kind of parameter.

The tables `params` and `hvparams` have type, default and meaning of each parameter.
"""

from collections.abc import Mapping
from typing import Final

NOW: Final = "takes effect at once"
START: Final = (
    "takes effect at the next start of the instance by Ganeti; not hot-pluggable"
)
HOT: Final = "hot-pluggable: changes a running KVM instance at once"
MIGRATION: Final = "takes effect at the next migration; not hot-pluggable"
NEW_DISKS: Final = "used for new disks only; present disks keep their form"
ADDED: Final = "given when the disk is added, which is hot-pluggable; cannot be changed"
ACTIVATION: Final = "takes effect at the next activation of the disk"
NEW_NODES: Final = "used when a node is added or its own value changes"

_HYPERVISOR: Final = {
    "migration_bandwidth": MIGRATION,
    "migration_caps": MIGRATION,
    "migration_downtime": MIGRATION,
    "migration_mode": MIGRATION,
    "migration_port": MIGRATION,
}
_BACKEND: Final = {
    "always_failover": NOW,
    "auto_balance": NOW,
    "spindle_use": NOW,
}
_NIC: Final = dict.fromkeys(("link", "mode", "vlan"), HOT)
_INIC: Final = {
    **dict.fromkeys(("bridge", "ip", "link", "mac", "mode", "network", "vlan"), HOT),
    "name": NOW,
}
_IDISK: Final = {
    **dict.fromkeys(
        ("adopt", "dev_type", "metavg", "provider", "size", "spindles", "vg"), ADDED
    ),
    "access": START,
    "mode": START,
    "name": NOW,
}
_NODE: Final = {
    **dict.fromkeys(("ovs", "ovs_link", "ovs_name"), NEW_NODES),
    **dict.fromkeys(("cpu_speed", "oob_program", "spindle_count", "ssh_port"), NOW),
    "exclusive_storage": NEW_DISKS,
}
_DISK: Final = {
    **dict.fromkeys(
        (
            *("data-stripe_size", "data-stripes", "meta-stripe_size", "meta-stripes"),
            *("metavg", "pool", "stripe_size", "stripes", "volume"),
        ),
        NEW_DISKS,
    ),
    "access": START,
}
#: Kind of parameters -> effects of single ones, and the effect of all others.
_BY_KIND: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "hypervisor": (_HYPERVISOR, START),
    "backend": (_BACKEND, START),
    "nic": (_NIC, ""),
    "nic of an instance": (_INIC, ""),
    "disk of an instance": (_IDISK, ""),
    "node": (_NODE, ""),
    "disk template": (_DISK, ACTIVATION),
}


def effect_of(kind: str, name: str) -> str:
    """Return when a change of a parameter takes effect, as a clause.

    Args:
        kind: ``backend``, ``nic``, ``nic of an instance``, ``disk of an instance``,
            ``node``, ``hypervisor NAME`` or ``disk template NAME``.
        name: of the parameter.

    Raises:
        KeyError: the kind is unknown, or the parameter has no effect in the table.
    """
    whole = _BY_KIND.get(kind) or _BY_KIND[kind.rpartition(" ")[0]]
    single, others = whole
    effect = single.get(name, others)
    if not effect:
        raise KeyError(f"{kind}: {name}")
    return effect
