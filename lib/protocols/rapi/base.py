"""Sending of requests, for all methods of the client."""

import json
import logging
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganeti.protocols.rapi import names, transport
from ganeti.protocols.rapi.failures import Error, GanetiApiError

#: Query arguments: names and values, in their order.
Arguments = Sequence[tuple[str, Any]]
_PREFIX = f"/{names.GANETI_RAPI_VERSION}"


def given(**values: Any) -> dict[str, Any]:
    """Return the members of a body that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def arguments(*flags: tuple[str, Any], reason: str | None = None) -> list[Any]:
    """Return query arguments: the flags that are set, and the reason."""
    query: list[Any] = [(name, 1) for name, value in flags if value]
    return [*query, ("reason", reason)] if reason else query


def changes(dry_run: bool, reason: str | None) -> list[Any]:
    """Return the query arguments of most changes."""
    return arguments(("dry-run", dry_run), reason=reason)


def part(value: Any) -> str:
    """Return a part of a path."""
    return urllib.parse.quote(str(value), safe="")


class Base:
    """Connection and encoding; the methods of objects are in the subclasses.

    Handles of pycurl may not be shared by threads, so each thread has its own.
    """

    USER_AGENT = "Ganeti RAPI Client"

    def __init__(
        self,
        host: str,
        port: int = names.GANETI_RAPI_PORT,
        username: str | None = None,
        password: str | None = None,
        logger: Any = logging,
        curl_config_fn: transport.ConfigFunction | None = None,
        curl_factory: Callable[[], Any] | None = None,
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            host: name or address of the master, of either address family.
            port: of the server.
            username: of the users file.
            password: of that user.
            logger: a logger, or the module ``logging``.
            curl_config_fn: configures handles, see `GenericCurlConfig`; certificates
                are not verified without it.
            curl_factory: returns a new handle.

        Raises:
            Error: only one of name and password is given.
        """
        self._host, self._port = host, port
        self._logger = logger
        address = f"[{host}]" if ":" in host else host
        self._base_url = f"https://{address}:{port}"
        if username is not None and password is None:
            raise Error("Password not specified")
        if password is not None and username is None:
            raise Error("Specified password without username")
        self._credentials = None
        if username is not None and password is not None:
            self._credentials = (username, password)
        self._config, self._factory = curl_config_fn, curl_factory
        self._local = threading.local()

    def _handle(self) -> Any:
        """Return the handle of this thread, whose connection is reused."""
        pid = os.getpid()
        owner, curl = getattr(self._local, "handle", (None, None))
        if owner != pid:
            # After a fork, the connection is the parent's: keep it, do not use it.
            self._local.inherited = curl
            curl = transport.new_handle(
                self._config, self._factory, self._logger, self._credentials
            )
            self._local.handle = pid, curl
        return curl

    def _SendRequest(
        self, method: str, path: str, query: Arguments | None, content: Any
    ) -> Any:
        """Send a request and return the decoded result.

        Args:
            method: of HTTP.
            path: without the host.
            query: arguments; truth values are sent as 0 and 1, None as empty text.
            content: body, anything that JSON can represent; None for no body.

        Raises:
            GanetiApiError: the server refused it, or it could not be sent.
        """
        body = b"" if content is None else json.dumps(content, sort_keys=True).encode()
        url = self._base_url + path
        if query:
            url = f"{url}?{urllib.parse.urlencode(_encoded(query))}"
        self._logger.debug("Sending request: %s %s", method, path)
        status, answer = transport.perform(self._handle(), method, url, body)
        return transport.result_of(status, answer)

    def _get(self, path: str, query: Arguments | None = None) -> Any:
        return self._SendRequest(names.HTTP_GET, _PREFIX + path, query, None)

    def _put(self, path: str, query: Arguments, content: Any = None) -> Any:
        return self._SendRequest(names.HTTP_PUT, _PREFIX + path, query, content)

    def _post(self, path: str, query: Arguments, content: Any = None) -> Any:
        return self._SendRequest(names.HTTP_POST, _PREFIX + path, query, content)

    def _delete(self, path: str, query: Arguments, content: Any = None) -> Any:
        return self._SendRequest(names.HTTP_DELETE, _PREFIX + path, query, content)

    def _list(self, path: str, key: str, bulk: bool, reason: str | None = None) -> Any:
        """Return whole objects, or the values of one member of the short form."""
        answer = self._get(path, arguments(("bulk", bulk), reason=reason))
        if bulk:
            return answer
        try:
            return [item[key] for item in answer]
        except (TypeError, KeyError) as err:
            raise GanetiApiError(f"{path}: wanted a list with {key!r}") from err

    def _tags(
        self,
        send: Callable[[str, Arguments], Any],
        path: str,
        tags: Iterable[str],
        *changes_: Any,
    ) -> Any:
        """Add or remove tags; ``changes_`` are the further arguments."""
        return send(f"{path}/tags", [*(("tag", tag) for tag in tags), *changes_])

    def GetFeatures(self) -> list[str]:
        """Return the features of the server; a server without the list has none."""
        try:
            answer: list[str] = self._get("/features")
        except GanetiApiError as err:
            if err.code == names.HTTP_NOT_FOUND:
                return []
            raise
        return answer


def _encoded(query: Arguments) -> list[tuple[str, str]]:
    """Return query arguments as texts."""
    encoded = []
    for name, value in query:
        if isinstance(value, (list, tuple, Mapping)):
            raise Error(f"{name}: wanted a number or a text, found {value!r}")
        if value is None:
            text = ""
        elif isinstance(value, bool):
            text = str(int(value))
        else:
            text = str(value)
        encoded.append((name, text))
    return encoded
