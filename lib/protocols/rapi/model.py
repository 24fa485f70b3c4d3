"""The form of one resource of the remote API, and of the client's method for it.

The table of resources is data: the server, the OpenAPI document, the client and the
tests read it. Names of paths, arguments and body members are wire names.
"""

import dataclasses
import enum
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.protocols.rapi.client_method import Method

#: JSON schema of a text with indices of disks, and commas between them.
INDICES: Final[Mapping[str, str]] = {
    "type": "string",
    "pattern": "^ *(0*([0-9]|1[0-5]) *)?(, *(0*([0-9]|1[0-5]) *)?)*$",
}
#: The rights of the documented users file.
READ: Final = "read"
WRITE: Final = "write"
#: The right to set parameters that mean root on nodes; not in Ganeti.
ROOT: Final = "root"

#: Bytes of a body: of the parameters of an opcode, of lists of names or instances, and
#: where the body is ignored, or has only the jobs that must end first.
MAX_BODY: Final = 4 << 20
MAX_LIST: Final = 20 << 20
_MAX_IGNORED: Final = 128 << 10

#: A variable of a path.
_VARIABLE: Final = re.compile(r"\[([a-z_]+)\]")
#: Variables that stand for numbers; others are names.
NUMBERS: Final = frozenset({"job_id", "disk_index"})
#: Variables that stand for names of any characters; other names are words.
ANY_NAMES: Final = frozenset({"group_name", "network_name"})
#: No job has a longer one, and Python does not convert digits without end.
_NUMBER: Final = "[0-9]{1,18}"
#: Such a name in the form of `segment`; it has no control characters.
_ANY_NAME: Final = "(?:[^/%]|%(?!0|1|7F)[0-9A-F]{2})+"
#: Characters of names that are encoded in a path. Such a name does not match more
#: patterns of rights, and a pattern has no comma or white space.
_ENCODED: Final = re.compile(r"[^\w.~:@+-]+")


def segment(name: str) -> str:
    """Return a name as part of a path, with percent-encoding where it is needed.

    >>> segment("rack 1/a")
    'rack%201%2Fa'
    """
    return _ENCODED.sub(lambda odd: urllib.parse.quote(odd[0], safe=""), name)


#: Path of a collection -> kind of its objects, which have a UUID beside their name.
_KINDS: Final = {
    "/2/disks": "disk",
    "/2/groups": "group",
    "/2/instances": "instance",
    "/2/networks": "network",
    "/2/nodes": "node",
}


def collection_of(path: str) -> str:
    """Return the path of the collection that a path is in."""
    return "/".join(path.split("/")[:3])


def kind_of(path: str) -> str:
    """Return the kind of object of a path, empty for others than those with names."""
    return _KINDS.get(collection_of(path), "")


class Kind(enum.Enum):
    """The form of a query argument."""

    #: A number: 0 or no argument is false, another number is true.
    FLAG = "flag"
    TEXT = "text"
    #: All values of an argument that may be repeated.
    TEXTS = "texts"
    #: Names with commas between them.
    NAMES = "names"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Argument:
    """A query argument.

    Attributes:
        name: as in the URI.
        kind: its form.
        about: one line of text.
        field: the opcode parameter that it sets; empty if the resource's function
            uses it.
        default: the value without the argument; None leaves the parameter out.
        required: whether a request without the argument gets status 400.
        form: JSON schema of a text that is not any text.
    """

    name: str
    kind: Kind
    about: str
    field: str = ""
    default: Any = None
    required: bool = False
    form: Mapping[str, Any] | None = None


