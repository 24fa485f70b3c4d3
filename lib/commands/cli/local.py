"""Cluster data without the master daemon: the node's ssconf files."""

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.pathutils import Paths


def read_ssconf(paths: Paths, key: str) -> str:
    """Return the text of one ssconf value without the final newline.

    Raises:
        OpPrereqError: this node is not part of a cluster.
    """
    try:
        with open(paths.data(f"ssconf_{key}"), encoding="utf-8") as stream:
            return stream.read().removesuffix("\n")
    except FileNotFoundError as err:
        raise errors.OpPrereqError(
            "cluster not initialized, or this machine is not part of one"
            f" (no ssconf file for {key})",
            ecodes.ECODE_INVAL,
        ) from err
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {err.filename}: {err.strerror}", ecodes.ECODE_ENVIRON
        ) from err


def master_node(paths: Paths) -> str:
    """Return the master's name from this node's ssconf files.

    Raises:
        OpPrereqError: this node is not part of a cluster.
    """
    return read_ssconf(paths, "master_node")


def check_is_master(paths: Paths) -> None:
    """Refuse to run on any node but the master.

    Raises:
        OpPrereqError: this node is not part of a cluster, or not its master.
    """
    master = master_node(paths)
    if master != paths.hostname and master.split(".")[0] != paths.hostname:
        raise errors.OpPrereqError(
            f"this is not the master node: please connect to {master!r} and run the"
            " command there",
            ecodes.ECODE_INVAL,
        )
