"""From a row of the table to the client's method: signature, text and request."""

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ganeti.protocols.rapi.client_method import DRY_RUN_PARAMETER as DRY_RUN
from ganeti.protocols.rapi.client_method import MORE, WHOLE, Parameter, switch
from ganeti.protocols.rapi.client_method import REASON_PARAMETER as REASON
from ganeti.protocols.rapi.model import Resource
from ganeti.protocols.rapi.names import GanetiApiError
from ganeti.protocols.rapi.transport import Base, part

#: Variable of a path -> parameter of methods.
_SUBJECTS: Final[Mapping[str, Parameter]] = {
    "instance_name": Parameter("instance", str, "its name"),
    "node_name": Parameter("node", str, "its name"),
    "group_name": Parameter("group", str, "its name"),
    "network_name": Parameter("network", str, "its name"),
    "disk_index": Parameter("disk", int, "index"),
    "job_id": Parameter("job_id", int | str, "of the job"),
    "filter_uuid": Parameter("uuid", str),
    "resource": Parameter("what", str),
}
_PLAIN: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
#: Parameter of the methods of lists.
BULK: Final = switch("bulk", in_query=True)
#: Characters in a line of a text.
_WIDTH: Final = 80


def subjects(resource: Resource) -> list[Parameter]:
    """Return the parameters for the variables of the path, in its order."""
    assert resource.client is not None
    listed = [_SUBJECTS[name] for name in resource.variables]
    if resource.client.subject is not None:
        listed[0] = resource.client.subject
    return listed


def parameters(resource: Resource) -> list[Parameter]:
    """Return the other parameters in the order of the signature."""
    method = resource.client
    assert method is not None
    listed = list(method.parameters)
    if resource.direct == "list_objects":
        listed.append(BULK)
    names = {each.name for each in listed}
    is_dry = any(each.field == DRY_RUN.name for each in resource.arguments)
    if is_dry and method.has_dry_run and DRY_RUN.name not in names:
        listed.append(DRY_RUN)
    if method.has_reason and REASON.name not in names:
        listed.append(REASON)
    return sorted(listed, key=lambda each: each.name == MORE)


def signature_of(resource: Resource) -> inspect.Signature:
    """Return the signature of a method."""
    assert resource.client is not None
    listed = [inspect.Parameter("self", _PLAIN)]
    for each in [*subjects(resource), *parameters(resource)]:
        kind = _PLAIN if each.name != MORE else inspect.Parameter.VAR_KEYWORD
        listed.append(
            inspect.Parameter(
                each.name, kind, default=each.default, annotation=each.kind
            )
        )
    result = resource.client.result or resource.result
    if resource.job is not None:
        result = Any
    elif resource.direct == "list_objects":
        result = list[Any]
    return inspect.Signature(listed, return_annotation=result)


def text_of(resource: Resource) -> str:
    """Return the text of a method."""
    method = resource.client
    assert method is not None
    first = method.about or resource.about[0].upper() + resource.about[1:]
    if first.startswith("List "):
        names = {"id": "ids", "uuid": "UUIDs"}.get(resource.options["key"], "names")
        first = f"Return the {names} of all {first[5:]}, or whole objects."
    if not first.endswith("."):
        first += "." if resource.job is None else "; return the job id."
    lines = [first]
    own = {each.about for each in method.parameters} - {REASON.about, ""}
    if own:
        lines += ["", "Args:"]
        for each in [*subjects(resource), *parameters(resource)]:
            about = each.about
            if resource.job is not None:
                about = about.replace("{op_id}", resource.job.op_id)
            lines.append(_wrapped(f"{each.name}: {about}.", "        "))
    if method.answer:
        lines += ["", "Returns:", _wrapped(method.answer, "    ")]
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent="    ",
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def method_of(resource: Resource) -> Callable[..., Any]:
    """Return the method of the client that requests a resource."""
    assert resource.client is not None
    signature = signature_of(resource)

    def method(self: Base, *given: Any, **named: Any) -> Any:
        bound = signature.bind(self, *given, **named)
        bound.apply_defaults()
        values = bound.arguments
        path, query, content = request_of(resource, values)
        answer = self._SendRequest(resource.method, path, query, content)
        if resource.direct == "list_objects" and not values["bulk"]:
            return _listed(resource, answer)
        return None if resource.result is None else answer

    method.__name__ = resource.client.name
    method.__qualname__ = f"GanetiRapiClient.{resource.client.name}"
    method.__doc__ = text_of(resource)
    method.__dict__["__signature__"] = signature
    return method


def request_of(
    resource: Resource, values: Mapping[str, Any]
) -> tuple[str, list[tuple[str, Any]], Any]:
    """Return path, query arguments and body of a request; None without a body.

    Args:
        resource: of the table.
        values: of all parameters of its method, by name.
    """
    more = dict(values.get(MORE, {}))
    path = resource.path
    for variable, subject in zip(resource.variables, subjects(resource), strict=True):
        path = path.replace(f"[{variable}]", part(values[subject.name]))
    early: list[tuple[str, Any]] = []
    late: list[tuple[str, Any]] = []
    members = {}
    is_dry = any(each.field == DRY_RUN.name for each in resource.arguments)
    if is_dry and DRY_RUN.name in more:
        early += _pairs(DRY_RUN, "dry-run", more.pop(DRY_RUN.name))
    for each in parameters(resource):
        argument = _argument_of(resource, each)
        if argument:
            pairs = _pairs(each, argument, values[each.name])
            (late if each.is_late else early).extend(pairs)
        elif each.name != MORE:
            value, convert = values[each.name], each.convert
            members[each.member or each.name] = convert(value) if convert else value
    query, takes_body = [*early, *late], bool(members) or MORE in values
    assert resource.client is not None
    if resource.client.leave_out:
        members = {name: each for name, each in members.items() if each is not None}
    if WHOLE in members:
        return path, query, members[WHOLE]
    return path, query, {**more, **members} if takes_body else None


def _argument_of(resource: Resource, parameter: Parameter) -> str:
    """Return the query argument of a parameter, empty for a member of the body."""
    if parameter.in_query:
        return parameter.name.replace("_", "-")
    named = (each.name for each in resource.arguments if each.field == parameter.name)
    return next(named, "")


def _pairs(parameter: Parameter, argument: str, value: Any) -> list[tuple[str, Any]]:
    """Return the query arguments that a parameter makes."""
    if parameter.is_flag:
        return [(argument, 1)] if value else []
    if parameter.kind == Iterable[str]:
        return [(argument, each) for each in value]
    is_text = parameter.kind == str | None
    if parameter.default is None and (value is None or (is_text and not value)):
        return []
    convert = parameter.convert
    return [(argument, value if convert is None else convert(value))]


def _listed(resource: Resource, answer: Any) -> list[Any]:
    """Return the values of one member of the short form of a list."""
    key = resource.options["shown"]
    try:
        values = [item[key] for item in answer]
    except (TypeError, KeyError) as err:
        path = resource.path.removeprefix("/2")
        raise GanetiApiError(f"{path}: wanted a list with {key!r}") from err
    is_job = resource.options["kind"] == "job"
    return [int(each) for each in values] if is_job else values
