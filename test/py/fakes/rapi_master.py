"""A master daemon as the remote API sees it, and a client of the WSGI application."""

import io
import json

import msgspec

from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.daemons.rapi.pool import Stream
from ganeti.master.query import encoded
from ganeti.model import opcodes
from ganeti.operations.mcpu.planning import OpPlan, Plan
from ganeti.protocols.http import parking
from ganeti.protocols.rapi import row_parts
from ganeti.protocols.rapi.resource_table import METHODS, OPCODES

INCIDENT = "incident-1"
NODE_OF_INCIDENT = "uuid-of-its-node"
_TABLES = {
    "instance": row_parts.INSTANCE,
    "node": row_parts.NODE,
    "group": row_parts.GROUP,
    "network": row_parts.NETWORK,
}

#: Content that the types of the opcodes require, by path.
CREATE = {"__version__": 1, "name": "web9", "mode": "create", "disks": [], "nics": []}
BODIES = {
    "/2/instances": CREATE,
    "/2/instances-multi-alloc": {"instances": []},
    "/2/instances/[instance_name]/disk/[disk_index]/grow": {"amount": 10},
    "/2/instances/[instance_name]/export": {"destination": ["n1"]},
    "/2/instances/[instance_name]/modify": {},
    "/2/instances/[instance_name]/rename": {"new_name": "web2"},
    "/2/instances/[instance_name]/replace-disks": {"mode": "replace_auto"},
    "/2/nodes/[node_name]/evacuate": {"mode": "all"},
    "/2/nodes/[node_name]/role": "drained",
    "/2/groups": {"name": "g1"},
    "/2/groups/[group_name]/assign-nodes": {"nodes": ["n1"]},
    "/2/groups/[group_name]/rename": {"new_name": "g2"},
    "/2/networks": {"name": "lan", "network": "192.0.2.0/24"},
    "/2/networks/[network_name]/connect": {
        "group_name": "g1",
        "network_link": "br0",
        "network_mode": "bridged",
    },
    "/2/networks/[network_name]/disconnect": {"group_name": "g1"},
    "/2/networks/[network_name]/rename": {"new_name": "wan"},
    "/2/jobs/[job_id]/wait": {"fields": ["status"]},
}


def _object(resource, name, **values):
    known = dict.fromkeys(_TABLES[resource])
    return known | {"name": name, "uuid": f"uuid-{name}", "tags": []} | values