class Body(enum.Enum):
    """The content that a request's body may have."""

    #: Ignored, except for ``depends`` in requests that submit a job.
    IGNORED = "ignored"
    #: An object of opcode parameters; no body means no parameters.
    PARAMETERS = "parameters"
    #: The same, but a request without a body gets status 400.
    REQUIRED = "required"
    #: A form of its own, described by `Resource.body_type`.
    OWN = "own"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The input of a resource, without anything of HTTP.

    Attributes:
        path: values of the path's variables.
        args: values of the given query arguments, by name; see `Kind`.
        body: decoded JSON, None without a body.
    """

    path: Mapping[str, str]
    args: Mapping[str, Any]
    body: Any = None

    @property
    def is_plan(self) -> bool:
        """Return whether the client wants to know what would happen, and no more."""
        return bool(self.args.get(PLAN.name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A resource that submits a job.

    Attributes:
        op_id: wire name of the opcode.
        further: other opcodes of the job.
        path: opcode parameter -> variable of the path; in a list for a parameter that
            is a list.
        constants: opcode parameter -> fixed value.
        renames: old name of a body member -> opcode parameter.
        forbidden: parameters that get status 403.
        adapt: name of the function in ``ganeti.daemons.rapi.requests`` that makes the
            opcodes where the general rule does not; empty for the rule.
        traced: whether the opcodes get the reason entry of this library.
        creates: parameter with the name of a new object in the collection of the path.
        touches: parameter with names of further objects that the job changes -> path of
            their collection.
        present: parameters that clients write back as they have read them.
    """

    op_id: str
    further: tuple[str, ...] = ()
    path: Mapping[str, str | list[str]] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    adapt: str = ""
    traced: bool = True
    creates: str = ""
    touches: Mapping[str, str] = dataclasses.field(default_factory=dict)
    present: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource:
    """One path and method.

    Attributes:
        path: with its variables in brackets, such as ``/2/nodes/[node_name]``.
        method: of HTTP.
        about: one line of text.
        result: type of the answer, an annotation.
        access: rights of which one is needed; none for anonymous requests.
        signed_in: whether it needs credentials, if it needs no right.
        job: for resources that submit a job.
        direct: name of the function in ``ganeti.daemons.rapi.handlers`` that answers
            other resources.
        options: further input of that function, such as the kind of object.
        arguments: query arguments.
        body: what the body may hold.
        body_type: name of a body of its own form in ``ganeti.daemons.rapi.bodies``.
        max_body: most bytes of a body, where it may be larger than usual.
        luxi: methods of the master daemon that the function in ``direct`` calls.
        client: the client's method, if the table makes it.
    """

    path: str
    method: str
    about: str
    result: Any
    access: tuple[str, ...] = ()
    signed_in: bool = False
    job: Job | None = None
    direct: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arguments: tuple[Argument, ...] = ()
    body: Body = Body.IGNORED
    body_type: str = ""
    max_body: int = MAX_BODY
    luxi: tuple[str, ...] = ()
    client: Method | None = None

    @property
    def op_ids(self) -> tuple[str, ...]:
        """Return the opcodes of jobs that requests submit, also without an answer."""
        if self.job is not None:
            return (self.job.op_id, *self.job.further)
        return (self.options["op_id"],) if "op_id" in self.options else ()

    @property
    def changes(self) -> bool:
        """Return whether requests change something; others may use PUT, too."""
        return self.method != "GET" and READ not in self.access

    @property
    def target(self) -> str:
        """Return the kind of the one object that a job changes, empty for others."""
        if self.job is None or not self.changes:
            return ""
        if self.variables:
            return kind_of(self.path)
        return "" if self.method == "POST" else "cluster"

    @property
    def uses_body(self) -> bool:
        """Return whether the resource looks at a body; others are not decoded."""
        return self.body is not Body.IGNORED or self.job is not None

    @property
    def body_limit(self) -> int:
        """Return the most bytes of a body that is accepted."""
        return _MAX_IGNORED if self.body is Body.IGNORED else self.max_body

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the path's variables."""
        return tuple(_VARIABLE.findall(self.path))

    @property
    def name(self) -> str:
        """Return the name in reasons and logs, such as ``instances_name_reboot``."""
        parts = []
        for part in self.path.split("/")[1:]:
            actual = _VARIABLE.fullmatch(part)
            variable = actual.group(1) if actual else ""
            if variable != "disk_index":
                parts.append(variable.rpartition("_")[2] if actual else part)
        return "_".join(part for part in parts if part not in {"", "2"}).replace(
            "-", "_"
        )

    def pattern(self) -> str:
        """Return a regular expression of the whole path with a group per variable.

        Names of any characters are in the form of `segment`.
        """

        def group(actual: re.Match[str]) -> str:
            name = actual.group(1)
            if name in NUMBERS:
                values = _NUMBER
            else:
                values = _ANY_NAME if name in ANY_NAMES else r"[\w.-]+"
            return f"(?P<{name}>{values})"

        return _VARIABLE.sub(group, self.path)


def flag(name: str, about: str, field: str = "", *, default: bool = False) -> Argument:
    """Return an argument that is a number taken for a truth value."""
    return Argument(
        name=name, kind=Kind.FLAG, about=about, field=field, default=default
    )


def text(name: str, about: str, field: str = "", **more: Any) -> Argument:
    """Return an argument that is a text."""
    return Argument(name=name, kind=Kind.TEXT, about=about, field=field, **more)


_RESOURCE: Final = frozenset(
    {"access", "body", "body_type", "client", "max_body", "signed_in"}
)


