"""A typed client of the remote API: values, job handles, verified certificates.

It is made of the documented client (`ganeti.protocols.rapi.api`), whose methods remain
available as ``Cluster.api``. Reading requests are repeated after passing failures;
changes only if the server cannot have received them. Documented in
doc/rapi-client.rst.
"""

import logging
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
import pycurl

from ganeti.protocols.rapi import api as client
from ganeti.protocols.rapi import event_stream, names, transport
from ganeti.protocols.rapi.event_stream import Event, Position

P = ParamSpec("P")
T = TypeVar("T")

#: Failures before a request was sent, so any request may be repeated.
_NOT_SENT: Final = frozenset({pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_HOST})
#: Passing failures of reading requests: of the library, and statuses of HTTP.
_PASSING: Final = _NOT_SENT | {
    pycurl.E_GOT_NOTHING,
    pycurl.E_RECV_ERROR,
    pycurl.E_SEND_ERROR,
    429,
    502,
    503,
    504,
}
#: Seconds before the first repetition; each further one waits for twice as long.
_BACKOFF_S: Final = 0.5
#: CURLAUTH_BEARER of the library, which the Python module does not name.
_BEARER: Final = 1 << 6
_STATUS: Final = "status"


class JobFailed(client.Error):
    """A job ended without success.

    Attributes:
        job: its last state.
    """

    def __init__(self, job: "JobState") -> None:
        super().__init__(f"job {job.id}: {job.status}: {job.error or 'no reason'}")
        self.job = job


