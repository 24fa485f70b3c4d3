"""Operations on mirrored disks on lab machines, beside their steps in a script.

    test/bench/run storage [--instances 20] [--size 256] [--mirrors 200]
                           [--without-evacuation] [--directory DIRECTORY]

Makes a lab of its own, with real LVM and DRBD, and ends it; needs root and
autotools/setup-env --lab. The share of the control plane is the time of an operation less
that of the same lvcreate, drbdmeta and drbdsetup steps in one script per node.
The machines are emulated: their processors are 10 to 20 times as slow as this one's.
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "test"))

from lab import lab as labs  # noqa: E402 - the lab is not below build/py
from lab.mirroring import GROUP, mirroring_cluster  # noqa: E402

SIZE_MIB, META_MIB = 16, 128
#: First minor and port of the mirrors that are made by hand.
MINOR, PORT = 500, 12000
#: Submits jobs, given on standard input, and waits; prints [seconds, [status...], ids].
SUBMIT = """
import json, sys, time
sys.path.insert(0, "/usr/lib/ganeti/python")
from ganeti.protocols import luxi; from ganeti.base import pathutils
client = luxi.Client.of_node(pathutils.Paths())
jobs, began = json.load(sys.stdin), time.monotonic()
ids = [job for _ok, job in client.call("SubmitManyJobs", [jobs])]
states = []
for job in ids:
    values, serial = None, None
    while values is None or values[0] not in ("success", "error", "canceled"):
        values, entries = client.call(
            "WaitForJobChange", [job, ["status"], values, serial, 60])
        serial = max([entry[0] for entry in entries], default=serial)
    states.append(values[0])
print(json.dumps([time.monotonic() - began, states, ids]))
"""


class Bench:
    """The machines, with a cluster on them, and what was measured."""

    def __init__(self, lab, count):
        self.lab, self.count = lab, count
        self.names = [f"web{n}.lab.test" for n in range(1, count + 1)]
        self.record = lab.record

    def run(self, *argv, node="lab1", **more):
        return self.lab.run(node, *argv, timeout_s=3600, **more)

    def check(self, *argv, node="lab1", **more):
        done = self.run(*argv, node=node, **more)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def jobs(self, jobs):
        """Run jobs at once; return seconds, and the most that ran at one time."""
        argv = ("/usr/lib/ganeti/venv/bin/python", "-I", "-c", SUBMIT)
        text = self.check(*argv, stdin=json.dumps(jobs))
        spent, states, ids = json.loads(text)
        assert set(states) == {"success"}, states
        fields = ("--no-headers", "--separator=|", "-o", "start_ts,end_ts")
        listed = self.check("gnt-job", "list", *fields, *map(str, ids))
        return spent, _most_at_once([_times(line) for line in listed.splitlines()])

    def by_hand(self, scripts):
        """Run one script per node, at the same time; return seconds."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = [
                pool.submit(self.check, "sh", "-euc", text, node=node)
                for node, text in scripts.items()
            ]
            for each in running:
                each.result()
        return time.monotonic() - began


def _times(line):
    return [sec + usec / 1e6 for sec, usec in map(json.loads, line.split("|"))]


def _most_at_once(spans):
    return max(sum(a <= begin < b for a, b in spans) for begin, _end in spans)


def _loop(count, body, *, first=0):
    numbers = f"$(seq {first} {first + count - 1})"
    return f"for n in {numbers}; do\nm=$(({MINOR} + n))\n{body}done\n"


def _volumes(prefix, size_mib=SIZE_MIB):
    """Steps that make both volumes of a mirror, with metadata."""
    make = "lvcreate -qq --yes --wipesignatures y --zero y"
    return (
        f"{make} -L {size_mib}m -n {prefix}$n.data {GROUP}\n"
        f"{make} -L {META_MIB}m -n {prefix}$n.meta {GROUP}\n"
        f"drbdmeta --force 999999 v08 /dev/{GROUP}/{prefix}$n.meta 0 create-md >/dev/null\n"
    )


