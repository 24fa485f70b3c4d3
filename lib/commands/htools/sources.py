"""Sources of a placement program's cluster: files, simulated nodes and daemons.

Each source returns the cluster unchanged; ``loading`` applies the options that change
it. The reader of a source is imported when it is needed.
"""

import os
from typing import TYPE_CHECKING, Any, Final

from ganeti.base import errors
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.model.cluster import STATIC_KVM_MIB, Cluster, DataError

if TYPE_CHECKING:
    from ganeti.decisions.htools.model import query
    from ganeti.protocols import luxi

#: Seconds to wait for a master daemon to listen, and for each of its answers.
LUXI_CONNECT_S: Final = 10.0
LUXI_ANSWER_S: Final = 60.0
#: Most bytes of a file of cluster data; a thousand nodes need a few million.
MOST_BYTES: Final = 1 << 30


def read(parsed: ParsedOptions) -> Cluster:
    """Read the cluster from the source that the options name.

    Raises:
        DataError, OSError, GenericError: the source cannot be read or is malformed.
    """
    if sum(parsed.get(key) is not None for key in ("m", "L", "t")) > 1:
        raise SeveralSourcesError
    static_memory = parsed.get("skm")
    static = STATIC_KVM_MIB if static_memory is None else static_memory
    offline = parsed.get("O") or ()
    if parsed.get("m") is not None:
        from ganeti.commands.htools import rest
        from ganeti.decisions.htools.model import query

        answers = rest.read(parsed["m"])
        return query.read_cluster(answers, static_memory=static, offline=offline)
    if parsed.get("L") is not None:
        from ganeti.decisions.htools.model import query

        answers = read_luxi(parsed["L"])
        return query.read_cluster(answers, static_memory=static, offline=offline)
    if parsed.get("sim"):
        from ganeti.decisions.htools.model import simulate

        return simulate.load(parsed["sim"])
    if parsed.get("t") is not None:
        return read_text(parsed["t"])
    if parsed.get("I") is not None:
        from ganeti.decisions.htools.hail import request

        path = parsed["I"]
        data = read_json(path)
        return request.read_cluster(data, static_memory=static, source=path)
    raise DataError("No backend selected! Exiting.")


class SeveralSourcesError(Exception):
    """Several exclusive sources were given."""

    def __str__(self) -> str:
        return "Only one of the rapi, luxi, and data files options should be given."


def read_bytes(path: str) -> bytes:
    """Return a file's content; a file above the limit, such as a device, is refused."""
    with open(path, "rb") as stream:
        try:
            data = stream.read(MOST_BYTES + 1)
        except OSError as err:
            err.filename = path
            raise
    if len(data) > MOST_BYTES:
        raise DataError(f"{path}: larger than {MOST_BYTES} bytes")
    return data


def read_text(path: str) -> Cluster:
    """Read a cluster from a text file."""
    from ganeti.decisions.htools.model import text

    return text.load(decoded(read_bytes(path), path), path)


def decoded(data: bytes, path: str) -> str:
    """Return the text of a file.

    Raises:
        DataError: the file is not text; names file and line.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise DataError(
            f"{path}, line {line}: not a text file: {err.reason}, {data[err.start]:#x}"
        ) from err


def read_json(path: str) -> Any:
    """Read a JSON file.

    Raises:
        DataError, OSError: the file is not JSON, or cannot be read.
    """
    from ganeti.decisions.htools.model import json_reader

    return json_reader.decode(read_bytes(path), path)


def connect(path: str, *, retries: int = 0) -> "luxi.Client":
    """Return a client of the master daemon; it connects at the first call.

    Args:
        path: the daemon's socket; empty for the default.
        retries: how often a call is repeated after a broken connection.
    """
    from ganeti.base import pathutils
    from ganeti.base.constants import misc
    from ganeti.protocols import luxi

    return luxi.Client.of_node(
        pathutils.from_environ(os.environ),
        override=path or os.environ.get(misc.LUXI_OVERRIDE, ""),
        connect_timeout_s=LUXI_CONNECT_S,
        timeout_s=LUXI_ANSWER_S,
        retries=retries,
    )


def read_luxi(path: str) -> "query.QueryAnswers":
    """Query all data of a cluster from its master daemon.

    Raises:
        GenericError: the daemon cannot be reached, or stopped answering.
        DataError: the answer has a wrong form.
    """
    from ganeti.decisions.htools.model import query

    with connect(path) as client:
        source = f"LUXI {client.path}"
        tables = {
            kind: query.objects(
                client.call("Query", [kind, list(fields), None]), fields, source
            )
            for kind, fields in query.FIELDS.items()
        }
        info = client.call("QueryClusterInfo")
    return query.QueryAnswers(
        source, tables["group"], tables["node"], tables["instance"], info
    )


def reason(err: Exception) -> str:
    """Return the message of an error of reading."""
    if isinstance(err, OSError):
        text = err.strerror or str(err)
        return text if err.filename is None else f"{err.filename}: {text}"
    if isinstance(err, errors.LuxiPermissionError):
        return f"this user has no right to connect to the master daemon at {err}"
    if isinstance(err, errors.NoMasterError):
        return f"Cannot reach the master daemon at {err}"
    if isinstance(err, errors.GenericError) and err.args:
        # Further arguments are the error code, for programs.
        return str(err.args[0])
    return str(err)
