"""Rates and times of the remote API: version requests, bulk lists, memory.

The server is the daemon's own service in a process of its own, over TLS. Its master daemon
is a third process: the real LUXI server and the real query engine over a snapshot of 100
nodes, whose answers about live instances take no time.

Where Debian's packages are unpacked and this runs as root, Debian's daemon follows, of a
cluster of one isolated machine with as many instances on record; it makes a connection per
request, and its client runs there. --no-peer leaves it out.
"""

import argparse
import contextlib
import functools
import http.client
import json
import os
import pathlib
import runpy
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ganeti.base.pathutils import Paths

TOP = pathlib.Path(__file__).resolve().parents[2]
ADDRESS, PORT = "127.0.0.1", 15080
#: Debian's daemon, its program for all daemons, and the seconds for its figures.
PEER_PORT, UTIL, PEER_S = 5080, "/usr/lib/ganeti/daemon-util", 1200
MODEL = ("-t", "diskless", "--no-install", "--no-nics", "-n", "node1")


@contextlib.contextmanager
def child(*words):
    """Run this program with other arguments until it is ready; yield its process."""
    argv = [sys.executable, __file__, *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.read(1) != b"x":
                sys.exit("a server did not start")
            yield process
        finally:
            process.kill()


def serve(run):
    """Start a server, report that it is ready, and wait for the end."""
    run()
    os.write(sys.stdout.fileno(), b"x")
    while True:
        signal.pause()


def serve_master(path, count):
    """Answer the calls of the remote API."""
    from ganeti.base import clock
    from ganeti.daemons.masterd.deps import SharedAnswers
    from ganeti.master import query
    from ganeti.master.query import Sources
    from ganeti.protocols.luxi.server import Encoded, Server

    module = runpy.run_path(str(pathlib.Path(__file__).with_name("query.py")))
    make_snapshot, nodes_of = module["make_snapshot"], module["Nodes"]

    example = pathlib.Path(__file__).parents[1] / "data/spec/objects.json"
    snapshot = make_snapshot(json.loads(example.read_text())["example_config"], count)
    sources, lists = Sources(snapshot, nodes_of(snapshot)), query.EncodedLists()
    shared, workers = SharedAnswers(), ThreadPoolExecutor(16)

    def answer(call):
        kind, names, fields, _lock = call.args

        def compute():
            return query.objects(sources, kind, names, fields, lists)

        future = shared.ask(workers, tuple(fields), compute)
        future.add_done_callback(lambda done: call.succeed(Encoded(done.result())))

    Server(answer, [path], clock=clock.SystemClock()).start()


def serve_api(paths):
    """Run the daemon's service."""
    from ganeti.daemons import common
    from ganeti.daemons.mains import rapi

    words = ["-b", ADDRESS, "-p", str(PORT)]
    options = common.parse(rapi.build_parser(), words)
    rapi.check(options, paths)
    rapi.start(options, paths, common.Control())


def connect(port=PORT):
    """Return a connection; certificates are not verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(ADDRESS, port, context=context)


def requests(port, path, count, times, sizes, wrong):
    """Send requests on one connection; note times, sizes and wrong statuses."""
    with contextlib.closing(connect(port)) as conn:
        for _ in range(count):
            start = time.perf_counter()
            conn.request("GET", path)
            answer = conn.getresponse()
            sizes.append(len(answer.read()))
            times.append(time.perf_counter() - start)
            if answer.status != http.HTTPStatus.OK:
                wrong.append(answer.status)
                return


def cpu_ms(pid):
    """Return the processor time of a process, without that of its children."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


def measure(what, path, count, clients=1, *, pids, port=PORT):
    """Print rate, times and processor times; each client has one connection."""
    processes = {"client": os.getpid(), **pids}
    before = {name: cpu_ms(pid) for name, pid in processes.items()}
    times, sizes, wrong = [], [], []
    threads = [
        threading.Thread(target=requests, args=(port, path, count, times, sizes, wrong))
        for _ in range(clients)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    if wrong:
        # A figure of refused requests is none, and exit ends a thread alone.
        sys.exit(f"{path}: status {wrong[0]}")
    times.sort()
    p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
    print(
        f"{what:38} {len(times) / took:8.1f}/s   p50 {p50 * 1000:8.2f} ms"
        f"   p95 {p95 * 1000:8.2f} ms   {max(sizes):9} bytes"
    )
    spent = {
        name: (cpu_ms(pid) - before[name]) / len(times)
        for name, pid in processes.items()
    }
    print(
        "  processor time per answer:",
        ", ".join(f"{name} {each:.2f} ms" for name, each in spent.items()),
    )


def memory(pid):
    """Return resident memory in MiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def paths_of(root):
    """Return the paths of a master in a directory."""
    return Paths(root=root, hostname="node1.x")


def prepare(root):
    """Make the files of a master in a directory."""
    from ganeti.base.tls import x509

    paths = paths_of(root)
    os.makedirs(paths.data("rapi"))
    os.makedirs(os.path.dirname(paths.rapi_socket))
    pathlib.Path(paths.data("ssconf_master_node")).write_text(
        "node1.x\n", encoding="utf-8"
    )
    pem = pathlib.Path(paths.data("rapi.pem"))
    pem.write_bytes(x509.create_self_signed().pem)
    pem.chmod(0o440)


def run(root, count, *, quick):
    """Measure."""
    share = 10 if quick else 1
    prepare(root)
    with contextlib.ExitStack() as serving:
        pids = {
            name: serving.enter_context(child(str(count), "--serve", what, root)).pid
            for name, what in (("master daemon", "master"), ("remote API", "api"))
        }
        api = pids["remote API"]
        timed = functools.partial(measure, pids=pids)
        print(f"{count} instances; memory of the daemon after its start:", end=" ")
        print(f"{memory(api):.1f} MiB")
        timed("version, one connection", "/version", 5000 // share)
        timed("version, eight connections", "/version", 1000 // share, 8)
        timed("bulk list, one client", "/2/instances?bulk=1", 40 // share)
        timed("bulk list, eight clients", "/2/instances?bulk=1", 10 // share, 8)
        print(f"memory of the daemon after that: {memory(api):.1f} MiB")
        timed("names, one client", "/2/instances", 100 // share)
        print(f"memory of the daemon after that: {memory(api):.1f} MiB")


def measure_peer(count):
    """Measure Debian's daemon, which listens on this machine."""
    timed = functools.partial(measure, pids={}, port=PEER_PORT)
    timed("Debian: version, one connection", "/version", 50)
    timed("Debian: version, eight connections", "/version", 20, 8)
    timed("Debian: bulk list, one client", "/2/instances?bulk=1", count)


def run_peer(directory, count, lists):
    """Make Debian's cluster with instances on record, and measure inside."""
    from fakes import debian, peers

    if os.getuid() or not (peers.TREE / "complete").exists():
        print("Debian's ganeti-rapi is not here: autotools/setup-env --test, as root")
        return
    bring_up = runpy.run_path(f"{TOP}/test/py/daemon/conftest.py")["bring_up"]
    machines = bring_up(directory, "-n", "1", "--isolated", "--machines-only")
    try:
        cluster = debian.DebianCluster(machines)
        cluster.install()
        cluster.create()
        cluster.add("model.vc.test", *MODEL)
        cluster.check(UTIL, "stop-all")
        path = machines.file("/var/lib/ganeti/config.data")
        # Written in place: the file has an owner of its own.
        path.write_text(json.dumps(multiplied(cluster.config(), count)), "utf-8")
        cluster.check(UTIL, "start-all", "--no-voting", "--yes-do-it")
        python = [sys.executable, __file__, str(lists), "--peer-of-this-machine"]
        search = f"PYTHONPATH={TOP}/build/py"
        result = machines.run("env", search, *python, timeout_s=PEER_S)
        print(result.output, end="")
    finally:
        machines.command("down")


def multiplied(data, count):
    """Return a configuration whose only instance is there many times."""
    ((_uuid, model),) = data["instances"].items()
    for number in range(1, count):
        uuid = f"00000000-0000-4000-8000-{number:012x}"
        name = f"i{number}.vc.test"
        data["instances"][uuid] = {**model, "uuid": uuid, "name": name}
    data["serial_no"] += 1
    return data


def main():
    """Measure with the servers in a temporary directory."""
    parser = argparse.ArgumentParser("test/bench/run rapi", description=__doc__)
    parser.add_argument("instances", nargs="?", type=int, default=5000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--no-peer", action="store_true", help="not Debian's daemon")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    hidden = {"action": "store_true", "help": argparse.SUPPRESS}
    parser.add_argument("--peer-of-this-machine", **hidden)
    options = parser.parse_args()
    if options.peer_of_this_machine:
        measure_peer(options.instances)
        return
    if options.serve:
        role, root = options.serve
        paths = paths_of(root)
        if role == "api":
            serve(lambda: serve_api(paths))
        serve(lambda: serve_master(paths.rapi_socket, options.instances))
    with tempfile.TemporaryDirectory(prefix="bench-rapi.") as root:
        run(root, options.instances, quick=options.quick)
    if not options.no_peer:
        with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as directory:
            run_peer(f"{directory}/c", options.instances, 1 if options.quick else 5)


if __name__ == "__main__":
    main()
