"""Command table of ``gnt-debug``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, Program

COMMANDS: Final = (
    Command(
        "delay",
        "run a test delay",
        arguments=(Argument("unknown", name="duration"),),
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
                "also sleep on this node",
                dest="on_nodes",
                kind="string",
                repeat=True,
            ),
            Option(
                ("-r", "--repeat"),
                "number of repetitions",
                dest="repeat",
                kind="int",
                default=0,
            ),
            Option(
                ("-i", "--interruptible"),
                "allow to end the delay through a socket",
                dest="interruptible",
            ),
            Option(("-l", "--no-locks"), "take no locks", dest="no_locks"),
            o.DRY_RUN,
            *o.JOB,
        ),
        run="commands.debug.delay:run",
        opcodes=("OP_TEST_DELAY",),
    ),
    Command(
        "iallocator",
        "test an allocator request",
        arguments=(
            Argument("unknown", name="instance-or-node", minimum=1, maximum=None),
        ),
        options=(
            Option(
                ("--dir",),
                "in: print the request; out: run the allocator and print its answer",
                dest="direction",
                kind="choice",
                default="in",
                choices=("in", "out"),
            ),
            o.IALLOCATOR,
            Option(
                ("-m", "--mode"),
                "type of the request",
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
                "memory of the test instance",
                dest="memory",
                kind="unit",
                default=128,
            ),
            Option(
                ("--disks",),
                "comma-separated list of the test instance's disk sizes",
                dest="disks",
                kind="string",
                default="4096,4096",
            ),
            o.DISK_TEMPLATE,
            Option(
                ("--nics",),
                "comma-separated list of the test instance's NICs as MAC/IP/BRIDGE",
                dest="nics",
                kind="string",
                default="00:11:22:33:44:55",
            ),
            o.OS_TYPE,
            Option(
                ("-p", "--vcpus"),
                "virtual CPUs of the test instance",
                dest="vcpus",
                kind="int",
                default=1,
            ),
            o.TAGS,
            Option(
                ("--evac-mode",),
                "mode of a node-evacuate request",
                dest="evac_mode",
                kind="choice",
                default="all",
                choices=("all", "primary-only", "secondary-only"),
            ),
            Option(
                ("--target-groups",),
                "target group of a change-group request",
                dest="target_groups",
                kind="string",
                repeat=True,
            ),
            Option(
                ("--spindle-use",),
                "spindle use of the test instance",
                dest="spindle_use",
                kind="int",
                default=1,
            ),
            Option(
                ("--count",),
                "number of instances of a multi-allocate request; limit of moves"
                " (balance) or instances (capacity)",
                dest="count",
                kind="int",
                default=2,
            ),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="commands.debug.iallocator:run",
        opcodes=("OP_TEST_ALLOCATOR",),
        aliases=("allocator",),
        exits=((1, "malformed --disks"),),
    ),
    Command(
        "locks",
        "list locks",
        options=(
            Option(
                ("--interval",),
                "repeat every N seconds; an empty line separates the tables",
                dest="interval",
                kind="int",
            ),
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="commands.debug.locks:run",
        fields=("name", "mode", "owner", "pending"),
        more_fields=("held",),
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
                "number of repetitions of the opcodes in each job",
                dest="rep_op",
                kind="int",
                default=1,
            ),
            Option(
                ("--job-repeat",),
                "number of copies of each job",
                dest="rep_job",
                kind="int",
                default=1,
            ),
            Option(
                ("--timing-stats",), "print counters and timings", dest="timing_stats"
            ),
            Option(
                ("--each",),
                "submit each job with a request of its own",
                dest="each",
            ),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="commands.debug.submit_job:run",
        exits=((0, "jobs were run, even if they failed"),),
    ),
    Command(
        "test-jobqueue",
        "job queue self test",
        options=(o.PRIORITY,),
        run="commands.debug.test_jobqueue:run",
        opcodes=("OP_TEST_JQUEUE", "OP_TEST_DELAY"),
        exits=((1, "test failed"),),
    ),
    Command(
        "test-osparams",
        "test secret OS parameter transport",
        options=(o.OS_PARAMETERS_SECRET, o.SUBMIT, o.PRINT_JOBID),
        run="commands.debug.test_osparams:run",
        opcodes=("OP_TEST_OS_PARAMS",),
    ),
)

PROGRAM: Final = Program(
    "gnt-debug", "Debugging and testing aids", COMMANDS, tag_kind=None, list_defaults=""
)