def _attach():
    path = f"/dev/{GROUP}/hand$n"
    return (
        f"drbdmeta --force 999999 v08 {path}.meta 0 apply-al\n"
        f"drbdsetup attach $m {path}.data {path}.meta 0 --on-io-error=detach\n"
    )


def _connect(own, other):
    ends = " ".join(f"ipv4:{host}:$(({PORT} + n))" for host in (own, other))
    return (
        f"drbdsetup connect hand$n {ends} --protocol=C --cram-hmac-alg=md5"
        " --shared-secret=secret\n"
    )


def _until_complete():
    return (
        'until grep -q "^ *$m:.*ds:UpToDate/UpToDate" /proc/drbd;'
        " do sleep 0.1; done\n"
    )  # fmt: skip


def _new_mirror(own, other, *, is_primary, size_mib=SIZE_MIB):
    primary = "drbdsetup primary $m --force=yes\n" if is_primary else ""
    return (
        _volumes("hand", size_mib)
        + "drbdsetup new-resource hand$n\ndrbdsetup new-minor hand$n $m 0\n"
        + _attach() + primary + _connect(own, other)
    )  # fmt: skip


def _exchange():
    """Steps that give the secondary node new volumes, with the names of the old ones."""
    swap = "".join(
        f"lvrename -qq {GROUP} hand$n.{part} old$n.{part}\n"
        f"lvrename -qq {GROUP} new$n.{part} hand$n.{part}\n"
        for part in ("data", "meta")
    )
    remove = f"lvremove -qq -f {GROUP}/old$n.data {GROUP}/old$n.meta\n"
    return (
        _volumes("new") + "drbdsetup detach $m\n" + swap + _attach()
        + _until_complete() + remove
    )  # fmt: skip


def _creation(name, size_mib=SIZE_MIB, *, waits=False):
    """The job that makes an instance with a mirrored disk, and waits for its copy."""
    return [
        {
            "OP_ID": "OP_INSTANCE_CREATE",
            "instance_name": name,
            "mode": "create",
            "disk_template": "drbd",
            "disks": [{"size": size_mib}],
            "nics": [],
            "hypervisor": "fake",
            "beparams": {"maxmem": 16, "minmem": 16},
            "pnode": "lab1.lab.test",
            "snode": "lab2.lab.test",
            "no_install": True,
            "wait_for_sync": waits,
            "name_check": False,
            "ip_check": False,
            "ignore_ipolicy": True,
        }
    ]


def create(bench):
    """Return (operation, by hand, at once): new instances with a mirrored disk each."""
    jobs = [_creation(name) for name in bench.names]
    scripts = _creation_scripts(bench, SIZE_MIB)
    hand = bench.by_hand(scripts)
    bench.by_hand({node: _loop(bench.count, _until_complete()) for node in scripts})
    spent, most = bench.jobs(jobs)
    return spent, hand, most


def _creation_scripts(bench, size_mib, first=0):
    """Return a script for either node that makes all mirrors, from number ``first`` on."""
    address = {m.name: m.address for m in bench.lab.machines}
    return {
        own: _loop(
            bench.count,
            _new_mirror(
                *(address[own], address[other]),
                is_primary=own == "lab1", size_mib=size_mib,
            ),
            first=first,
        )
        for own, other in (("lab1", "lab2"), ("lab2", "lab1"))
    }  # fmt: skip


def create_and_copy(bench, size_mib):
    """Return the same for creations that wait until both copies are complete."""
    first = bench.count
    scripts = _creation_scripts(bench, size_mib, first)
    complete = _loop(bench.count, _until_complete(), first=first)
    hand = bench.by_hand({node: text + complete for node, text in scripts.items()})
    jobs = [_creation(f"full-{name}", size_mib, waits=True) for name in bench.names]
    spent, most = bench.jobs(jobs)
    return spent, hand, most


