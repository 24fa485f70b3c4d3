"""Resources of tags, the same for every kind of object."""

from ganeti.daemons.rapi import model
from ganeti.daemons.rapi.model import Argument, Body, Job, Kind, Resource

_TAG = Argument(
    name="tag",
    kind=Kind.TEXTS,
    about="a tag; may be repeated",
    field="tags",
    default=[],
)

_VERBS = {"PUT": "add tags to", "DELETE": "remove tags of"}


def tag_resources(path: str, kind: str, variable: str = "") -> tuple[Resource, ...]:
    """Return the resources of an object's tags.

    Args:
        path: of the object.
        kind: of the object, as in opcodes.
        variable: of the path, its name; empty for the cluster.
    """
    return (
        Resource(
            path=f"{path}/tags",
            method="GET",
            about=f"list the tags of the {kind}",
            result=list[str],
            direct="get_tags",
            options={"kind": kind},
        ),
        _change(path, "PUT", "OP_TAGS_SET", kind=kind, variable=variable),
        _change(path, "DELETE", "OP_TAGS_DEL", kind=kind, variable=variable),
    )


def _change(
    path: str, method: str, op_id: str, *, kind: str, variable: str
) -> Resource:
    return Resource(
        path=f"{path}/tags",
        method=method,
        about=f"{_VERBS[method]} the {kind}",
        result=int,
        access=(model.WRITE,),
        job=Job(
            op_id=op_id,
            path={"name": variable} if variable else {},
            constants={"kind": kind, **({} if variable else {"name": None})},
        ),
        arguments=(_TAG, model.DRY_RUN, model.REASON),
        body=Body.IGNORED,
    )
