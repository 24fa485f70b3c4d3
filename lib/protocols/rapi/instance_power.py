"""Methods that start, stop and install instances."""

from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.base import Base, arguments, changes
from ganeti.protocols.rapi.failures import GanetiApiError
from ganeti.protocols.rapi.instances import path_of


class InstancePowerMethods(Base):
    """Starting, stopping and installing."""

    def RebootInstance(
        self,
        instance: str,
        reboot_type: str | None = None,
        ignore_secondaries: bool | None = None,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Reboot an instance; return the job id.

        Args:
            instance: its name.
            reboot_type: ``soft``, ``hard`` or ``full``; the server's default is hard.
            ignore_secondaries: go on if only secondary disks fail.
            dry_run: see the class.
            reason: see the class.
            kwargs: further parameters of the opcode.
        """
        query = changes(dry_run, reason)
        if reboot_type:
            query.append(("type", reboot_type))
        if ignore_secondaries is not None:
            query.append(("ignore_secondaries", ignore_secondaries))
        return self._post(path_of(instance, "/reboot"), query, kwargs)

    def ShutdownInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Stop an instance; return the job id.

        Args:
            instance: its name.
            dry_run: see the class.
            no_remember: do not record that it is to be stopped.
            reason: see the class.
            kwargs: further parameters of the opcode.
        """
        query = arguments(
            ("dry-run", dry_run), ("no_remember", no_remember), reason=reason
        )
        return self._put(path_of(instance, "/shutdown"), query, kwargs)

    def StartupInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Start an instance; return the job id. See `ShutdownInstance`."""
        query = arguments(
            ("dry-run", dry_run), ("no_remember", no_remember), reason=reason
        )
        return self._put(path_of(instance, "/startup"), query)

    def ReinstallInstance(
        self,
        instance: str,
        os: str | None = None,
        no_startup: bool = False,
        osparams: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> Any:
        """Stop an instance, install it again, and start it; return the job id.

        Args:
            instance: its name.
            os: operating system; None for the present one.
            no_startup: leave it stopped.
            osparams: OS parameters of this installation only.
            reason: see the class.

        Raises:
            GanetiApiError: the server cannot use ``osparams``.
        """
        query = arguments(reason=reason)
        path = path_of(instance, "/reinstall")
        if names.INST_REINSTALL_REQV1 in self.GetFeatures():
            body: dict[str, Any] = {"start": not no_startup}
            if os is not None:
                body["os"] = os
            if osparams is not None:
                body["osparams"] = osparams
            return self._post(path, query, body)
        if osparams:
            raise GanetiApiError(
                "the server does not support OS parameters of one installation"
            )
        if os:
            query.append(("os", os))
        if no_startup:
            query.append(("nostartup", 1))
        return self._post(path, query)
