"""Examples of ``gnt-debug`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "locks": (
        Example("gnt-debug locks", "holders of locks, and jobs that wait"),
        Example(
            "gnt-debug locks -o name,mode,owner --interval 2",
            "repeat every two seconds",
        ),
    ),
    "delay": (
        Example("gnt-debug delay 5", "a job that sleeps"),
        Example("gnt-debug delay -n node2 --no-master 5", "sleep on node2 only"),
    ),
    "submit-job": (
        Example("gnt-debug submit-job ops.json", "a list of opcodes as one job"),
    ),
    "iallocator": (
        Example(
            (
                "gnt-debug iallocator --disks 1g --mode allocate --dir in -o tiny "
                "--memory 128m new1"
            ),
            "print the request to an allocator",
        ),
    ),
}
