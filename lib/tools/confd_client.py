"""``confd-client``: ask confd of the master candidates, or of one address.

Without a query it asks all that the configuration daemon of any release answers, prints
the answers, and measures the time of pings. With a query it prints one answer as JSON.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import daemons, exitcodes, versions
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths, from_environ
from ganeti.base.text import arguments
from ganeti.base.text.control_chars import escape
from ganeti.protocols import ssconf
from ganeti.protocols.confd import ConfdClient, Result, wire

NAME: Final = "confd-client"
_DAEMON: Final = "ganeti-confd"
#: Bytes; a key has 41.
_MAX_KEY: Final = 4096
#: Queries by the word of the command line.
KINDS: Final = {
    "ping": confd.CONFD_REQ_PING,
    "node-role": confd.CONFD_REQ_NODE_ROLE_BYNAME,
    "node-of-instance-ip": confd.CONFD_REQ_NODE_PIP_BY_INSTANCE_IP,
    "master": confd.CONFD_REQ_CLUSTER_MASTER,
    "node-ips": confd.CONFD_REQ_NODE_PIP_LIST,
    "candidate-ips": confd.CONFD_REQ_MC_PIP_LIST,
    "instance-ips": confd.CONFD_REQ_INSTANCES_IPS_LIST,
    "node-drbd": confd.CONFD_REQ_NODE_DRBD,
    "node-instances": confd.CONFD_REQ_NODE_INSTANCES,
    "instance-disks": confd.CONFD_REQ_INSTANCE_DISKS,
    "config": confd.CONFD_REQ_CONFIG_QUERY,
    "data-collectors": confd.CONFD_REQ_DATA_COLLECTORS,
}
_ERRORS: Final = {
    confd.CONFD_ERROR_UNKNOWN_ENTRY: "the cluster knows no such object",
    confd.CONFD_ERROR_INTERNAL: "internal error of the daemon, see its log",
    confd.CONFD_ERROR_ARGUMENT: "missing or unsuitable key of the query",
}
_MASTER_FIELDS: Final = {
    confd.CONFD_REQQ_FIELDS: [
        confd.CONFD_REQFIELD_NAME,
        confd.CONFD_REQFIELD_IP,
        confd.CONFD_REQFIELD_MNODE_PIP,
    ]
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Ask confd about the cluster; see confd-client(8).",
        formatter_class=arguments.Formatter,
    )
    add = parser.add_argument
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--hmac",
        metavar="KEY",
        help="the key itself, visible to all users of this machine while it runs",
    )
    keys.add_argument(
        "--hmac-file",
        metavar="FILE",
        help="file of the key; default: that of this node",
    )
    add(
        "-a",
        "--address",
        action="append",
        help="server to ask, may be repeated; default: the master candidates",
    )
    port = daemons.DAEMONS[_DAEMON].port
    add("-p", "--port", type=int, help=f"UDP port, default {port}")
    add("-r", "--requests", type=int, default=100, help="rounds of the measurement")
    add("-t", "--timeout", type=float, default=10.0, help="seconds, default 10")
    add("--sha256", action="store_true", help="sign with SHA-256; see ganeti-confd(8)")
    add("-d", "--debug", action="store_true", help="print who answered")
    add("-v", "--verbose", action="store_true", help="print who answered")
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    add("kind", nargs="?", choices=list(KINDS), metavar="QUERY", help=", ".join(KINDS))
    add("key", nargs="?", help="name, address, link or path; or a JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    options = build_parser().parse_args(argv)
    try:
        client = _client(options, from_environ(os.environ))
        if options.kind:
            return _ask_once(client, options)
        return _ask_everything(client, options)
    except (errors.GenericError, OSError) as err:
        print(f"{NAME}: {escape(str(err))}", file=sys.stderr)
        return exitcodes.EXIT_FAILURE


def _client(options: argparse.Namespace, paths: Paths) -> ConfdClient:
    port = options.port
    if port is None:
        port = netutils.service_port(_DAEMON, daemons.DAEMONS[_DAEMON].port or 0, "udp")
    key = _key(options, paths)
    if options.address:
        peers = [netutils.lookup(name, paths) for name in options.address]
    else:
        peers = ssconf.SimpleStore(paths).master_candidates_ips()
    magic = wire.MAGIC_SHA256 if options.sha256 else wire.MAGIC_SHA1
    return ConfdClient(key, peers, port=port, magic=magic)


def _key(options: argparse.Namespace, paths: Paths) -> bytes:
    """Return the key that the options name.

    Raises:
        ConfdClientError: the file is empty.
    """
    if options.hmac:
        return str(options.hmac).encode()
    path = options.hmac_file or paths.hmac_key
    key = files.read_file(path, max_size=_MAX_KEY)
    if not key.strip():
        raise errors.ConfdClientError(f"{path}: wanted a key, found an empty file")
    return key


def _ask(
    client: ConfdClient, options: argparse.Namespace, kind: int, key: Any = None
) -> Result:
    """Return the replies to a question.

    Raises:
        ConfdClientError: nobody has answered.
    """
    result = client.ask(kind, key, timeout_s=options.timeout)
    if options.debug or options.verbose:
        print(f"answered: {', '.join(result.answered) or 'none'}", file=sys.stderr)
    if result.reply is None:
        raise errors.ConfdClientError(
            f"no answer within {options.timeout:g} seconds: is ganeti-confd running"
            " there, and is the key the same?"
        )
    return result


def _key_of(kind: str, text: str | None) -> Any:
    if text is None:
        return None
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError as err:
            raise errors.ConfdClientError(f"{text}: not JSON: {err}") from err
    if kind == "node-of-instance-ip":
        return {confd.CONFD_REQQ_IP: text}
    return text


def _ask_once(client: ConfdClient, options: argparse.Namespace) -> int:
    key = _key_of(options.kind, options.key)
    result = _ask(client, options, KINDS[options.kind], key)
    reply = result.reply
    if reply is None or not result.is_ok:
        raise errors.ConfdClientError(f"{options.kind}: {_error_text(reply)}")
    if result.is_inconsistent:
        print(f"{NAME}: the servers disagree", file=sys.stderr)
    print(json.dumps(reply.answer))
    return exitcodes.EXIT_FAILURE if result.is_inconsistent else exitcodes.EXIT_SUCCESS


def _error_text(reply: Any) -> str:
    """Return the meaning of an error; its number if it has no known one."""
    answer = None if reply is None else reply.answer
    known = _ERRORS.get(answer) if type(answer) is int else None
    return known or f"error {json.dumps(answer)}"


def _ask_everything(client: ConfdClient, options: argparse.Namespace) -> int:
    def show(title: str, kind: int, key: Any = None) -> Any:
        reply = _ask(client, options, kind, key).reply
        assert reply is not None
        word = "ok" if reply.status == confd.CONFD_REPL_STATUS_OK else "error"
        print(f"{title}: {word}, serial {reply.serial}: {json.dumps(reply.answer)}")
        return reply.answer if word == "ok" else None

    show("ping", confd.CONFD_REQ_PING)
    master = show("master", confd.CONFD_REQ_CLUSTER_MASTER)
    show("master fields", confd.CONFD_REQ_CLUSTER_MASTER, _MASTER_FIELDS)
    show("node role of the master", confd.CONFD_REQ_NODE_ROLE_BYNAME, master)
    show("node addresses", confd.CONFD_REQ_NODE_PIP_LIST)
    show("candidate addresses", confd.CONFD_REQ_MC_PIP_LIST)
    addresses = show("instance addresses", confd.CONFD_REQ_INSTANCES_IPS_LIST)
    if addresses:
        query = {confd.CONFD_REQQ_IPLIST: addresses[:100]}
        show("nodes of the instances", confd.CONFD_REQ_NODE_PIP_BY_INSTANCE_IP, query)
    _measure(client, options)
    return exitcodes.EXIT_SUCCESS


def _measure(client: ConfdClient, options: argparse.Namespace) -> None:
    for title, kind, key in (
        ("ping", confd.CONFD_REQ_PING, None),
        ("master fields", confd.CONFD_REQ_CLUSTER_MASTER, _MASTER_FIELDS),
    ):
        begin = time.perf_counter()
        for _ in range(options.requests):
            _ask(client, options, kind, key)
        if options.requests:
            took = (time.perf_counter() - begin) / options.requests
            print(
                f"{title}: {took * 1000:.2f} ms per query, {options.requests} queries"
            )
