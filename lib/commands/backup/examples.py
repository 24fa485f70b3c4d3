"""Examples of ``gnt-backup`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "export": (
        Example(
            "gnt-backup export -n node2.example.com web1.example.com",
            "stop the instance, take snapshots, start it again, copy to node2",
        ),
        Example(
            "gnt-backup export --noshutdown -n node2.example.com web1.example.com",
            "take the snapshots while the instance runs",
        ),
        Example(
            "gnt-backup export --long-sleep -n node2.example.com files.example.com",
            "an instance whose disks have no snapshots",
        ),
    ),
    "import": (
        Example(
            "gnt-backup import -n node1.example.com web1.example.com",
            "bring the instance back as it was",
        ),
        Example(
            (
                "gnt-backup import -n node1.example.com --src-dir web1.example.com"
                " --net 0:mac=generate web2.example.com"
            ),
            "a copy under another name",
        ),
    ),
    "list": (
        Example("gnt-backup list", "the exports of all nodes"),
        Example(
            "gnt-backup list --no-headers -o export -n node2.example.com",
            "the names of the exports of one node",
        ),
    ),
    "remove": (
        Example("gnt-backup remove web1.example.com", "remove it from all nodes"),
    ),
}
