"""Opcodes: test."""

from typing import Annotated, Any, ClassVar

from ganeti.model import ht
from ganeti.model.ht import Doc
from ganeti.model.opcodes import common
from ganeti.model.opcodes.common import Opcode


class TestAllocator(Opcode, tag="OP_TEST_ALLOCATOR", frozen=True, kw_only=True):
    """Exercise the allocator; result is text."""

    SUMMARY_FIELD: ClassVar[str | None] = "iallocator"
    RESULT: ClassVar[Any] = str

    count: Annotated[ht.NonNegInt, Doc("how many instances to place")] = 1
    direction: Annotated[
        ht.IallocatorDirection, Doc("'in' shows the request, 'out' runs the allocator")
    ]
    disk_template: common.DiskTemplate = None
    disks: Annotated[list[Any] | None, Doc("disks of the imaginary instance")] = None
    evac_mode: Annotated[ht.EvacuateMode | None, Doc("which instances to evacuate")] = (
        None
    )
    group_name: Annotated[ht.NonEmptyStr | None, Doc("node group, name or uuid")] = None
    hypervisor: Annotated[
        ht.Hypervisor | None, Doc("hypervisor; null takes the cluster default")
    ] = None
    iallocator: common.Iallocator = None
    instances: Annotated[
        list[ht.NonEmptyStr] | None, Doc("instances for evacuation requests")
    ] = None
    memory: Annotated[ht.NonNegInt | None, Doc("memory of the imaginary instance")] = (
        None
    )
    mode: Annotated[ht.IallocatorMode, Doc("allocator request type")]
    name: Annotated[ht.NonEmptyStr, Doc("name of the imaginary object")]
    nics: Annotated[list[ht.NicSpec] | None, Doc("NICs of the imaginary instance")] = (
        None
    )
    os: Annotated[ht.NonEmptyStr | None, Doc("OS of the imaginary instance")] = None
    spindle_use: Annotated[ht.NonNegInt, Doc("spindles of the imaginary instance")] = 1
    tags: Annotated[list[ht.NonEmptyStr], Doc("tags of the imaginary instance")] = []
    target_groups: common.TargetGroups = None
    vcpus: Annotated[
        ht.NonNegInt | None, Doc("virtual CPUs of the imaginary instance")
    ] = None


class TestDelay(Opcode, tag="OP_TEST_DELAY", frozen=True, kw_only=True):
    """Sleep."""

    SUMMARY_FIELD: ClassVar[str | None] = "duration"
    RESULT: ClassVar[Any] = None

    duration: Annotated[
        float, Doc("seconds to sleep (integers are accepted and converted)")
    ]
    interruptible: Annotated[bool, Doc("offer a socket that ends the sleep early")] = (
        False
    )
    no_locks: Annotated[bool, Doc("do not lock nodes while sleeping")] = True
    on_master: Annotated[bool, Doc("also sleep on the master")] = True
    on_node_uuids: Annotated[
        list[ht.NonEmptyStr] | None, Doc("uuids of the nodes to sleep on")
    ] = None
    on_nodes: Annotated[list[ht.NonEmptyStr], Doc("nodes to sleep on")] = []
    repeat: Annotated[ht.NonNegInt, Doc("extra repetitions; 0 sleeps once")] = 0


class TestDummy(Opcode, tag="OP_TEST_DUMMY", frozen=True, kw_only=True):
    """Unit test helper, has no server-side implementation."""

    RESULT: ClassVar[Any] = None

    fail: Annotated[Any, Doc("test payload")]
    messages: Annotated[Any, Doc("test payload")]
    result: Annotated[Any, Doc("test payload")]
    submit_jobs: Annotated[Any, Doc("test payload")]


class TestJqueue(Opcode, tag="OP_TEST_JQUEUE", frozen=True, kw_only=True):
    """Exercise the job queue."""

    RESULT: ClassVar[Any] = bool

    fail: Annotated[bool, Doc("end with an error")] = False
    log_messages: Annotated[list[str], Doc("messages to log")] = []
    notify_exec: Annotated[bool, Doc("notify a test client at execution")] = False
    notify_waitlock: Annotated[
        bool, Doc("notify a test client while waiting for locks")
    ] = False


class TestOsParams(Opcode, tag="OP_TEST_OS_PARAMS", frozen=True, kw_only=True):
    """Check secret parameters are not stored."""

    RESULT: ClassVar[Any] = None

    osparams_secret: common.OsparamsSecret = None