class JobUnfinished(client.Error):
    """A job has not ended in the given time; it goes on."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance; values that are not available are None. Sizes are MiB."""

    name: str
    uuid: str | None = None
    serial_no: int | None = None
    status: str | None = None
    admin_state: str | None = None
    os: str | None = None
    primary_node: str | None = msgspec.field(name="pnode", default=None)
    secondary_nodes: list[str] | None = msgspec.field(name="snodes", default=None)
    disk_template: str | None = None
    disk_sizes_mib: list[int | None] | None = msgspec.field(
        name="disk.sizes", default=None
    )
    tags: list[str] | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node; values that are not available are None. Sizes are MiB."""

    name: str
    uuid: str | None = None
    serial_no: int | None = None
    role: str | None = None
    offline: bool | None = None
    drained: bool | None = None
    total_memory_mib: int | None = msgspec.field(name="mtotal", default=None)
    free_memory_mib: int | None = msgspec.field(name="mfree", default=None)
    total_disk_mib: int | None = msgspec.field(name="dtotal", default=None)
    free_disk_mib: int | None = msgspec.field(name="dfree", default=None)
    tags: list[str] | None = None


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job."""

    id: int
    status: str | None = None
    summary: list[str] | None = None
    opstatus: list[str] | None = None
    opresult: list[Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended."""
        return self.status in names.JOB_STATUS_FINALIZED

    @property
    def error(self) -> str:
        """Return the text of the first failed opcode, empty if there is none."""
        pairs = zip(self.opstatus or (), self.opresult or (), strict=False)
        for status, result in pairs:
            if status == names.JOB_STATUS_ERROR:
                return _error_text(result)
        return ""


def _error_text(result: Any) -> str:
    """Return the text of an opcode's encoded error: class and arguments."""
    if isinstance(result, list) and len(result) > 1 and isinstance(result[1], list):
        return ", ".join(str(each) for each in result[1])
    return str(result)


class Job:
    """A handle of a submitted job."""

    def __init__(self, cluster: "Cluster", job_id: int) -> None:
        self._cluster = cluster
        self.id = job_id

    def state(self) -> JobState:
        """Return the present state."""
        raw = self._cluster.read(self._cluster.api.GetJobStatus, self.id)
        return _value(raw, JobState)

    def wait(self, timeout_s: float | None = None) -> list[Any]:
        """Wait by long polls until the job has ended, and return its results.

        Args:
            timeout_s: None for no limit; the last poll may take ten seconds longer.

        Raises:
            JobFailed: it ended without success.
            JobUnfinished: it has not ended in time.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            state = self.state()
            if state.status == names.JOB_STATUS_SUCCESS:
                return state.opresult or []
            if state.is_finished:
                raise JobFailed(state)
            if state.status is None:
                raise client.Error(f"job {self.id}: the server does not know it")
            if end is not None and time.monotonic() >= end:
                raise JobUnfinished(f"job {self.id}: {state.status}, not ended in time")
            poll = self._cluster.api.WaitForJobChange
            self._cluster.read(poll, self.id, [_STATUS], [state.status], None)

    def cancel(self) -> bool:
        """Cancel the job; return whether that was possible."""
        return bool(self._cluster.change(self._cluster.api.CancelJob, self.id)[0])


class Cluster:
    """A cluster that is reached over its remote API; for use by many threads."""

    def __init__(
        self,
        host: str,
        *,
        port: int = names.GANETI_RAPI_PORT,
        credentials: tuple[str, str] | None = None,
        token: str | None = None,
        cafile: str | None = None,
        public_key: str | None = None,
        retries: int = 3,
    ) -> None:
        """Prepare a client; nothing is sent.

        Certificates are always verified: by ``cafile``, by ``public_key``, or otherwise
        by the certificates that the system trusts and the host's name.

        Args:
            host: name or address of the master.
            port: of the server.
            credentials: name and password.
            token: a bearer token, instead of credentials.
            cafile: file with the cluster's certificate, which names no host.
            public_key: ``sha256//`` and the digest of the key in base64.
            retries: repetitions of a request after passing failures.

        Raises:
            Error: two ways to sign in, or two ways to trust.
        """
        if credentials is not None and token is not None:
            raise client.Error("give either credentials or a token, not both")
        if cafile is not None and public_key is not None:
            raise client.Error("give either cafile or public_key, not both")
        self._token, self._public_key = token, public_key
        self._trust = client.GenericCurlConfig(
            cafile=cafile,
            use_curl_cabundle=cafile is None and public_key is None,
            verify_hostname=cafile is None and public_key is None,
            connect_timeout=10,
            timeout=120,
        )
        self._retries = retries
        self._credentials = credentials
        self._events_url = f"{transport.base_url(host, port)}/2/events"
        username, password = credentials or (None, None)
        self.api = client.GanetiRapiClient(
            host, port, username, password, curl_config_fn=self._configure
        )

    def _configure(self, curl: Any, logger: Any) -> None:
        self._trust(curl, logger)
        if self._public_key is not None:
            curl.setopt(pycurl.PINNEDPUBLICKEY, self._public_key)
        if self._token is not None:
            curl.setopt(pycurl.HTTPAUTH, _BEARER)
            curl.setopt(pycurl.XOAUTH2_BEARER, self._token)

    def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of a method of ``api`` that changes nothing."""
        return self._repeat(_PASSING, lambda: call(*args, **kwargs))

    def change(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the answer of a method of ``api`` that must not run twice."""
        return self._repeat(_NOT_SENT, lambda: call(*args, **kwargs))

    def submit(self, call: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Job:
        """Submit a job by a method of ``api``, and return its handle."""
        return self.job(int(self.change(call, *args, **kwargs)))

    def plan(
        self, call: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
    ) -> dict[str, Any]:
        """Return what a method of ``api`` that submits a job would do; do nothing.

        The form is that of ``--plan --json`` of commands: ``jobs``, a list of plans.

        Raises:
            Error: the server makes no plans, and would submit the job.
        """
        if names.PLAN not in self.read(self.api.GetFeatures):
            raise client.Error("the server makes no plans; nothing was sent")
        with transport.planning():
            answer = self.read(call, *args, **kwargs)
        if not isinstance(answer, dict):
            raise client.Error(f"wanted a plan, found {answer!r}")
        return answer

    def _repeat(self, passing: frozenset[int], call: Callable[[], T]) -> T:
        for number in range(self._retries):
            try:
                return call()
            except client.GanetiApiError as err:
                if err.code not in passing:
                    raise
            time.sleep(_BACKOFF_S * 2**number)
        return call()

    def job(self, job_id: int) -> Job:
        """Return the handle of a job; nothing is sent."""
        return Job(self, job_id)

    def instances(self) -> Iterator[Instance]:
        """Yield all instances."""
        for raw in self.read(self.api.GetInstances, bulk=True):
            yield _value(raw, Instance)

    def instance(self, name: str) -> Instance:
        """Return an instance."""
        return _value(self.read(self.api.GetInstance, name), Instance)

    def reserve(
        self, name: str | None = None, *, key: str | None = None, **params: Any
    ) -> Job:
        """Reserve the resources of an instance; return the job's handle.

        The result of the job is the uuid of the forthcoming instance.

        Args:
            name: of the instance, if it is known yet.
            key: of the request. With a key the request is repeated after any passing
                failure, since it reserves only once.
            params: see `GanetiRapiClient.ReserveInstance`.
        """
        repeat = self.change if key is None else self.read
        if key is not None:
            params["request_key"] = key
        return self.job(int(repeat(self.api.ReserveInstance, name, **params)))

    def commit(self, instance: str, **params: Any) -> Job:
        """Create a forthcoming instance, given by name or uuid; return the handle.

        Args:
            instance: its name or uuid.
            params: see `GanetiRapiClient.CommitInstance`.
        """
        return self.submit(self.api.CommitInstance, instance, **params)

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes."""
        for raw in self.read(self.api.GetNodes, bulk=True):
            yield _value(raw, Node)

    def node(self, name: str) -> Node:
        """Return a node."""
        return _value(self.read(self.api.GetNode, name), Node)

    def events(
        self, *, kinds: Iterable[str] = (), since: str | None = None
    ) -> Iterator[Event | Position]:
        """Yield what happens in the cluster, without an end.

        The first value is a `Position`: what is read after it is not older than that. A
        connection that breaks is made again, and no event is missed, unless a further
        `Position` says so: it is ``lost`` after a failover or restart of the master.

        Args:
            kinds: such as ``job``; by default all.
            since: position of the last event that the caller has.

        Raises:
            GanetiApiError: the server refused it, or could not be reached again.
        """
        url = self._events_url
        if words := ",".join(kinds):
            url += f"?{urllib.parse.urlencode({'kinds': words})}"
        failures = 0
        while True:
            curl = transport.new_handle(
                self._configure, None, logging, self._credentials
            )
            try:
                for block in event_stream.follow(curl, url, since):
                    since, failures = block.id or since, 0
                    value = event_stream.value_of(block)
                    if value is not None:
                        yield value
            except client.GanetiApiError as err:
                failures += 1
                is_passing = err.code in {*_PASSING, pycurl.E_OPERATION_TIMEDOUT}
                if not is_passing or failures > self._retries:
                    raise
            time.sleep(_BACKOFF_S * 2**failures)


def _value(raw: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as err:
        raise client.Error(f"the server's answer is no {kind.__name__}: {err}") from err
