"""Who can put an error right, and the next command to try: one line after its text.

People read hints, programs do not: they are shown on a terminal only, and never change
an exit code. Commands stand in single quotes; tests parse each of them.
"""

import re
from typing import Final, NamedTuple

from ganeti.cli.context import CommandContext

YOU: Final = "you"
ADMIN: Final = "the cluster's administrator"
ROOT: Final = "root on the node"


class Hint(NamedTuple):
    """What helps against one kind of error.

    Attributes:
        pattern: found in the error's text, documented words and code included.
        who: who can put it right.
        text: what to do; named groups of the pattern are filled in.
    """

    pattern: str
    who: str
    text: str


#: The first that fits wins, so that special cases stand before general ones.
HINTS: Final = (
    Hint(
        r"Cannot communicate with the (master|config) daemon",
        ROOT,
        "start it with 'daemon-util start ganeti-masterd'; if it does not stay up, see"
        " master-daemon.log",
    ),
    Hint(
        r"connect to '(?P<node>[^']+)' and run the command",
        YOU,
        "'ssh {node}'; should {node} be dead, 'gnt-cluster master-failover' here",
    ),
    Hint(
        r"cluster not initialized",
        ROOT,
        "make a cluster with 'gnt-cluster init NAME', or add this machine to one with"
        " 'gnt-node add NAME' on its master",
    ),
    Hint(
        r"don't have permissions to connect",
        YOU,
        "become root: 'sudo -i'",
    ),
    Hint(
        r"queue is marked for drain",
        ADMIN,
        "let jobs in again with 'gnt-cluster queue undrain'",
    ),
    Hint(
        r"job queue is full",
        YOU,
        "'gnt-job autoarchive 1d' archives the jobs that ended a day ago or earlier",
    ),
    Hint(r"Instance '.*' not known", YOU, "'gnt-instance list' shows the names"),
    Hint(r"Node '.*' not known", YOU, "'gnt-node list' shows the names"),
    Hint(r"Node group '.*' not known", YOU, "'gnt-group list' shows the names"),
    Hint(r"(Filter rule '.*' not known|no job filter)", YOU, "see 'gnt-filter list'"),
    Hint(
        r"Error checking job status: [Jj]ob (with id )?(?P<job>\d+)",
        YOU,
        "should it be archived, 'gnt-job info {job}' shows its messages and outcome",
    ),
    Hint(
        r"Error checking job status",
        YOU,
        "'gnt-job list --archived' also shows archived jobs",
    ),
    Hint(
        r"(no valid OS|OS .*(not found|not known|unknown|invalid)|variant)",
        YOU,
        "'gnt-os list' shows what can be installed, 'gnt-os diagnose' what is wrong",
    ),
    Hint(
        r"name a node or an allocator",
        YOU,
        "name a node with -n; the administrator can set a default allocator:"
        " 'gnt-cluster modify -I hail'",
    ),
    Hint(
        r"no solution found by allocator",
        YOU,
        "look for room with 'gnt-node list -o name,mfree,dfree', then name a node"
        " with -n",
    ),
    Hint(
        r"needs \d+ MiB on node (?P<node>\S+),",
        YOU,
        "look for room with 'gnt-node list -o name,mfree', or ask for less memory",
    ),
    Hint(
        r"insufficient_resources",
        YOU,
        "look for room with 'gnt-node list -o name,mfree,dfree'",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): Error \d+: \S+ does not answer: connection refused",
        ROOT,
        "a node that has just started needs a moment; else on {node}:"
        " 'daemon-util start ganeti-noded'",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): Error \d+: .*does not answer",
        ADMIN,
        "look after {node}; should it be lost, 'gnt-node modify -O yes {node}' and"
        " 'gnt-node failover {node}' start its mirrored instances elsewhere",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is (marked )?offline",
        ADMIN,
        "once {node} is repaired: 'gnt-node modify -O no {node}'; until then"
        " 'gnt-node failover {node}' starts its mirrored instances elsewhere",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is (marked )?drained",
        ADMIN,
        "name another node, or 'gnt-node modify -D no {node}'",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is not vm_capable",
        ADMIN,
        "name another node, or 'gnt-node modify --vm-capable yes {node}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is marked \w+, must be up\b",
        YOU,
        "'gnt-instance startup {name}' first",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is marked \w+, must be ([\w ]* )?down\b",
        YOU,
        "'gnt-instance shutdown {name}' first; one that is marked offline:"
        " 'gnt-instance modify --online {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is running, (stop it|only)",
        YOU,
        "'gnt-instance shutdown {name}' first",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): only lost disks are recreated",
        YOU,
        "to write the operating system anew onto disks that exist:"
        " 'gnt-instance reinstall {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is not running, only failover",
        YOU,
        "'gnt-instance failover {name}', or start it first:"
        " 'gnt-instance startup {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w):? is not running",
        YOU,
        "'gnt-instance startup {name}' first",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): is the (primary|secondary) node of",
        YOU,
        "'gnt-node migrate {node}' moves running instances away, 'gnt-node evacuate"
        " -p {node}' all, 'gnt-node evacuate -s {node}' mirrors",
    ),
    Hint(
        r"node group (?P<group>[\w.-]*\w): not empty",
        YOU,
        "'gnt-group assign-nodes OTHER NODE' moves nodes to another group",
    ),
    Hint(
        r"-F wants exactly one filter",
        YOU,
        "put the whole filter into quotes",
    ),
    Hint(
        r"violates the policy of node group (?P<group>[\w.-]*\w)",
        YOU,
        "'gnt-group info {group}' shows the limits; --ignore-ipolicy overrides them",
    ),
    Hint(
        r"disk template \S+ is not enabled",
        ADMIN,
        "choose another with -t, or add it to"
        " 'gnt-cluster modify --enabled-disk-templates NAMES'",
    ),
    Hint(
        r"hypervisor \S+ is not enabled",
        ADMIN,
        "choose another with -H, or add it to"
        " 'gnt-cluster modify --enabled-hypervisors NAMES'",
    ),
    Hint(
        r"mode routed needs an ip address",
        YOU,
        "give one with --net 0:ip=ADDRESS, or --no-nics for none",
    ),
    Hint(
        r"can't resolve hostname '(?P<name>[^']+)'",
        ROOT,
        "put {name} into DNS, or into /etc/hosts of all nodes",
    ),
    Hint(
        r"(does not resolve|resolver_error)",
        ROOT,
        "put the name into DNS, or into /etc/hosts of all nodes",
    ),
    Hint(
        r"filter: unknown field",
        YOU,
        "list-fields of the same program shows all fields",
    ),
    Hint(
        r"(removed meanwhile|temp_insufficient_resources)",
        YOU,
        "another job was faster: see 'gnt-job list', then try again",
    ),
    Hint(
        r"hooks execution failed",
        ADMIN,
        "a hook on the named node refused it; it lies in /etc/ganeti/hooks there",
    ),
    Hint(
        r"Corrupt configuration file",
        ADMIN,
        "'gnt-cluster verify' names what is wrong; another candidate has a copy",
    ),
)
#: While a job waits for locks.
WAITING: Final = Hint("", YOU, "'gnt-debug locks' shows who has them")


def find(text: str) -> Hint | None:
    """Return what helps against an error that is described by this text."""
    for row in HINTS:
        match = re.search(row.pattern, text)
        if match:
            return row._replace(text=row.text.format_map(match.groupdict()))
    return None


def render(hint: Hint) -> str:
    """Return the line."""
    return f"Hint for {hint.who}: {hint.text}"


def show(ctx: CommandContext, hint: Hint | None) -> None:
    """Print a hint for people, each one once per run."""
    if hint is None or not ctx.effects.stderr.isatty():
        return
    line = render(hint)
    if line not in ctx.hints_shown:
        ctx.hints_shown.add(line)
        ctx.err(line)
