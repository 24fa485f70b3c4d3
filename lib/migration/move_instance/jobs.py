"""Jobs of a cluster, seen through its remote API."""

import contextlib
from collections.abc import Callable
from typing import Any

from ganeti.base.constants import jobqueue
from ganeti.migration.move_instance.settings import Cluster
from ganeti.protocols.rapi import api

#: Seconds until a connection must be made.
_CONNECT_S = 30.0
#: Seconds for one answer; the server answers a wait for a job after about ten.
_ANSWER_S = 180.0
#: Answers in a row that may fail while a job is waited for, as when the master moves,
#: and seconds between them.
_MAX_FAILURES = 20
_PAUSE_S = 3.0
#: Seconds between two looks at a job that is about to end.
_POLL_S = 1.0
#: Statuses of a remote API whose master daemon is away for a moment.
_AWAY = (502, 503, 504)

#: Prints a line.
Say = Callable[[str], None]
#: Prints a line about a job, if its message, the second argument, is wanted.
Show = Callable[[str, str], None]


class JobError(Exception):
    """A job ended without success.

    Attributes:
        ecode: the code of a refused request, else empty.
        has_begun: whether anything may have been done.
    """

    def __init__(self, text: str, ecode: str = "", *, has_begun: bool = True) -> None:
        super().__init__(text)
        self.ecode = ecode
        self.has_begun = has_begun and not ecode


def connect(cluster: Cluster, *, logger: Any) -> api.GanetiRapiClient:
    """Return a client of a cluster; nothing is sent yet.

    Args:
        cluster: how to reach it.
        logger: gets the requests.
    """
    config = api.GenericCurlConfig(
        cafile=cluster.ca_file, connect_timeout=_CONNECT_S, timeout=_ANSWER_S
    )
    return api.GanetiRapiClient(
        cluster.name,
        port=cluster.port,
        username=cluster.username or None,
        password=cluster.password or None,
        curl_config_fn=config,
        logger=logger,
    )


class Job:
    """A job that runs or waits."""

    def __init__(
        self,
        client: api.GanetiRapiClient,
        where: str,
        job_id: Any,
        say: Show,
        *,
        wait: Callable[[float], None],
    ) -> None:
        """Watch a job.

        Args:
            client: of its cluster.
            where: ``source`` or ``destination``.
            job_id: of the job.
            say: gets each line about it, and the message in it.
            wait: waits for some seconds.
        """
        self._client = client
        self._where = where
        self._say = say
        self._wait = wait
        self._id = int(job_id)
        self._status: str | None = None
        self._serial: int | None = None

    def __str__(self) -> str:
        return f"{self._where} job {self._id}"

    def wait_for_entry(self, kind: str) -> Any:
        """Return the content of the first log entry of a kind.

        Raises:
            JobError: the job ended without one.
        """
        while True:
            for present, content in self._news():
                if present == kind:
                    return content
            if self._status in api.JOB_STATUS_FINALIZED:
                self.result()
                raise JobError(f"{self}: ended without what was waited for")

    def result(self) -> Any:
        """Wait for the end; return the result of its only opcode.

        Raises:
            JobError: it failed, or was canceled.
        """
        while self._status not in api.JOB_STATUS_FINALIZED:
            self._news()
        job = self._ask(self._read)
        (result,) = job["opresult"]
        if job["status"] == api.JOB_STATUS_SUCCESS:
            return result
        if job["status"] == api.JOB_STATUS_CANCELED:
            raise JobError(f"{self}: was canceled", has_begun=False)
        raise JobError(*_described(f"{self}", result))

    def end_soon(self, limit_s: float) -> None:
        """Ask the cluster to kill the job if it has not ended within some seconds.

        A refusal changes nothing: its end can be waited for all the same.
        """
        with contextlib.suppress(api.GanetiApiError):
            while self._ask(self._read)["status"] not in api.JOB_STATUS_FINALIZED:
                if limit_s <= 0:
                    self._client.KillJob(self._id)
                    return
                self._wait(_POLL_S)
                limit_s -= _POLL_S

    def _read(self) -> Any:
        return self._client.GetJobStatus(self._id)

    def _news(self) -> list[tuple[str, Any]]:
        """Wait for a change; return kind and content of the new log entries."""
        known = None if self._status is None else [self._status]
        answer = self._ask(
            lambda: self._client.WaitForJobChange(
                self._id, ["status"], known, self._serial
            )
        )
        if answer is None:
            return []
        (self._status,) = answer["job_info"]
        entries = []
        for serial, _time, kind, content in answer["log_entries"] or ():
            self._serial = serial
            entries.append((kind, content))
            if kind == jobqueue.ELOG_MESSAGE:
                self._say(f"{self}: {content}", str(content))
        return entries

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask about the job, again if no answer arrives or its master is away."""
        failures = 0
        while True:
            try:
                return question()
            except api.GanetiApiError as err:
                failures += 1
                # Another refusal by the server has a status of HTTP, too.
                is_refused = (err.code or 0) >= api.HTTP_OK and err.code not in _AWAY
                if is_refused or failures >= _MAX_FAILURES:
                    raise
            self._wait(_PAUSE_S)


def _described(what: str, result: Any) -> tuple[str, str]:
    """Return text and error code of an opcode's failure, which is a node's word."""
    if isinstance(result, list) and len(result) == 2 and isinstance(result[1], list):
        texts = [str(each) for each in result[1]]
        text = f"{what}: {texts[0] if texts else result[0]}"
        is_refusal = result[0] == "OpPrereqError" and len(texts) == 2
        return text, texts[1] if is_refusal else ""
    return f"{what}: failed: {result}", ""
