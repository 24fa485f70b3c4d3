"""Reader of policies and instance sizes in allocator requests and query answers."""

from ganeti.decisions.htools.model.json_reader import JsonPart
from ganeti.decisions.htools.model.policy import DEFAULT_POLICY, Policy, Spec


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


def read_policy(part: JsonPart, *, may_lack_parts: bool = False) -> Policy:
    """Read a policy.

    Args:
        part: the policy.
        may_lack_parts: the default ones stand in for parts that are absent.

    Raises:
        DataError: malformed, or no instance can fulfil the policy.
    """

    def is_read(key: str) -> bool:
        return part.has(key) or not may_lack_parts

    default = DEFAULT_POLICY
    ranges = default.ranges
    if is_read("minmax"):
        ranges = tuple(
            (read_spec(pair.part("min")), read_spec(pair.part("max")))
            for pair in part.parts("minmax")
        )
    if not ranges:
        raise part.wrong("minmax", "at least one pair", [])
    templates = default.templates
    if is_read("disk-templates"):
        templates = part.texts("disk-templates")
    vcpus, spindles = default.vcpu_ratio, default.spindle_ratio
    if is_read("vcpu-ratio"):
        vcpus = part.number("vcpu-ratio", least=0)
    if is_read("spindle-ratio"):
        spindles = part.number("spindle-ratio", least=0)
    policy = Policy(
        std=read_spec(part.part("std")) if is_read("std") else default.std,
        ranges=ranges,
        templates=templates,
        vcpu_ratio=vcpus,
        spindle_ratio=spindles,
    )
    flaw = policy.flaw()
    if flaw:
        raise part.wrong("minmax", "a minimum below its maximum", flaw)
    return policy