def replace(bench):
    """Return the same for new volumes on the secondary node."""
    for name in bench.names:
        bench.check("gnt-instance", "activate-disks", "--wait-for-sync", name)
    hand = bench.by_hand({"lab2": _loop(bench.count, _exchange())})
    jobs = [
        [
            {
                "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
                "instance_name": name,
                "mode": "replace_on_secondary",
                "disks": [],
            }
        ]
        for name in bench.names
    ]
    spent, most = bench.jobs(jobs)
    return spent, hand, most


def evacuate(bench):
    """Return the same for `gnt-node evacuate -s`: secondary copies on a third node."""
    address = {m.name: m.address for m in bench.lab.machines}
    third = _new_mirror(address["lab3"], address["lab1"], is_primary=False)
    remove = f"lvremove -qq -f {GROUP}/hand$n.data {GROUP}/hand$n.meta\n"
    ends = [f"ipv4:{address[name]}:$(({PORT} + n))" for name in ("lab1", "lab2")]
    again = f"drbdsetup disconnect {' '.join(ends)}\n"
    began = time.monotonic()
    first = again + _connect(address["lab1"], address["lab3"])
    bench.by_hand({"lab3": _loop(bench.count, third)})
    bench.by_hand({"lab1": _loop(bench.count, first + _until_complete())})
    bench.by_hand({"lab2": _loop(bench.count, "drbdsetup down hand$n\n" + remove)})
    hand = time.monotonic() - began
    began = time.monotonic()
    bench.check("gnt-node", "evacuate", "-f", "-s", "-n", "lab3", "lab2")
    return time.monotonic() - began, hand, None


def verify(bench):
    """Return seconds of `gnt-cluster verify`, and of its two reading tools."""
    began = time.monotonic()
    bench.run("gnt-cluster", "verify")
    spent = time.monotonic() - began
    nodes = [m.name for m in bench.lab.machines if m.pid() is not None]
    tools = "drbdsetup show all >/dev/null; lvs >/dev/null"
    return spent, bench.by_hand(dict.fromkeys(nodes, tools))


def show_verify(bench, mirrors):
    """Print both times of `verify`, at the second time, with nothing left to load."""
    verify(bench)
    spent, tools = verify(bench)
    print(
        f"verify, {mirrors:<6} {spent:7.1f} s, one drbdsetup and one lvs {tools:5.1f} s,"
        f" {spent / tools:.1f} times",
        flush=True,
    )


def show(name, spent, hand, most):
    parallel = "" if most is None else f", up to {most} jobs at once"
    print(
        f"{name:<14} {spent:7.1f} s, by hand {hand:7.1f} s, control plane"
        f" {100 * (spent - hand) / spent:5.1f} %{parallel}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="4 instances, two nodes")
    parser.add_argument(
        "--mirrors", type=int, default=0, help="with so many, verify once more"
    )
    parser.add_argument(
        "--size", type=int, default=0, metavar="MIB",
        help="creations once more that wait for the copies of such disks",
    )  # fmt: skip
    parser.add_argument("--without-evacuation", action="store_true")
    parser.add_argument(
        "--directory", default=labs.DIRECTORY.parent / "bench", help="of the lab"
    )
    args = parser.parse_args()
    count = 4 if args.quick else args.instances
    is_short = args.quick or args.without_evacuation
    lab = labs.up(args.directory, count=2 if is_short else 3, memory_mib=900)
    try:
        bench = Bench(lab, count)
        nodes = [machine.name for machine in lab.machines]
        with mirroring_cluster(bench, nodes):
            print(f"{count} instances, {len(nodes)} nodes")
            show("create", *create(bench))
            show_verify(bench, count)
            show("replace-disks", *replace(bench))
            if not is_short:
                show("evacuate", *evacuate(bench))
            if args.size:
                name = f"with {args.size} MiB"
                show(name, *create_and_copy(bench, args.size))
            if args.mirrors > count:
                more = range(count + 1, args.mirrors + 1)
                bench.jobs([_creation(f"web{n}.lab.test") for n in more])
                show_verify(bench, args.mirrors)
    finally:
        lab.down()


if __name__ == "__main__":
    main()
