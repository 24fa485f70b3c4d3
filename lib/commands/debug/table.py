"""Command table of ``gnt-debug``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Program, option

COMMANDS: Final = (
    Command(
        "delay",
        "run a test delay",
        arguments=(Argument("unknown", name="duration"),),
        options=(
            option(
                "--no-master",
                "do not sleep on the master",
                clears="on_master",
            ),
            option(
                "-n", "also sleep on this node", "string", dest="on_nodes", repeat=True
            ),
            option("-r --repeat", "number of repetitions", "int", default=0),
            option("-i --interruptible", "allow to end the delay through a socket"),
            option("-l --no-locks", "take no locks"),
            o.DRY_RUN,
            *o.JOB,
        ),
        run="commands.debug.commands:delay",
        opcodes=("OP_TEST_DELAY",),
    ),
    Command(
        "iallocator",
        "test an allocator request",
        arguments=(Argument("unknown", name="instance-or-node", maximum=None),),
        options=(
            option(
                "--dir",
                "in: print the request; out: run the allocator and print its answer",
                "choice",
                dest="direction",
                default="in",
                choices=("in", "out"),
            ),
            o.IALLOCATOR,
            option(
                "-m --mode",
                "type of the request",
                "choice",
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
            option("--memory", "memory of the test instance", "unit", default=128),
            option(
                "--disks",
                "comma-separated list of the test instance's disk sizes",
                "string",
                default="4096,4096",
            ),
            o.DISK_TEMPLATE,
            option(
                "--nics",
                "comma-separated list of the test instance's NICs as MAC/IP/BRIDGE",
                "string",
                default="00:11:22:33:44:55",
            ),
            o.OS_TYPE._replace(field="os"),
            option("-p --vcpus", "virtual CPUs of the test instance", "int", default=1),
            o.TAGS,
            option(
                "--evac-mode",
                "mode of a node-evacuate request",
                "choice",
                default="all",
                choices=("all", "primary-only", "secondary-only"),
            ),
            option(
                "--target-groups",
                "target group of a change-group request",
                "string",
                repeat=True,
            ),
            option(
                "--spindle-use", "spindle use of the test instance", "int", default=1
            ),
            option(
                "--count",
                "number of instances of a multi-allocate request; limit of moves"
                " (balance) or instances (capacity)",
                "int",
                default=2,
            ),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="commands.debug.commands:ask_allocator",
        opcodes=("OP_TEST_ALLOCATOR",),
        aliases=("allocator",),
        exits=((1, "malformed --disks"),),
    ),
    Command(
        "locks",
        "list locks",
        options=(
            option(
                "--interval",
                "repeat every N seconds; an empty line separates the tables",
                "int",
            ),
            *o.TABLE,
            *o.QUERY,
            o.JSON,
        ),
        run="commands.debug.commands:list_locks",
        fields=("name", "mode", "owner", "pending"),
        more_fields=("held",),
        exits=((14, "unknown field"),),
    ),
    Command(
        "submit-job",
        "submit jobs from JSON opcode files",
        arguments=(Argument("file", maximum=None),),
        options=(
            o.VERBOSE,
            option(
                "--op-repeat",
                "number of repetitions of the opcodes in each job",
                "int",
                dest="rep_op",
                default=1,
            ),
            option(
                "--job-repeat",
                "number of copies of each job",
                "int",
                dest="rep_job",
                default=1,
            ),
            option("--timing-stats", "print counters and timings"),
            option("--each", "submit each job with a request of its own"),
            o.DRY_RUN,
            o.PRIORITY,
        ),
        run="commands.debug.commands:submit_jobs",
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
        run="commands.debug.commands:test_os_parameters",
        opcodes=("OP_TEST_OS_PARAMS",),
    ),
)

PROGRAM: Final = Program("gnt-debug", "Debugging and testing aids", COMMANDS)
