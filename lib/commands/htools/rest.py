"""Clusters over REST: from a master, or from files with the same content."""

import os
import re
from typing import Any, Final
from urllib.parse import quote

import pycurl

from ganeti.base.constants import versions
from ganeti.base.net import netutils
from ganeti.decisions.htools.model import json_reader, query
from ganeti.decisions.htools.model.cluster import DataError

PORT: Final = 5080
#: Timeouts in seconds of the connection, and of a whole answer.
CONNECT_S: Final = 15
ANSWER_S: Final = 60
#: Most bytes of one answer.
MOST_BYTES: Final = 1 << 30
_FILES: Final = "file://"
_OK: Final = 200
_UNAUTHORISED: Final = 401
#: Name of the file -> resource with the same content.
_RESOURCES: Final = {
    "groups": "/2/groups?bulk=1",
    "nodes": "/2/nodes?bulk=1",
    "instances": "/2/instances?bulk=1",
    "info": "/2/info",
}
_ADDRESS_6: Final = re.compile(r"[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\Z")


def base_url(master: str) -> str:
    """Return the URL of a master; an argument with a colon is already one."""
    if _ADDRESS_6.fullmatch(master):
        return f"https://[{master}]:{PORT}"
    return master.rstrip("/") if ":" in master else f"https://{master}:{PORT}"


def shown(master: str) -> str:
    """Return a master or ``file://DIRECTORY`` for messages: without a password."""
    return master if master.startswith(_FILES) else netutils.shown_url(master)


def read(master: str) -> query.QueryAnswers:
    """Query a master, or read its answers from ``file://DIRECTORY``.

    Raises:
        DataError: the master cannot be reached, refuses, or its answer has a wrong
            form. OSError: a file cannot be read.
    """
    answers: dict[str, Any] = {}
    for name, path in _RESOURCES.items():
        source, data = _get(master, name, path)
        value = json_reader.decode(data, source)
        is_list = isinstance(value, list) and all(isinstance(v, dict) for v in value)
        if not (isinstance(value, dict) if name == "info" else is_list):
            kind = "an object" if name == "info" else "a list of objects"
            raise DataError(f"{source}: wanted {kind}, found {value!r:.80}")
        answers[name] = value
    return query.from_rest(
        f"REST {shown(master)}",
        answers["groups"],
        answers["nodes"],
        answers["instances"],
        info=answers["info"],
    )


def _get(master: str, name: str, path: str) -> tuple[str, bytes]:
    """Return the source and its answer."""
    if master.startswith(_FILES):
        file = os.path.join(master.removeprefix(_FILES), f"{name}.json")
        with open(file, "rb") as stream:
            return file, stream.read(MOST_BYTES)
    url = base_url(master)
    source = netutils.shown_url(url) + path
    return source, fetch(url + path, source)


def fetch(
    url: str,
    source: str = "",
    *,
    connect_s: float = CONNECT_S,
    answer_s: float = ANSWER_S,
) -> bytes:
    """Return the body of a URL; the server's certificate is not checked.

    The user is the one in the URL, or with TLS the one of this host in ``~/.netrc``.

    Args:
        url: the URL.
        source: its name in errors, if it has a password.
        connect_s: seconds until the connection.
        answer_s: seconds until the end of the answer.

    Raises:
        DataError: no answer in time, or a status other than 200.
    """
    source = source or url
    parts: list[bytes] = []
    size = 0

    def take(data: bytes) -> int | None:
        nonlocal size
        size += len(data)
        parts.append(data)
        return None if size <= MOST_BYTES else 0

    curl = pycurl.Curl()
    try:
        curl.setopt(pycurl.URL, quote(url, safe=":/?&=%[]@.,-_~"))
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        if url.startswith("https:"):
            curl.setopt(pycurl.NETRC, pycurl.NETRC_OPTIONAL)
        curl.setopt(pycurl.SSL_VERIFYPEER, 0)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(connect_s * 1000))
        curl.setopt(pycurl.TIMEOUT_MS, int(answer_s * 1000))
        curl.setopt(pycurl.NOPROXY, "*")
        curl.setopt(pycurl.USERAGENT, f"ganeti-htools/{versions.RELEASE_VERSION}")
        curl.setopt(pycurl.WRITEFUNCTION, take)
        curl.perform()
        code = curl.getinfo(pycurl.RESPONSE_CODE)
    except pycurl.error as err:
        raise DataError(f"{source}: {err.args[1]}") from err
    finally:
        curl.close()
    body = b"".join(parts)
    if code != _OK:
        hint = "; give a user in ~/.netrc" if code == _UNAUTHORISED else ""
        raise DataError(f"{source}: HTTP status {code}: {body[:200]!r}{hint}")
    return body