def reading(
    path: str,
    about: str,
    direct: str,
    result: Any,
    *arguments: Argument,
    luxi: str = "",
    **more: Any,
) -> Resource:
    """Return a GET resource that a function answers.

    Args:
        path: see `Resource`.
        about: one line of text.
        direct: name of the function.
        result: annotation of the answer.
        arguments: of the query.
        luxi: methods that the function calls, with blanks between them.
        more: members of the resource, and options of the function.
    """
    return Resource(
        path=path,
        method="GET",
        about=about,
        result=result,
        direct=direct,
        arguments=arguments,
        luxi=tuple(luxi.split()),
        options={name: each for name, each in more.items() if name not in _RESOURCE},
        **{name: each for name, each in more.items() if name in _RESOURCE},
    )


def listing(
    path: str, about: str, kind: str, fields: Sequence[str], **more: Any
) -> Resource:
    """Return the resource of a list of objects: names with paths, or whole objects.

    Args:
        path: of the list.
        about: one line of text.
        kind: of the objects.
        fields: of whole objects.
        more: ``key``, the field with the name; ``shown``, its name in the list, if
            another; see `reading`.
    """
    key = more.get("key", "name")
    return reading(
        path,
        about,
        "list_objects",
        list[dict[str, Any]],
        BULK,
        *more.pop("arguments", ()),
        *PAGE,
        luxi="QueryObjects QueryPage",
        **{"kind": kind, "fields": fields, "key": key, "shown": key, **more},
    )


def one(
    path: str, about: str, kind: str, fields: Sequence[str], **more: Any
) -> Resource:
    """Return the resource of an object; see `listing`."""
    return reading(
        path,
        about,
        "get_object",
        dict[str, Any],
        LOCK,
        luxi="QueryObjects",
        **{"kind": kind, "fields": fields, **more},
    )


def acting(
    verb: str,
    path: str,
    about: str,
    direct: str,
    *arguments: Argument,
    luxi: str,
    **more: Any,
) -> Resource:
    """Return a resource that needs ``write``, and that a function answers."""
    return Resource(
        path=path,
        method=verb,
        about=about,
        direct=direct,
        arguments=arguments,
        luxi=tuple(luxi.split()),
        **{"result": None, "access": (WRITE,), **more},
    )


def job(
    verb: str, path: str, about: str, op_id: str, *arguments: Argument, **more: Any
) -> Resource:
    """Return a resource that submits a job, accepts a reason and needs ``write``.

    Args:
        verb: method of HTTP.
        path: see `Resource`. Its variables are opcode parameters, unless ``variables``
            has others; see `Job.path`.
        about: one line of text.
        op_id: of the opcode.
        arguments: of the query, without the reason.
        more: members of the resource, and of its `Job`.
    """
    variables = {name: name for name in _VARIABLE.findall(path)}
    of_job = {name: each for name, each in more.items() if name not in _RESOURCE}
    of_resource = {name: each for name, each in more.items() if name in _RESOURCE}
    return Resource(
        path=path,
        method=verb,
        about=about,
        result=int,
        job=Job(op_id=op_id, path=of_job.pop("variables", variables), **of_job),
        arguments=(*arguments, REASON, *(() if verb == "GET" else (PLAN,))),
        **{"access": (WRITE,), "body": Body.PARAMETERS, **of_resource},
    )


BULK: Final = flag("bulk", "return whole objects instead of names")
LOCK: Final = flag("lock", "documented, and refused by the master daemon")
DRY_RUN: Final = flag("dry-run", "only check", "dry_run")
REASON: Final = text("reason", "text for the reason trail of the job")
PLAN: Final = flag("plan", "return what would happen, and do nothing (not in Ganeti)")
FORCE: Final = flag("force", "skip some safety checks", "force")
#: Arguments of which any makes the answer of a list a page; not in Ganeti.
PAGE: Final = (
    text(
        "limit",
        "answer with a page of at most this number of objects: an object with items,"
        " next and count; default 100 (not in Ganeti)",
        form={"type": "string", "pattern": "^0*([1-9][0-9]{0,2}|1000)$"},
    ),
    text("cursor", "next of the page before (not in Ganeti)"),
    text(
        "sort",
        "field that decides the order of pages, with - before it in descending order"
        " (not in Ganeti)",
    ),
    text(
        "filter",
        "filter of pages, in the language of the list commands (not in Ganeti)",
    ),
    Argument(
        name="fields",
        kind=Kind.NAMES,
        about="members of the objects of pages (not in Ganeti)",
    ),
    flag("count", "count the objects of all pages (not in Ganeti)"),
)
