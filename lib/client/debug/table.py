"""Commands of ``gnt-debug`` and where each is carried out."""

from typing import Final

from ganeti.cli import options as o
from ganeti.cli.model import Argument, Command, Option, Program

COMMANDS: Final = (
    Command(
        "delay",
        "run a test delay",
        arguments=(Argument("unknown"),),
        options=(
            Option(
                ("--no-master",),
                "do not sleep on the master",
                dest="on_master",
                sets=False,
                default=True,
            ),
            Option(
                ("-n",),
                "also sleep on this node, repeatable",
                dest="on_nodes",
                kind="string",
                repeat=True,
            ),
            Option(
                ("-r", "--repeat"),
                "repeat count of the sleep",
                dest="repeat",
                kind="int",
                default=0,
            ),
            Option(
                ("-i", "--interruptible"),
                "delay can be ended through a socket",
                dest="interruptible",
            ),
            Option(("-l", "--no-locks"), "take no locks", dest="no_locks"),
            o.DRY_RUN,
            *o.JOB,
        ),
        run="client.debug.delay:run",
        opcodes=("OP_TEST_DELAY",),
    ),
    Command(
        "iallocator",
        "test an allocator request",
        arguments=(Argument("unknown", minimum=1, maximum=None),),
        options=(
            Option(
                ("--dir",),
                "in: print the generated request; out: run the allocator "
                "and print its answer",
                dest="direction",
                kind="choice",
                default="in",
                choices=("in", "out"),
            ),
            o.IALLOCATOR,
            Option(
                ("-m", "--mode"),
                "type of the test request",
                dest="mode",
                kind="choice",
                default="relocate",
                choices=(
                    "allocate",
                    "allocate-secondary",
                    "balance",
                    "capacity",
                    "change-group",
                    "multi-allocate",
                    "node-evacuate",
                    "relocate",
                ),
            ),
            Option(
                ("--memory",),
                "memory of the fake instance",
                dest="memory",
                kind="unit",
                default=128,
            ),
            Option(
                ("--disks",),
                "comma list of disk sizes of the fake instance",
                dest="disks",
                kind="string",
                default="4096,4096",
            ),
            o.DISK_TEMPLATE,
            Option(
                ("--nics",),
                "comma list of mac/ip/bridge triples of the fake instance",
                dest="nics",
                kind="string",
                default="00:11:22:33:44:55",
            ),
            o.OS_TYPE,
            Option(
                ("-p", "--vcpus"),
                "vcpus of the fake instance",
                dest="vcpus",
                kind="int",
                default=1,
            ),
            o.TAGS,
            Option(
                ("--evac-mode",),
                "node evacuation mode of the test request",
                dest="evac_mode",
                kind="choice",
                default="all",
                choices=("all", "primary-only", "secondary-only"),
            ),
            Option(
                ("--target-groups",),
                "target group of a change-group test request, repeatable",
                dest="target_groups",
                kind="string",
                repeat=True,
            ),
            Option(
                ("--spindle-use",),
                "spindle_use of the fake instance",
                dest="spindle_use",
                kind="int",
                default=1,
            ),
            Option(
                ("--count",),
                "number of instances in a multi-allocate test request; most moves of"
                " balance, most instances of capacity",
                dest="count",
                kind="int",
                default=2,
            ),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="client.debug.iallocator:run",
        opcodes=("OP_TEST_ALLOCATOR",),
        aliases=("allocator",),
        exits=((1, "bad --disks"),),
    ),
    Command(
        "locks",
        "list locks",
        options=(
            Option(
                ("--interval",),
                "repeat every N seconds, with an empty line between the tables",
                dest="interval",
                kind="int",
            ),
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="client.debug.locks:run",
        fields=("name", "mode", "owner", "pending"),
        exits=((14, "unknown field"),),
    ),
    Command(
        "submit-job",
        "submit jobs from JSON opcode files",
        arguments=(Argument("file", minimum=1, maximum=None),),
        options=(
            o.VERBOSE,
            Option(
                ("--op-repeat",),
                "repeat the opcode list this many times inside each job",
                dest="rep_op",
                kind="int",
                default=1,
            ),
            Option(
                ("--job-repeat",),
                "build every job this many times",
                dest="rep_job",
                kind="int",
                default=1,
            ),
            Option(
                ("--timing-stats",), "print counters and timings", dest="timing_stats"
            ),
            Option(
                ("--each",),
                "submit the jobs one by one instead of in one request",
                dest="each",
            ),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="client.debug.submit_job:run",
        exits=((0, "always after running"),),
    ),
    Command(
        "test-jobqueue",
        "job queue self test",
        options=(o.PRIORITY,),
        run="client.debug.test_jobqueue:run",
        opcodes=("OP_TEST_JQUEUE", "OP_TEST_DELAY"),
        exits=((1, "test failed"),),
    ),
    Command(
        "test-osparams",
        "test secret OS parameter transport",
        options=(o.OS_PARAMETERS_SECRET, o.SUBMIT, o.PRINT_JOBID),
        run="client.debug.test_osparams:run",
        opcodes=("OP_TEST_OS_PARAMS",),
    ),
)

PROGRAM: Final = Program(
    "gnt-debug", "Debugging and testing aids", COMMANDS, tag_kind=None, list_defaults=""
)
