"""The environment of hook scripts, as pure functions."""

from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import hooks
from ganeti.model import objects

PREFIX: Final = "GANETI_"
POST_PREFIX: Final = "GANETI_POST_"


def common(
    snapshot: objects.Snapshot,
    *,
    op_id: str,
    hook: str,
    phase: str,
    object_type: str | None,
) -> dict[str, str]:
    """Return the variables that every hook script has, with their prefix."""
    cluster = snapshot.cluster
    master = snapshot.nodes.get(cluster.master_node)
    env = {
        "PATH": hooks.HOOKS_PATH,
        "GANETI_HOOKS_VERSION": str(hooks.HOOKS_VERSION),
        "GANETI_OP_CODE": op_id,
        # The same path on every node; a virtual node prepends its own root.
        "GANETI_DATA_DIR": pathutils.Paths().data_dir,
        "GANETI_HOOKS_PHASE": phase,
        "GANETI_HOOKS_PATH": hook,
        "GANETI_CLUSTER": cluster.cluster_name,
        "GANETI_MASTER": master.name if master else "",
    }
    if object_type is not None:
        env["GANETI_OBJECT_TYPE"] = object_type
    return env


def pre_variables(own: Mapping[str, Any]) -> dict[str, str]:
    """Return an operation's variables for the pre phase."""
    return {f"{PREFIX}{name}": text(value) for name, value in own.items()}


def post_variables(own: Mapping[str, Any]) -> dict[str, str]:
    """Return an operation's fresh variables for the post phase."""
    return {f"{POST_PREFIX}{name}": text(value) for name, value in own.items()}


def merge(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return common and own variables together.

    Raises:
        ProgrammerError: an own variable has the name of a common one.
    """
    if clash := sorted(base.keys() & own.keys()):
        raise errors.ProgrammerError(f"hook variables {', '.join(clash)} are reserved")
    return {**base, **own}


def text(value: Any) -> str:
    """Return a value as scripts get it: True, False, None and lists as in Python."""
    return value if isinstance(value, str) else str(value)
