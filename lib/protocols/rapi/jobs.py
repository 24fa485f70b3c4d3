"""Methods of jobs."""

import time
from collections.abc import Sequence
from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.base import Base, arguments, part


def path_of(job_id: Any, rest: str = "") -> str:
    """Return the path of a job, or of a resource below it."""
    return f"/jobs/{part(job_id)}{rest}"


class JobMethods(Base):
    """Lists, status, waiting and canceling. Ids are numbers or texts of digits."""

    def GetJobs(self, bulk: bool = False) -> list[Any]:
        """Return the ids of all jobs, or whole objects."""
        if bulk:
            jobs: list[Any] = self._list("/jobs", "id", bulk=True)
            return jobs
        return [int(each) for each in self._list("/jobs", "id", bulk=False)]

    def GetJobStatus(self, job_id: int | str) -> dict[str, Any]:
        """Return a job with its log and results."""
        job: dict[str, Any] = self._get(path_of(job_id))
        return job

    def WaitForJobCompletion(
        self, job_id: int | str, period: float = 5, retries: int = -1
    ) -> bool:
        """Wait until a job has ended.

        Args:
            job_id: of the job.
            period: seconds between questions.
            retries: number of questions; -1 for no limit.

        Returns:
            whether the job succeeded. False also means that it has not ended after the
            last question.
        """
        while retries != 0:
            status = self.GetJobStatus(job_id)["status"]
            if status == names.JOB_STATUS_SUCCESS:
                return True
            if status in names.JOB_STATUS_FINALIZED:
                return False
            if period:
                time.sleep(period)
            if retries > 0:
                retries -= 1
        return False

    def WaitForJobChange(
        self,
        job_id: int | str,
        fields: Sequence[str],
        prev_job_info: Sequence[Any] | None,
        prev_log_serial: int | None,
    ) -> Any:
        """Wait for a change of a job, at most about ten seconds.

        Args:
            job_id: of the job.
            fields: names of the fields to compare.
            prev_job_info: their values that the caller knows.
            prev_log_serial: number of the last log entry that the caller knows.

        Returns:
            ``job_info`` and ``log_entries``; None if nothing changed.
        """
        body = {
            "fields": list(fields),
            "previous_job_info": prev_job_info,
            "previous_log_serial": prev_log_serial,
        }
        path = f"/{names.GANETI_RAPI_VERSION}{path_of(job_id, '/wait')}"
        return self._SendRequest(names.HTTP_GET, path, None, body)

    def CancelJob(self, job_id: int | str, dry_run: bool = False) -> Any:
        """Cancel a job; return whether that was possible, and a text."""
        return self._delete(path_of(job_id), arguments(("dry-run", dry_run)))

    def KillJob(self, job_id: int | str) -> Any:
        """Cancel a job, also one that runs; return whether it was possible, and a text.

        Not in Ganeti. Servers of other releases refuse to cancel a job that runs.
        """
        return self._delete(path_of(job_id), [("kill", 1)])
