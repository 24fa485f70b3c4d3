"""Hundreds of clients wait for jobs on the real daemons, over TLS."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import pathlib
import ssl

import pytest

from fakes.patience import PATIENCE_S, until

CLIENTS = 500
#: MiB that so many waits may cost.
WAITS_MIB = 20
#: Handshakes at once: more of one address are dropped.
AT_ONCE = 32
USERS = "jack {HA1}ce9ed419740789a9a91375eda3722642 write\n"
JACK = base64.b64encode(b"jack:example").decode()
QUEUED = ["queued"]


@pytest.fixture(scope="module")
def cluster(cluster_of):
    cluster = cluster_of(1)
    path = pathlib.Path(cluster.paths().data("rapi/users"))
    path.write_text(USERS)
    path.chmod(0o640)
    start(cluster)
    return cluster


def start(cluster):
    """Start the daemon with nothing in its memory of other tests."""
    cluster.check("daemon-util", "stop", "ganeti-rapi")
    cluster.check("daemon-util", "start", "ganeti-rapi")


@pytest.fixture
def paused(cluster):
    """Return a job that does not start until the function of the pair is called."""
    words = ("gnt-filter", "add", "--priority", "5", "--action", "PAUSE")
    rule = cluster.check(*words).split()[-1]
    submitted = cluster.run("gnt-cluster", "add-tags", "--submit", "waiting")
    job = int(submitted.output.split()[-1])
    removed = []

    def resume():
        if not removed:
            removed.append(rule)
            cluster.check("gnt-filter", "delete", rule)

    yield job, resume
    resume()
    cluster.check("gnt-job", "wait", str(job))
    cluster.check("gnt-cluster", "remove-tags", "waiting")


def pid_of(cluster, name="ganeti-rapi"):
    return int(pathlib.Path(cluster.paths().pid_file(name)).read_text())


def memory(pid, figure):
    """Return a figure of a process's memory in MiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) / 1024


def connections_to_masters(pid):
    """Return how many Unix sockets of a process have a connection."""
    unix = {}
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        unix[f"socket:[{fields[6]}]"] = fields[5]
    ends = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            ends.append(unix.get(str(fd.readlink())))
    return ends.count("03")


@dataclasses.dataclass
class Browser:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def get(self, path, body=None):
        """Return status and decoded body."""
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {JACK}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self.writer.write(head.encode() + data)
        start = await self.reader.readuntil(b"\r\n\r\n")
        length = int(start.lower().partition(b"content-length:")[2].split()[0])
        value = json.loads(await self.reader.readexactly(length))
        return int(start.split()[1]), value

    async def close(self):
        """Break the connection, as a client does that ends."""
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Crowd:
    """Clients that wait for one job until its state changes, or only once."""

    def __init__(self, address, job, *, once=False):
        self.address = address
        self.job = job
        self.once = once
        self.left = 0
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.all_wait = asyncio.Event()
        self.answers = []

    async def connect(self):
        async with self.gate:
            ends = await asyncio.open_connection(self.address, 5080, ssl=self.context)
        return Browser(*ends)

    async def wait(self):
        """Wait for a change as often as it needs; note each answer."""
        browser = await self.connect()
        body = {"fields": ["status"], "previous_job_info": QUEUED}
        path = f"/2/jobs/{self.job}/wait"
        self.left -= 1
        if not self.left:
            self.all_wait.set()
        try:
            while True:
                status, value = await browser.get(path, body)
                self.answers.append((status, value))
                if self.once or value.get("job_info") != QUEUED:
                    return value
        finally:
            await browser.close()

    async def run(self, count, then):
        """Let clients wait; call an asynchronous function when all do."""
        self.left = count
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.wait()) for _ in range(count)]
            await self.all_wait.wait()
            # Behind all requests: once this one is answered, the daemon has those.
            other = await self.connect()
            assert await other.get("/version") == (200, 2)
            await other.close()
            await then(self)
        return [task.result() for task in tasks]


def in_thread(function):
    return asyncio.get_running_loop().run_in_executor(None, function)


def test_five_hundred_waits_cost_little_and_harm_no_other_request(cluster, paused):
    job, resume = paused
    pid = pid_of(cluster)
    ends = []

    async def then(crowd):
        other = await crowd.connect()
        for _ in range(50):
            assert await other.get("/version") == (200, 2)
        assert (await other.get(f"/2/jobs/{job}"))[1]["status"] == "queued"
        ends.append(connections_to_masters(pid))
        await other.close()
        await in_thread(resume)

    async def play():
        crowd = Crowd(cluster.node("node1").address, job)
        await (await crowd.connect()).close()
        before = memory(pid, "VmRSS")
        values = await crowd.run(CLIENTS, then)
        return crowd, values, memory(pid, "VmHWM") - before

    crowd, values, grown = asyncio.run(play())
    assert {status for status, _value in crowd.answers} == {200}
    assert len(values) == CLIENTS
    assert {value["job_info"][0] for value in values} <= {
        *("waiting", "running", "success")
    }
    # One for all waits, and those of the pool for other requests.
    assert ends[0] <= 3
    assert grown <= WAITS_MIB


def test_waits_survive_a_restart_of_the_master_daemon(cluster, paused):
    job, resume = paused

    def restart():
        cluster.check("daemon-util", "stop", "ganeti-masterd")
        cluster.check("daemon-util", "start", "ganeti-masterd")

    async def then(_crowd):
        await in_thread(restart)
        await in_thread(resume)

    async def play():
        crowd = Crowd(cluster.node("node1").address, job)
        await crowd.run(20, then)
        return crowd.answers

    answers = asyncio.run(play())
    assert {status for status, _value in answers} == {200}


def test_the_end_of_the_daemon_answers_all_waits_at_once(cluster, paused):
    job, _resume = paused
    log = pathlib.Path(cluster.paths().log_dir, "rapi-daemon.log")

    async def then(_crowd):
        await in_thread(lambda: cluster.check("daemon-util", "stop", "ganeti-rapi"))

    async def play():
        crowd = Crowd(cluster.node("node1").address, job, once=True)
        await crowd.run(20, then)
        return crowd.answers

    answers = asyncio.run(play())
    cluster.check("daemon-util", "start", "ganeti-rapi")
    unchanged = {"job_info": QUEUED, "log_entries": []}
    assert answers == [(200, unchanged)] * 20
    assert "ending with waits" not in log.read_text()


def test_clients_that_go_leave_no_waits(cluster, paused):
    job, _resume = paused
    pid = pid_of(cluster)
    sockets = pathlib.Path(f"/proc/{pid}/fd")

    def count():
        return len(list(sockets.iterdir()))

    async def then(_crowd):
        raise ConnectionAbortedError

    async def play():
        crowd = Crowd(cluster.node("node1").address, job)
        await crowd.run(50, then)

    before = count()
    with pytest.raises(ExceptionGroup):
        asyncio.run(play())
    until("their sockets are closed", lambda: count() <= before + 3)
