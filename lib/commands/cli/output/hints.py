"""Hints after errors: one line that names who can correct it and the next command.

Hints address people, not programs: they are shown on a terminal only, and never
change an exit code. Commands are in single quotes; tests parse each of them.
"""

import re
from typing import Final, NamedTuple

from ganeti import _buildconf
from ganeti.commands.cli.context import CommandContext

YOU: Final = "you"
ADMIN: Final = "the cluster's administrator"
ROOT: Final = "root on the node"


class Hint(NamedTuple):
    """The hint for one kind of error.

    Attributes:
        pattern: regular expression, searched in the error's complete text with its
            code.
        who: who can correct the error.
        text: the advice; named groups of the pattern are filled in.
    """

    pattern: str
    who: str
    text: str


#: The first match wins, so special cases stand before general ones.
HINTS: Final = (
    Hint(
        r"is ganeti-masterd on this node and runs as process",
        ROOT,
        "wait and try again; 'gnt-cluster master-ping' succeeds as soon as it answers",
    ),
    Hint(
        r"Cannot communicate with the (master|config) daemon",
        ROOT,
        "run '{daemon_util} start ganeti-masterd'; if the daemon ends again, see"
        " master-daemon.log",
    ),
    Hint(
        r"connect to '(?P<node>[^']+)' and run the command",
        YOU,
        "run 'ssh {node}'; if {node} is dead, run 'gnt-cluster master-failover' here",
    ),
    Hint(
        r"cluster not initialized",
        ROOT,
        "create a cluster with 'gnt-cluster init NAME', or add this machine to a"
        " cluster with 'gnt-node add NAME' on its master",
    ),
    Hint(
        r"don't have permissions to connect",
        YOU,
        "become root with 'sudo -i'",
    ),
    Hint(
        r"queue is marked for drain",
        ADMIN,
        "allow new jobs again with 'gnt-cluster queue undrain'",
    ),
    Hint(
        r"job queue is full",
        YOU,
        "archive all jobs that ended more than a day ago with 'gnt-job autoarchive 1d'",
    ),
    Hint(r"Instance '.*' not known", YOU, "'gnt-instance list' shows the names"),
    Hint(r"Node '.*' not known", YOU, "'gnt-node list' shows the names"),
    Hint(r"Node group '.*' not known", YOU, "'gnt-group list' shows the names"),
    Hint(r"Network '.*' not known", YOU, "'gnt-network list' shows the names"),
    Hint(r"(Filter rule '.*' not known|no job filter)", YOU, "see 'gnt-filter list'"),
    Hint(
        r"Error checking job status: [Jj]ob (with id )?(?P<job>\d+)",
        YOU,
        "if the job is archived, 'gnt-job info {job}' shows its messages and result",
    ),
    Hint(
        r"Error checking job status",
        YOU,
        "'gnt-job list --archived' also shows archived jobs",
    ),
    Hint(
        r"(no valid OS|OS .*(not found|not known|unknown|invalid)|variant)",
        YOU,
        "'gnt-os list' shows the installable systems, 'gnt-os diagnose' the problems of"
        " others",
    ),
    Hint(
        r"the node group must be given",
        YOU,
        "name one with -g; 'gnt-group list' shows the names",
    ),
    Hint(
        r"name a node or an allocator",
        YOU,
        "name a node with -n, or set a default allocator with"
        " 'gnt-cluster modify -I hail'",
    ),
    Hint(
        r"no solution found by allocator",
        YOU,
        "'gnt-node list -o name,mfree,dfree' shows free memory and disk space; name a"
        " node with -n",
    ),
    Hint(
        r"needs \d+ MiB(?: \([^)]*\))? on node (?P<node>\S+),",
        YOU,
        "'gnt-node list -o name,mfree' shows free memory; choose another node or less"
        " memory",
    ),
    Hint(
        r"insufficient_resources",
        YOU,
        "'gnt-node list -o name,mfree,dfree' shows free memory and disk space",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): Error \d+: \S+ does not answer: connection refused",
        ROOT,
        "wait if {node} has just booted; otherwise run on {node}:"
        " '{daemon_util} start ganeti-noded'",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): Error \d+: .*does not answer",
        ADMIN,
        "check {node}; if it is lost, mark it with 'gnt-node modify -O yes {node}',"
        " then start its mirrored instances elsewhere with 'gnt-node failover {node}'",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is (marked )?offline",
        ADMIN,
        "when {node} is repaired, run 'gnt-node modify -O no {node}'; until then"
        " 'gnt-node failover {node}' starts its mirrored instances elsewhere",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is (marked )?drained",
        ADMIN,
        "name another node, or allow new instances with 'gnt-node modify -D no {node}'",
    ),
    Hint(
        r"[Nn]ode (?P<node>[\w.-]*\w) is not vm_capable",
        ADMIN,
        "name another node, or allow instances with"
        " 'gnt-node modify --vm-capable yes {node}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is marked \w+, must be up\b",
        YOU,
        "first run 'gnt-instance startup {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is marked \w+, must be ([\w ]* )?down\b",
        YOU,
        "first run 'gnt-instance shutdown {name}'; if it is marked offline, run"
        " 'gnt-instance modify --online {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is running, (stop it|only)",
        YOU,
        "first run 'gnt-instance shutdown {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): only lost disks are recreated",
        YOU,
        "to reinstall the operating system on existing disks, run"
        " 'gnt-instance reinstall {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w): is not running, only failover",
        YOU,
        "run 'gnt-instance failover {name}', or start it with"
        " 'gnt-instance startup {name}'",
    ),
    Hint(
        r"instance (?P<name>[\w.-]*\w):? is not running",
        YOU,
        "first run 'gnt-instance startup {name}'",
    ),
    Hint(
        r"node (?P<node>[\w.-]*\w): is the (primary|secondary) node of",
        YOU,
        "'gnt-node migrate {node}' moves its running instances away,"
        " 'gnt-node evacuate -p {node}' all its instances,"
        " 'gnt-node evacuate -s {node}' the mirrors on it",
    ),
    Hint(
        r"node group (?P<group>[\w.-]*\w): not empty",
        YOU,
        "'gnt-group assign-nodes OTHER NODE' moves nodes to another group",
    ),
    Hint(
        r"-F needs exactly one filter",
        YOU,
        "quote the whole filter for the shell",
    ),
    Hint(
        r"violates the policy of node group (?P<group>[\w.-]*\w)",
        YOU,
        "'gnt-group info {group}' shows the limits; --ignore-ipolicy overrides them",
    ),
    Hint(
        r"disk template \S+ is not enabled",
        ADMIN,
        "choose another one with -t, or enable it with"
        " 'gnt-cluster modify --enabled-disk-templates NAMES'",
    ),
    Hint(
        r"hypervisor \S+ is not enabled",
        ADMIN,
        "choose another one with -H, or enable it with"
        " 'gnt-cluster modify --enabled-hypervisors NAMES'",
    ),
    Hint(
        r"mode routed needs an ip address",
        YOU,
        "set one with --net 0:ip=ADDRESS, or use --no-nics",
    ),
    Hint(
        r"can't resolve hostname '(?P<name>[^']+)'",
        ROOT,
        "add {name} to DNS, or to /etc/hosts on all nodes",
    ),
    Hint(
        r"(does not resolve|resolver_error)",
        ROOT,
        "add the name to DNS, or to /etc/hosts on all nodes",
    ),
    Hint(
        r"(nicparams|nics\S*|disks\S*): unknown key",
        YOU,
        "'gnt-cluster modify --help-parameters' explains all parameters",
    ),
    Hint(
        r"filter: unknown field",
        YOU,
        "the command list-fields of the same program shows all fields",
    ),
    Hint(
        r"(while the job waited for locks|temp_insufficient_resources)",
        YOU,
        "another job interfered: see 'gnt-job list', then try again",
    ),
    Hint(
        r"no key was accepted",
        ROOT,
        "append the public key of root on the master, /root/.ssh/id_*.pub, to"
        " /root/.ssh/authorized_keys there",
    ),
    Hint(
        r"[Nn]o space left on device|disk is full",
        ROOT,
        "make room; 'df' shows which file system is full",
    ),
    Hint(
        r"hooks execution failed",
        ADMIN,
        "a hook refused the operation; see /etc/ganeti/hooks on the named node",
    ),
    Hint(
        r"(wrong_input|wrong_name|Parameter Error|invalid tag)[\s\S]*"
        r"(wanted|a name must|is too long|regular expression)",
        YOU,
        "see Forms of values in ganeti(7)",
    ),
    Hint(
        r"Corrupt configuration file",
        ADMIN,
        "'gnt-cluster verify' shows the errors; other master candidates have copies",
    ),
)
#: Shown while a job waits for locks.
WAITING: Final = Hint("", YOU, "'gnt-debug locks' shows which jobs hold them")


def find(text: str) -> Hint | None:
    """Return the hint for an error with this text, or None."""
    for row in HINTS:
        match = re.search(row.pattern, text)
        if match:
            # daemon-util is not on the search path of a shell.
            values = {"daemon_util": f"{_buildconf.TOOLSDIR}/daemon-util"}
            values |= match.groupdict()
            return row._replace(text=row.text.format_map(values))
    return None


def render(hint: Hint) -> str:
    """Return the hint as one line."""
    return f"Hint for {hint.who}: {hint.text}"


def show(ctx: CommandContext, hint: Hint | None) -> None:
    """Print a hint on a terminal, at most once per run."""
    if hint is None or not ctx.effects.stderr.isatty():
        return
    line = render(hint)
    if line not in ctx.hints_shown:
        ctx.hints_shown.add(line)
        ctx.err(line)
