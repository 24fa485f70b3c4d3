"""From requests to opcodes: the general rule, and the resources with own rules.

Everything here is a function of its arguments. Values are validated against the types
of the opcodes, so a request with an unknown, missing or wrong parameter is refused
before the master daemon sees it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.daemons.rapi import bodies
from ganeti.daemons.rapi.problems import Refused, bad_request, forbidden
from ganeti.model import ht, opcodes
from ganeti.protocols.rapi.model import NUMBERS, PLAN, Body, Kind, Request, Resource

#: Version of the body of an instance creation.
_CREATE_VERSION: Final = 1
#: Prefix of the sources of reasons that only the system may write.
_SYSTEM_SOURCES: Final = "gnt:"
#: Source of the reasons that a person gives.
USER_SOURCE: Final = "gnt:user"
#: Longest text of a reason and longest source, in characters.
_MAX_REASON: Final = 1000
#: Digits of a number that is too large for all opcodes.
_MAX_DIGITS: Final = 10
#: Flags of a node that has a role.
_ROLES: Final[Mapping[str, Mapping[str, bool]]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}


def arguments(resource: Resource, given: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the values of the given query arguments of a resource.

    Args:
        resource: of the table.
        given: non-empty texts by name, in the order of the URI. Unknown names are
            ignored, and so are all but the first text of an argument that is not
            repeatable.

    Raises:
        Refused: a flag is not a number, a required argument is missing, a plan is
            wanted and is not, or is wanted of a change that is no job.
    """
    actual: dict[str, Any] = {}
    if len(set(given.get(PLAN.name, ()))) > 1:
        raise bad_request("plan: given more than once, with different values")
    if resource.changes and resource.job is None and _wants_plan(given):
        raise bad_request(
            f"{resource.method} {resource.path}: cannot be planned, because it changes"
            " something at once, without a job"
        )
    for argument in resource.arguments:
        texts = given.get(argument.name)
        if not texts:
            if argument.required:
                raise bad_request(
                    f"Missing parameter '{argument.name}': {argument.about}"
                )
            continue
        actual[argument.name] = _value(argument.name, argument.kind, texts)
    return actual


def _wants_plan(given: Mapping[str, list[str]]) -> bool:
    texts = given.get(PLAN.name)
    return bool(texts and _value(PLAN.name, PLAN.kind, texts))


def _value(name: str, kind: Kind, texts: list[str]) -> Any:
    if kind is Kind.TEXTS:
        return texts
    if kind is Kind.NAMES:
        return [part.strip() for part in texts[0].split(",") if part.strip()]
    if kind is Kind.TEXT:
        return texts[0]
    try:
        return bool(int(texts[0]))
    except ValueError:
        raise bad_request(
            f"Invalid value for the '{name}' parameter: wanted a number, such as 0 or"
            f" 1, found {texts[0][:50]!r}"
        ) from None


