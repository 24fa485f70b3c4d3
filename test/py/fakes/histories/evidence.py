"""Reads the state of a cluster after a history: copies, logs, jobs, lost changes."""

import contextlib
import pathlib
import re

from fakes.histories.rules import Copy, Point
from fakes.patience import until
from ganeti.base import errors
from ganeti.decisions.quorum import parse_term
from ganeti.master.config import config as header
from ganeti.store.copies import branches
from ganeti.store.database import Database

_LOGS = "var/log/ganeti"
_TERM = re.compile(r"master term \S+ -> (\S+)$")
_CALL = re.compile(r"call (\w+), term (\d\S*)$")
#: A store in etcd has no election: the term is that of a lease.
_ELECTED = re.compile(r"elected for term (\S+)$")
_LEADS = re.compile(r"revision \d+, term (\S+)$")


#: Seconds in which a commit of the master daemon itself reaches all candidates.
_ON_THE_WAY_S = 15.0


def settled_copies(machines):
    """Return `copies` when they agree, or as they are after some seconds.

    The master daemon may commit between the looks at two nodes, such as the rights of a
    candidate; copies that have different histories do not agree later either.
    """
    with contextlib.suppress(AssertionError):
        return until("equal copies", lambda: _equal(copies(machines)), _ON_THE_WAY_S)
    return copies(machines)


def _equal(collected):
    ends = {(copy.revision, copy.digest) for copy in collected.values()}
    return collected if len(ends) == 1 else None


def copies(machines):
    """Return the copy of each candidate's node by short name, where there is one."""
    collected = {}
    for node in machines.candidates:
        with contextlib.suppress(errors.ConfigurationError):
            collected[node.short] = _copy(machines.paths(node).store_db)
    return collected


def _copy(path):
    db = Database(path, create=False)
    try:
        position = db.position()
        return Copy(
            position.revision,
            position.digest.hex(),
            header.Header.decode(db.tables.read("meta", header.HEADER_KEY)).serial_no,
            int(db.tables.read("meta", "serial") or b"0"),
        )
    finally:
        db.close()


def chain(machines, node):
    """Return the groups that a node's change log has."""
    db = Database(machines.paths(node).store_db, create=False)
    try:
        return [Point(group.revision, group.term) for group in db.log.groups()]
    finally:
        db.close()


def lost(machines):
    """Return the copies that were set aside, and the jobs that they list as lost."""
    collected, jobs = [], set()
    for node in machines.nodes:
        for path in branches.files(machines.paths(node).store_db):
            if not path.endswith(".json"):
                collected.append(_copy(path))
            jobs |= {job.job_id for job in branches.read(path).jobs}
    return collected, jobs


def jobs(client):
    """Return {id: (status, comment of the first opcode)} of all jobs of the master."""
    rows = client.call("QueryJobs", [None, ["id", "status", "ops"]])
    return {row[0]: (row[1], row[2][0].get("comment") or "") for row in rows}


class Logs:
    """Reads what was added to the logs of all nodes."""

    def __init__(self, machines):
        self._machines = machines
        self._sizes = {}

    def acts(self):
        """Return node -> terms that its node daemon saw and acted for, in order."""
        return {
            node.short: [
                act
                for line in self._news(node, "node-daemon.log")
                if (act := _act(line)) is not None
            ]
            for node in self._machines.nodes
        }

    def elected(self):
        """Return (node, term) of each election that was won."""
        collected = []
        pattern = _LEADS if self._machines.servers else _ELECTED
        for node in self._machines.nodes:
            for path in sorted(pathlib.Path(node.root, _LOGS).glob("*.log")):
                if path.name != "node-daemon.log":
                    lines = self._news(node, path.name)
                    matches = map(pattern.search, lines)
                    collected += [(node.short, parse_term(m[1])) for m in matches if m]
        return collected

    def _news(self, node, name):
        path = pathlib.Path(node.root, _LOGS, name)
        if not path.exists():
            return []
        with open(path, "rb") as file:
            file.seek(self._sizes.get(path, 0))
            data = file.read()
            self._sizes[path] = file.tell()
        return data.decode(errors="replace").splitlines()


def _act(line):
    if match := _TERM.search(line):
        return None, parse_term(match[1])
    if match := _CALL.search(line):
        return match[1], parse_term(match[2])
    return None
