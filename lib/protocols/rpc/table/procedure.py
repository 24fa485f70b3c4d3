"""The rows of the table of node calls."""

from typing import Any, Final, NamedTuple

#: Time limits of a whole call, in seconds, by class.
TIMEOUTS: Final = {
    "urgent": 60,
    "fast": 300,
    "normal": 900,
    "slow": 3600,
    "4h": 14400,
    "1d": 86400,
    "duration": 5,
}


MIB: Final = 1024 * 1024
#: Largest answer about many objects of a node: 10,000 volumes or disks in 8 MiB.
MANY: Final = 8 * MIB
#: Largest copy of the store; only master candidates are asked for one.
STORE: Final = 256 * MIB
#: Lanes of a node daemon: calls of one lane never wait for those of another.
LANE_POWER: Final = "power"
LANE_STORE: Final = "store"
LANE_STORAGE: Final = "storage"
LANE_URGENT: Final = "urgent"
LANE_ORDINARY: Final = "ordinary"


class Procedure(NamedTuple):
    """One node call.

    Attributes:
        name: on the wire.
        args: names of the arguments, in wire order.
        result: a description of the payload.
        timeout: a key of `TIMEOUTS`.
        multi: many nodes may be called at once.
        accept_offline: nodes that are marked offline are called, too.
        own_lane: lane of the node daemon, if it does not follow from the time limit;
            see `lane`.
        runs_programs: the call runs programs of users, which can be ended early.
        reads: the call never changes anything on a node, so a dry run sends it.
        reads_if: name of the function in `ganeti.operations.mcpu.dry_run_policy` that
            decides this from the arguments.
        names_its_base: the call says what it builds on, or has a key of its request, so
            a second one finds the first one's result and changes nothing.
        answer: the payload of an acting call in a dry run, as after a success.
        answer_from: name of the function in `ganeti.operations.mcpu.dry_run_policy`
            that computes this payload from the arguments.
        shown: arguments that a plan shows. All others may contain secrets or whole
            files.
        private: an instance among the arguments may have private and secret OS
            parameters, because the call runs OS scripts or stores an export. Other
            calls get none.
        starts: an instance among the arguments may have the files of its cloud-init
            seed, because the call starts its guest or prepares for it. Other calls get
            none.
        waits_for: what a job waits for in a call that often takes long, as the object
            of a sentence.
        max_answer: size limit of an answer, in bytes. The caller aborts a longer one: a
            decoded answer takes up to 25 times the memory.
    """

    name: str
    args: tuple[str, ...]
    result: str
    timeout: str
    multi: bool = False
    accept_offline: bool = False
    own_lane: str = ""
    runs_programs: bool = False
    reads: bool = False
    reads_if: str = ""
    names_its_base: bool = False
    answer: Any = None
    answer_from: str = ""
    shown: tuple[str, ...] = ()
    private: bool = False
    starts: bool = False
    max_answer: int = MIB
    waits_for: str = ""

    @property
    def lane(self) -> str:
        """The lane of the node daemon that serves the call.

        Urgent calls do not wait for ordinary ones, which may be long. Among urgent
        calls, those that read storage or the copy of the store can hang with a disk, so
        they are separate; a power cycle shares its lane with nothing.
        """
        by_time = LANE_URGENT if self.timeout == "urgent" else LANE_ORDINARY
        return self.own_lane or by_time