def job_of(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Return the opcodes of the job that a request asks for, without their reasons.

    Args:
        resource: one that submits a job.
        request: see `Request`.

    Returns:
        wire forms, valid for the types of the opcodes.

    Raises:
        Refused: 400 for bad input, 403 for a forbidden parameter.
    """
    assert resource.job is not None
    adapt = resource.job.adapt
    ops = ADAPTERS[adapt](resource, request) if adapt else [general(resource, request)]
    for op in ops:
        _check(op)
    return ops


def _check(op: dict[str, Any]) -> None:
    try:
        decoded = opcodes.decode(op)
    except errors.OpPrereqError as err:
        raise bad_request(str(err.args[0])) from err
    check_sources(decoded.reason)


def check_sources(reason: Sequence[Sequence[Any]]) -> None:
    """Refuse reasons in the name of the system."""
    for source, *_rest in reason:
        if source.startswith(_SYSTEM_SOURCES):
            raise bad_request(
                f"reason: sources that start with {_SYSTEM_SOURCES!r} are reserved,"
                f" found {source[:50]!r}"
            )


def general(resource: Resource, request: Request) -> dict[str, Any]:
    """Return the opcode of a request by the general rule.

    Body members are opcode parameters, some under an older name. Parameters from the
    URI may not appear in the body.

    Raises:
        Refused: see `job_of`.
    """
    job = resource.job
    assert job is not None
    params = parameters(resource, request.body)
    fixed = fixed_parameters(resource, request)
    for name in params:
        if name in fixed or name == "OP_ID":
            raise bad_request(f"parameter '{name}' is set by the URI, not by the body")
        if name in job.forbidden:
            raise forbidden(f"parameter '{name}' cannot be set by the remote API")
    return {"OP_ID": job.op_id, **params, **fixed}


def parameters(resource: Resource, body: Any) -> dict[str, Any]:
    """Return the opcode parameters of a body, under their present names."""
    job = resource.job
    assert job is not None
    if resource.body not in {Body.PARAMETERS, Body.REQUIRED}:
        return depends_of(body)
    if body is None and resource.body is Body.PARAMETERS:
        return {}
    return renamed(_object(body), job.renames)


def of_type(body: Any, kind: Any) -> Any:
    """Return a body of its own form as a type of `ganeti.daemons.rapi.bodies`.

    Raises:
        Refused: 400, it has another form.
    """
    try:
        return ht.convert(body, kind, "body")
    except errors.OpPrereqError as err:
        raise bad_request(str(err.args[0])) from err


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        actual = "none" if body is None else _json_type(body)
        raise bad_request(f"body: wanted an object, found {actual}")
    return body


def _json_type(value: Any) -> str:
    return {list: "a list", str: "a text", bool: "a truth value"}.get(
        type(value), "a number"
    )


def depends_of(body: Any) -> dict[str, Any]:
    """Return the dependencies that a body has, which is ignored otherwise."""
    if isinstance(body, dict) and body.get("depends") is not None:
        return {"depends": body["depends"]}
    return {}


def renamed(body: dict[str, Any], renames: Mapping[str, str]) -> dict[str, Any]:
    """Return a body with its members under their present names."""
    params = dict(body)
    for old, new in renames.items():
        if old not in params:
            continue
        if new in params:
            raise bad_request(
                f"parameters '{old}' and '{new}' are the same; give only one"
            )
        params[new] = params.pop(old)
    return params


def fixed_parameters(resource: Resource, request: Request) -> dict[str, Any]:
    """Return the opcode parameters that the URI sets."""
    job = resource.job
    assert job is not None
    fixed: dict[str, Any] = dict(job.constants)
    for name, variable in job.path.items():
        if isinstance(variable, list):
            fixed[name] = [request.path[each] for each in variable]
        else:
            fixed[name] = _variable(variable, request.path[variable])
    for argument in resource.arguments:
        if not argument.field:
            continue
        value = request.args.get(argument.name, argument.default)
        if value is not None:
            fixed[argument.field] = value
    return fixed


def _variable(name: str, text: str) -> str | int:
    """Return the value of a variable of a path, -1 for a number without sense."""
    if name not in NUMBERS:
        return text
    # Python converts no longer texts.
    return int(text) if len(text) < _MAX_DIGITS else -1


def reasons(
    resource: Resource, request: Request, *, requester: str, now_ns: int
) -> list[list[Any]]:
    """Return the reasons that a request adds to its opcodes.

    Args:
        resource: of the table.
        request: its argument ``reason`` is the user's text.
        requester: text of the entry that names the authenticated user; not in Ganeti.
        now_ns: nanoseconds since 1970.
    """
    job = resource.job
    trail: list[list[Any]] = []
    given = request.args.get("reason")
    if given:
        trail.append([USER_SOURCE, given[:_MAX_REASON], now_ns])
    trail.append(["gnt:daemon:rapi", requester, now_ns])
    if job is None or job.traced:
        trail.append([f"gnt:library:rlib2:{resource.name}", "", now_ns])
    return trail


# Resources with a rule of their own

#: Returns the wire forms of the opcodes of one job, without reasons.
Adapter = Callable[[Resource, Request], list[dict[str, Any]]]
#: By the name in `ganeti.protocols.rapi.model.Job.adapt`.
ADAPTERS: Final[dict[str, Adapter]] = {}


def _adapter(function: Adapter) -> Adapter:
    ADAPTERS[function.__name__] = function
    return function


def _with_usb_devices(op: dict[str, Any]) -> dict[str, Any]:
    """Return an opcode with commas between USB devices, where clients send spaces."""
    hvparams = op.get("hvparams")
    if isinstance(hvparams, dict) and isinstance(hvparams.get("usb_devices"), str):
        commas = hvparams["usb_devices"].replace(" ", ",")
        op["hvparams"] = {**hvparams, "usb_devices": commas}
    return op


@_adapter
def create_instance(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the creation of an instance, whose body states its version."""
    body = _object(request.body)
    version = body.get("__version__", 0)
    if version != _CREATE_VERSION or isinstance(version, bool):
        raise bad_request(
            f"__version__: wanted {_CREATE_VERSION}, found {str(version)[:50]!r}"
        )
    rest = {name: value for name, value in body.items() if name != "__version__"}
    plain = Request(path=request.path, args=request.args, body=rest)
    return [_with_usb_devices(general(resource, plain))]


@_adapter
def commit_instance(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the creation of a forthcoming instance; a version may be left out."""
    body = {} if request.body is None else _object(request.body)
    body = {"__version__": _CREATE_VERSION, **body}
    whole = Request(path=request.path, args=request.args, body=body)
    return create_instance(resource, whole)


@_adapter
def create_instances(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the creation of several instances."""
    assert resource.job is not None
    op = general(resource, request)
    listed = op.get("instances")
    if not isinstance(listed, list):
        raise bad_request("instances: wanted a list of instances to create")
    children = []
    for number, item in enumerate(listed):
        if not isinstance(item, dict):
            raise bad_request(f"instances[{number}]: wanted an object")
        child = renamed(item, resource.job.renames)
        if child.setdefault("OP_ID", "OP_INSTANCE_CREATE") != "OP_INSTANCE_CREATE":
            raise bad_request(f"instances[{number}]: wanted an instance to create")
        try:
            _check(child)
        except Refused as err:
            raise bad_request(f"instances[{number}]: {err.message}") from err
        children.append(_with_usb_devices(child))
    return [{**op, "instances": children}]


@_adapter
def modify_instance(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the modification of an instance."""
    return [_with_usb_devices(general(resource, request))]


@_adapter
def reinstall(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Return the shutdown, the reinstallation and, unless refused, the startup."""
    del resource
    args, name = request.args, request.path["instance_name"]
    if request.body is None:
        body = bodies.Reinstall(
            os=args.get("os"), start=not args.get("nostartup", False)
        )
    elif "os" in args or "nostartup" in args:
        raise bad_request("give either a body or query arguments, not both")
    else:
        body = of_type(request.body, bodies.Reinstall)
    install: dict[str, Any] = {"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": name}
    if body.os is not None:
        install["os_type"] = body.os
    if body.osparams is not None:
        install["osparams"] = body.osparams
    stop = {"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": name}
    ops = [{**stop, **depends_of(request.body)}, install]
    if body.start:
        ops.append({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": name})
    return ops


_REPLACE_ARGUMENTS: Final = ("remote_node", "mode", "disks", "iallocator")


@_adapter
def replace_disks(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the replacement of disks, which old clients request without a body."""
    body = request.body
    if body is None:
        body = {
            name: request.args[name]
            for name in _REPLACE_ARGUMENTS
            if name in request.args
        }
    op = general(resource, Request(path=request.path, args=request.args, body=body))
    disks = op.get("disks")
    if isinstance(disks, str):
        try:
            op["disks"] = [int(part) for part in disks.split(",") if part.strip()]
        except ValueError:
            raise bad_request(
                f"disks: wanted numbers, such as '0, 1', found {disks[:50]!r}"
            ) from None
    return [op]


@_adapter
def migrate_node(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the migration of a node's instances, which old clients put in the query."""
    live, mode = request.args.get("live"), request.args.get("mode")
    if live is None and mode is None:
        return [general(resource, request)]
    if live is not None and mode is not None:
        raise bad_request("give either 'live' or 'mode', not both")
    if mode is None:
        mode = "live" if live else "non-live"
    body = {**depends_of(request.body), "mode": mode}
    old = Request(path=request.path, args=request.args, body=body)
    return [general(resource, old)]


@_adapter
def set_role(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Return the change of a node's flags that gives it a role."""
    role = of_type(request.body, bodies.Role)
    return [{**general(resource, request), **_ROLES[role]}]


@_adapter
def modify_storage(resource: Resource, request: Request) -> list[dict[str, Any]]:
    """Adapt the modification of a storage unit."""
    changes = {}
    if "allocatable" in request.args:
        changes["allocatable"] = request.args["allocatable"]
    return [{**general(resource, request), "changes": changes}]
