"""Bodies with a form of their own, as types; see `ganeti.protocols.rapi.model.Body`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.protocols.console import stream


class Reinstall(msgspec.Struct, forbid_unknown_fields=True):
    """Body of the reinstallation of an instance."""

    os: Annotated[ht.NonEmptyStr | None, Doc("operating system")] = None
    start: Annotated[bool, Doc("start the instance afterwards")] = True
    osparams: Annotated[
        dict[str, Any] | None, Doc("OS parameters of this installation only")
    ] = None
    depends: Annotated[
        ht.Depends | None, Doc("jobs that must end first, and how they may end")
    ] = None


Role = Literal["regular", "master-candidate", "drained", "offline"]


class Query(msgspec.Struct):
    """Body of a query."""

    fields: Annotated[
        list[ht.NonEmptyStr] | None, Doc("names of fields, if not in the URI")
    ] = None
    qfilter: Annotated[Any, Doc("filter; null for all objects")] = None
    filter: Annotated[Any, Doc("older name of qfilter")] = None


class Filter(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a filter rule."""

    priority: Annotated[int, Doc("rules of smaller numbers come first")] = 0
    predicates: Annotated[list[Any], Doc("conditions that must all hold")] = []
    action: Annotated[Any, Doc("ACCEPT, PAUSE, REJECT, CONTINUE or a rate limit")] = (
        "CONTINUE"
    )
    reason: Annotated[
        list[ht.ReasonEntry], Doc("reason trail: source, text, nanoseconds")
    ] = []


class Wait(msgspec.Struct):
    """Body of the wait for a job's change."""

    fields: Annotated[list[ht.NonEmptyStr], Doc("names of the fields to compare")]
    previous_job_info: Annotated[
        list[Any] | None, Doc("values that the client knows")
    ] = None
    previous_log_serial: Annotated[
        int | None, Doc("number of the last log entry that the client knows")
    ] = None


class Console(msgspec.Struct, forbid_unknown_fields=True):
    """Body of the request for a ticket for a console."""

    kind: Annotated[stream.Kind, Doc("the serial line, or the display by VNC")] = (
        "serial"
    )
    session: Annotated[
        stream.Session, Doc("text to which the ticket is bound, of 64 characters")
    ] = ""


#: The bodies by the names that rows of resources have for them.
TYPES: Final[Mapping[str, Any]] = {
    **{kind.__name__: kind for kind in (Console, Filter, Query, Reinstall, Wait)},
    "Role": Role,
}
