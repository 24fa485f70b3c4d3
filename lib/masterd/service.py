"""The master daemon put together from its doors."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from ganeti import config, errors, jqueue, locking, mcpu, query
from ganeti.clock import Clock
from ganeti.cmdlib.unit_table import UNITS
from ganeti.jqueue.documents import Documents
from ganeti.luxi.server import Server
from ganeti.masterd import balancing, calls, capacity, jobs, queries, settings
from ganeti.masterd.deposed import WatchedRunner
from ganeti.masterd.distributor import Distributor
from ganeti.pathutils import Paths
from ganeti.rpc import Runner, Target
from ganeti.store import Store

_log = logging.getLogger(__name__)

#: Threads for queries of the configuration: they take milliseconds, and more of them
#: would only take turns.
_QUICK_THREADS: Final = 2
#: Threads for queries that wait for nodes.
_SLOW_THREADS: Final = 16
#: Plans made at the same time; each is as much work as the job would be to the master.
_PLANNING_THREADS: Final = 2

#: Modules whose import registers the methods.
METHOD_MODULES: Final = (balancing, capacity, jobs, queries, settings)


@dataclasses.dataclass(frozen=True)
class Doors:
    """What the service works through.

    Attributes:
        store: the configuration and the jobs, opened for writing.
        rpc: the nodes.
        clock: time.
        paths: files of the master.
        lookup_host: name -> (full name, addresses).
        tcp_ping: (address, port, own address or None) -> is something served there.
        rpc_at: reaches nodes that are not in the configuration yet.
        on_deposed: called when another master has taken over.
    """

    store: Store
    rpc: Runner
    clock: Clock
    paths: Paths
    lookup_host: Callable[[str], tuple[str, Sequence[str]]]
    tcp_ping: Callable[[str, int, str | None], bool]
    rpc_at: Callable[[Sequence[Target]], Runner]
    on_deposed: Callable[[], None]


#: Unfinished jobs beyond which submissions are refused. The documented limit of 5,000
#: was for job files; here a queued job is a row and 2 KiB of memory.
MAX_UNFINISHED_JOBS: Final = 50_000


class Service:
    """A running master: made by `build`, ended by `stop`."""

    def __init__(
        self, doors: Doors, world: calls.World, distributor: Distributor
    ) -> None:
        self._doors = doors
        self.world = world
        self._distributor = distributor
        self._server = Server(
            lambda call: calls.answer(world, call),
            [doors.paths.query_socket, doors.paths.master_socket],
            clock=doors.clock,
        )
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Begin to run jobs and to serve clients."""
        self.world.queue.start()
        self._distributor.start()
        self._server.start()

    def stop(self) -> None:
        """Take no new clients; let running opcodes end and waiting jobs stay queued."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        self._server.stop_accepting()
        self.world.queue.stop()
        self._server.stop()
        self.world.quick.shutdown(wait=True, cancel_futures=True)
        self.world.slow.shutdown(wait=False, cancel_futures=True)
        self.world.planning.shutdown(wait=False, cancel_futures=True)
        self._doors.store.close()
        self._distributor.stop()


def build(doors: Doors) -> Service:
    """Put the service together and bind its sockets; `Service.start` begins.

    Raises:
        StorageError: jobs cannot be read.
        ConfigurationError: there is no configuration.
        OSError: a socket cannot be bound.
    """
    runner = WatchedRunner(doors.rpc, doors.on_deposed)
    doors = dataclasses.replace(doors, rpc=runner)
    cfg = config.Config(doors.store, doors.clock)
    locks = locking.LockManager(doors.clock, mcpu.members(cfg.snapshot()))
    # Opcodes may ask queries, whose sources include the queue that runs opcodes.
    made: list[calls.World] = []

    def sources() -> query.Sources:
        return made[0].sources()

    engine = _engine_doors(doors, cfg, locks, sources)
    queue = jqueue.JobQueue(
        # The queue's documents are the store's, known to it by their own name.
        cast("Documents", doors.store),
        mcpu.Processor(engine, UNITS),
        doors.clock,
        jqueue.Settings(
            hard_limit=MAX_UNFINISHED_JOBS,
            on_failure=lambda err: _on_failure(doors, err),
        ),
    )
    queue.recover()
    world = calls.World(
        store=doors.store,
        config=cfg,
        queue=queue,
        rpc=doors.rpc,
        clock=doors.clock,
        paths=doors.paths,
        locks=locks,
        quick=ThreadPoolExecutor(_QUICK_THREADS, "query"),
        slow=ThreadPoolExecutor(_SLOW_THREADS, "live-query"),
        planning=ThreadPoolExecutor(_PLANNING_THREADS, "plan"),
        planner=mcpu.Planner(engine, UNITS),
    )
    made.append(world)
    distributor = Distributor(
        doors.store, doors.rpc, config.ssconf_values, wake_queue=queue.poke
    )
    return Service(doors, world, distributor)


def _engine_doors(
    doors: Doors,
    cfg: config.Config,
    locks: locking.LockManager,
    sources: Callable[[], query.Sources],
) -> mcpu.Doors:
    return mcpu.Doors(
        config=cfg,
        rpc=doors.rpc,
        clock=doors.clock,
        paths=doors.paths,
        locks=locks,
        lookup_host=doors.lookup_host,
        tcp_ping=doors.tcp_ping,
        rpc_at=doors.rpc_at,
        query_sources=sources,
    )


def _on_failure(doors: Doors, err: BaseException) -> None:
    if isinstance(err, errors.TermError):
        doors.on_deposed()
