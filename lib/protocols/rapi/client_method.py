"""The form of a method of the documented client, as rows of resources state it."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Final

#: In place of a default.
NEEDED: Final = inspect.Parameter.empty
#: In place of the member's name for a body that is the value itself.
WHOLE: Final = "*"
#: Name of the parameter for all further parameters of the opcode.
MORE: Final = "kwargs"


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a method; see also `optional` and `switch`.

    Attributes:
        name: as scripts give it.
        kind: its annotation.
        about: one line of text, without a stop.
        default: `NEEDED` if there is none.
        member: member of the body, if its name is another one; `WHOLE` for the body
            itself.
        in_query: whether it is a query argument although no parameter of the opcode
            belongs to it.
        is_flag: whether the query has 1 for all true values, and nothing for others.
        is_late: whether it follows parameters after it in the query.
        convert: returns the value that is sent, also of None in a body.
    """

    name: str
    kind: Any = str
    about: str = ""
    default: Any = NEEDED
    _: dataclasses.KW_ONLY
    member: str = ""
    in_query: bool = False
    is_flag: bool = False
    is_late: bool = False
    convert: Callable[[Any], Any] | None = None


def optional(name: str, kind: Any = str, about: str = "", **more: Any) -> Parameter:
    """Return a parameter whose default is None, which leaves it out."""
    return Parameter(name, kind | None, about, None, **more)


def switch(name: str, about: str = "", **more: Any) -> Parameter:
    """Return a parameter that is a truth value, not set by default."""
    return Parameter(name, bool, about, default=False, is_flag=True, **more)


def further(about: str = "further parameters of the opcode") -> Parameter:
    """Return the parameter for all members of the body that have no other."""
    return Parameter(MORE, Any, about)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of the client, whose names and order of parameters are documented.

    What no parameter of the opcode belongs to in `Resource.arguments` is a member of
    the body. Parameters for the path's variables come first; those for dry runs and
    reasons, which most methods have, last.

    Attributes:
        name: of the method.
        parameters: the others.
        about: first line of its text; by default that of the resource.
        answer: text of the result, if the first line does not say it.
        subject: parameter for the path's first variable, if it has another name.
        result: annotation, if it is not that of the resource.
        leave_out: whether members of the body that are None are left out.
        has_reason: whether the method has the parameter ``reason``.
        has_dry_run: whether it has ``dry_run`` where the resource has it.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    _: dataclasses.KW_ONLY
    about: str = ""
    answer: str = ""
    subject: Parameter | None = None
    result: Any = None
    leave_out: bool = False
    has_reason: bool = True
    has_dry_run: bool = True


def method(name: str, *parameters: Parameter, **more: Any) -> Method:
    """Return a method; without optional members of the body, None is sent."""
    optionals = [each for each in parameters if each.default is None]
    return Method(name, parameters, **{"leave_out": bool(optionals), **more})


def as_list(values: Any) -> list[Any] | None:
    """Return values as a list, None without values."""
    return None if values is None else list(values)


REASON_PARAMETER: Final = optional("reason", str, "see the class", in_query=True)
DRY_RUN_PARAMETER: Final = switch("dry_run", "see the class", in_query=True)
#: All parameters of the opcode, whose wire name is put into the text.
PARAMETERS: Final = further("parameters of the opcode ``{op_id}``")