class RapiMaster(FakeMaster):
    """Has two instances, two nodes, a group, a network, a filter rule and a job."""

    def __init__(self):
        super().__init__()
        beparams = {"maxmem": 512, "minmem": 512, "vcpus": 1}
        console = {"kind": "vnc", "host": "n1", "port": 11000}
        self.objects = {
            "instance": [
                _object("instance", "web1", beparams=beparams, console=console),
                _object("instance", "web2", beparams=beparams, console=None),
            ],
            "node": [
                _object("node", "n1", role="M", sip="192.0.2.1"),
                _object("node", "n2", role="R", sip="192.0.2.2"),
            ],
            "group": [_object("group", "default")],
            "network": [_object("network", "lan")],
            "filter": [
                dict.fromkeys(row_parts.FILTER) | {"uuid": "rule-1", "priority": 3}
            ],
        }
        self.incidents = []
        self.deaths = []
        #: Reasons of freezes; None for a thaw.
        self.freezes = []
        #: Arguments of ``OpenSession`` by digest, and those of revocations.
        self.sessions = {}
        self.revocations = []
        self.opened = 1
        #: Sessions of everybody, which can be revoked again and again.
        self.endless = {"session-1"}
        self.disk_names = {}
        self.selections = []
        self.cluster = {"name": "c", "volume_group_name": "xenvg"}
        self.cluster |= {"uuid": "0c7b8b3e-cluster", "serial_no": 7}
        self.results["OP_OS_DIAGNOSE"] = [["tiny", []], ["big", ["a", "b"]]]

    def call(self, method, args=(), *, timeout_s=None):
        # The master daemon refuses everything else on the socket of the remote API.
        assert method in METHODS
        if method in {"PlanJob", "SubmitJob"}:
            assert {op["OP_ID"] for op in args[0]} <= OPCODES
        return super().call(method, args)

    def stream(self, method, args):
        text = msgspec.json.encode(self.call(method, args))
        return Stream(text[:1], iter([text[1:]]), lambda: None)

    def submit(self, method, args, done, *, timeout_s):
        """Answer a wait, as `ganeti.protocols.luxi.shared.SharedClient` does."""
        try:
            result = self.call(method, args, timeout_s=timeout_s)
        except errors.GenericError as err:
            done(None, err)
        else:
            done(result, None)

    def _rows(self, resource, names, wanted):
        for name in names or ():
            if resource != "filter" and not list(self._matching(resource, [name])):
                raise errors.OpPrereqError(f"{name!r} not known", "unknown_entity")
        return super()._rows(resource, names, wanted)

    def _outcome(self, op):
        # The remote API reads the results of few opcodes; the tests set those.
        is_set = op.op_id() in self.results
        return super()._outcome(op) if is_set else ("success", None)

    def _WaitForJobChange(self, job_id, names, *known):
        try:
            return super()._WaitForJobChange(job_id, names, *known)
        except errors.OpPrereqError:
            return [None, []]  # as the daemon, which knows no such field

    def _QueryObjects(self, kind, names, wanted, lock):
        if kind == "job":
            rows = self._QueryJobs(names, wanted)
        else:
            rows = self._rows(kind, names, wanted)
        return [encoded.object_of(wanted, row) for row in rows]

    def _PlanJob(self, ops):
        decoded = [opcodes.decode(op) for op in ops]
        plans = [
            OpPlan(op.op_id(), op.summary(), [], [], [], [], {}, [], None)
            for op in decoded
        ]
        return msgspec.to_builtins(Plan(7, plans))

    def _QueryDiskName(self, uuid):
        return self.disk_names.get(uuid)

    def _CancelJob(self, job_id, kill=False):
        return super()._CancelJob(job_id, kill)

    def _QueryNodeDeaths(self, probe):
        assert not probe
        return {"state": {"serial_no": 2, "deaths": self.deaths}}

    def _QueryStatus(self):
        return {"severity": "ok", "status": 0, "findings": []}

    def _QueryMaintenance(self):
        return {"serial_no": 1, "jobs": [], "incidents": self.incidents}

    def _QueryJournal(self, selection):
        self.selections.append(selection)
        return [{"id": 3}]

    def _OpenSession(self, new):
        self.opened += 1
        self.sessions[new["token_digest"]] = {**new, "id": f"session-{self.opened}"}
        return self._QuerySessions(new["user"])[-1]

    def _UseSession(self, digest):
        one = self.sessions.get(digest)
        return one and [one["id"], one["user"], one["token_seal"]]

    def _QuerySessions(self, user):
        return [
            {"id": one["id"], "user": one["user"]}
            for one in self.sessions.values()
            if user in {None, one["user"]}
        ]

    def _QueryLivingSessions(self, ids):
        return [one["id"] for one in self.sessions.values() if one["id"] in ids]

    def _RevokeSessions(self, ids, user, reason=""):
        self.revocations.append((ids, user, reason))
        gone = [one for one in self._QuerySessions(user) if one["id"] in ids]
        ended = {one["id"] for one in gone}
        kept = [(d, one) for d, one in self.sessions.items() if one["id"] not in ended]
        self.sessions = dict(kept)
        return gone or [{"id": each} for each in ids if each in self.endless]

    def _FreezeAutomation(self, reason):
        self.freezes.append(reason)

    def _ThawAutomation(self):
        self.freezes.append(None)

    def _OpenConsole(self, name, kind, session):
        self._rows("instance", [name], ["name"])
        return {"instance": name, "kind": kind, "ticket": f"of {session}"}

    def _CancelIncident(self, uuid):
        if uuid != INCIDENT:
            raise errors.OpPrereqError(f"incident {uuid!r} not known", "unknown_entity")
        return NODE_OF_INCIDENT


class Parked:
    """A parked request; its answer is sent at once when it comes."""

    def __init__(self, start_response):
        self.start_response = start_response
        self.chunks = []

    def resume(self, answer):
        self.chunks = answer(self.start_response)


class Streams:
    """Streams of events that end at once."""

    def admit(self, user):
        """Admit everybody."""

    def start(self, ticket, wanted, _watch):
        def answer(start):
            start("200 OK", [("Content-Type", "text/event-stream")])
            return [json.dumps([wanted.since, sorted(wanted.kinds)]).encode()]

        ticket.resume(answer)


class Browser:
    """Sends requests to an application without a server."""

    def __init__(self, application, address="192.0.2.9"):
        self.application = application
        self.address = address
        self.headers = {}

    def send(self, method, uri, body=None, *, raw=None, **environ):
        """Return status, headers and decoded body."""
        query = uri.partition("?")[2]
        data = (
            raw
            if raw is not None
            else b""
            if body is None
            else json.dumps(body).encode()
        )
        environ = {
            "REQUEST_METHOD": method,
            "REQUEST_URI": uri.encode().decode("latin-1"),
            "QUERY_STRING": query,
            "REMOTE_ADDR": self.address,
            "CONTENT_LENGTH": str(len(data)) if data else "",
            "CONTENT_TYPE": "application/json",
            "wsgi.input": io.BytesIO(data),
        } | environ
        answer = []
        parked = Parked(lambda *start: answer.append(start))
        environ[parking.KEY] = lambda: parked
        chunks = self.application(environ, parked.start_response)
        text = b"".join([*chunks, *parked.chunks])
        [(status, headers)] = answer
        value = json.loads(text) if text else None
        return int(status.split()[0]), dict(headers), value
