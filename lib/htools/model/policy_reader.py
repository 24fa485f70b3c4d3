"""Reader of policies and instance sizes in allocator requests and query answers."""

from ganeti.htools.model.json_reader import JsonPart
from ganeti.htools.model.policy import DEFAULT_POLICY, Policy, Spec


def read_spec(part: JsonPart) -> Spec:
    """Read the size of an instance."""
    return Spec(
        memory=part.size("memory-size"),
        cpus=part.size("cpu-count"),
        disk=part.size("disk-size"),
        disks=part.size("disk-count"),
        nics=part.size("nic-count"),
        spindles=part.size("spindle-use"),
    )


def read_policy(part: JsonPart, *, may_lack_ranges: bool = False) -> Policy:
    """Read a policy.

    Args:
        part: the policy.
        may_lack_ranges: without ``minmax``, the default ranges apply.

    Raises:
        DataError: malformed, or no instance can fulfil the policy.
    """
    ranges = DEFAULT_POLICY.ranges
    if part.has("minmax") or not may_lack_ranges:
        ranges = tuple(
            (read_spec(pair.part("min")), read_spec(pair.part("max")))
            for pair in part.parts("minmax")
        )
    if not ranges:
        raise part.wrong("minmax", "at least one pair", [])
    policy = Policy(
        std=read_spec(part.part("std")),
        ranges=ranges,
        templates=part.texts("disk-templates"),
        vcpu_ratio=part.number("vcpu-ratio", least=0),
        spindle_ratio=part.number("spindle-ratio", least=0),
    )
    flaw = policy.flaw()
    if flaw:
        raise part.wrong("minmax", "a minimum below its maximum", flaw)
    return policy
