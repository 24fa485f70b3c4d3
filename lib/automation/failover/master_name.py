"""The needs of a new master's own node before the store names it.

The master daemon starts only where the file ``ssconf_master_node`` names the own node.
A node that cannot record that must not become the master: the old one, which the store
does not name any more, would refuse to start, too.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.master import config
from ganeti.model.objects import Node, Snapshot
from ganeti.protocols import ssconf

_log = logging.getLogger(__name__)

#: The file that names the master.
KEY: Final = "master_node"


def check_start(paths: Paths, own: Node) -> None:
    """Refuse a node on which the master daemon would not start.

    Raises:
        OpPrereqError: its name does not resolve, or its certificate is of another node.
    """
    try:
        netutils.lookup(paths.hostname, paths)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master: its own name does not resolve:"
            f" {err.args[-1]}",
            ecodes.ECODE_RESOLVER,
        ) from err
    present = authority.node_uuid(paths.client_pem)
    if present not in (None, own.uuid):
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master: {paths.client_pem}: wanted a"
            f" certificate of {own.uuid}, found one of {present}",
            ecodes.ECODE_STATE,
        )


@contextlib.contextmanager
def recorded_here(paths: Paths, snapshot: Snapshot, own: Node) -> Iterator[None]:
    """Have the files of this node name it as the master.

    The store records the new master in the block; if that fails, this node names the
    former one again.

    Args:
        paths: of this node.
        snapshot: the configuration, which may still name the former master.
        own: this node.

    Raises:
        OpPrereqError: the file cannot be written; the block was not entered.
    """
    store = ssconf.SimpleStore(paths)
    former = store.get_or(KEY, "")
    try:
        _write(paths, {**config.ssconf_values(snapshot), KEY: own.name})
        if store.master_node() != own.name:
            raise errors.ConfigurationError(f"{store.path(KEY)} names another node")
    except (errors.GenericError, OSError) as err:
        raise errors.OpPrereqError(
            f"{own.name} cannot become the master, since it cannot record that: {err};"
            " the configuration was not changed",
            ecodes.ECODE_ENVIRON,
        ) from err
    try:
        yield
    except BaseException:
        with contextlib.suppress(errors.GenericError, OSError):
            # A faster master may have written its own name since.
            if store.master_node() == own.name:
                _write(paths, {KEY: former})
        raise


def _write(paths: Paths, values: dict[str, str]) -> None:
    """Write ssconf files; other keys that are refused do not matter to a new master."""
    try:
        ssconf.write(paths, values)
    except errors.ConfigurationError as err:
        _log.warning("%s", err)
