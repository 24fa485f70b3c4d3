"""Isolated virtual nodes, and the faults that they suffer."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

from pyroute2.netlink.exceptions import NetlinkError

from fakes.histories.schedule import MASTER
from fakes.patience import until
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import etcd, isolation, network, processes
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols import luxi

TOP = pathlib.Path(__file__).resolve().parents[4]
SHIM = pathlib.Path(__file__).with_name("fault_shim.c")
MASTERD, NODED = "ganeti-masterd", "ganeti-noded"
STANDBY = "ganeti-standby"
#: Of the shared file: nanoseconds, milliseconds per fsync, whether the disk is full.
_FAULTS = struct.Struct("=qqq")
#: Milliseconds that a slow disk takes for one fsync.
_SLOW_MS = 300
#: Seconds for commands of operators: an election repeats itself for a minute.
COMMAND_S = 150.0
#: Exit code of a master daemon that is not wanted on this node.
_NOT_MASTER = 11
_MASTER_LOG = "var/log/ganeti/master-daemon.log"
#: The master's advice about a node that knows it as no candidate.
_ADVICE = re.compile(r"node (\S+) refuses .* run gnt-node add --readd for it")


class Machines:
    """A cluster of isolated nodes, the first ones master candidates.

    ``store`` is ``file`` or ``etcd``, which has three servers.
    """

    def __init__(self, nodes, candidates, store="file"):
        self.directory = tempfile.mkdtemp(prefix="gh-", dir="/tmp")
        self.refusals = []
        self._lock = threading.Lock()
        self._commands = []
        self._bent = {}
        #: Number of the node that served last, as clients know it.
        self.last_served = 0
        self.servers = range(etcd.COUNT if store == "etcd" else 0)
        words = ("--isolated", "--hypervisors", "fake", "--store", store)
        self._vcluster("up", "-n", str(nodes), *words)
        self.layout = lay.Layout.load(self.directory)
        self.control = NodeControl(self.layout, SystemRunner())
        self.nodes = self.layout.nodes
        self.candidates = self.nodes[:candidates]
        #: Daemons of each candidate.
        self._always = [NODED, STANDBY] if self.servers else [NODED]
        #: One at a time switches a node, or there would be two of it.
        self._switches = {node.name: threading.Lock() for node in self.nodes}
        try:
            self._choose_candidates()
            self._load_shim()
        except BaseException:
            self.close()
            raise

    def _vcluster(self, *words):
        command = [TOP / "build/bin/vcluster", "-C", self.directory, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _choose_candidates(self):
        count = len(self.candidates)
        if count == len(self.nodes):
            return
        words = [["gnt-cluster", "modify", f"--candidate-pool-size={count}"]]
        words += [
            ["gnt-node", "modify", "--master-candidate=no", node.name]
            for node in self.nodes[count:]
        ]
        for command in words:
            done = self.control.run(self.nodes[0], command)
            assert not done.failed, f"{command}: {done.output}"

    def _load_shim(self):
        """Have all daemons run with the library that bends clocks and disks."""
        library = f"{self.directory}/fault_shim.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SHIM), "-ldl"]
        subprocess.run(command, check=True)
        for node in self.nodes:
            self._bent[node.name] = (0, 0, 0)
            self._bend(node)
            defaults = pathlib.Path(node.root, "etc/default/ganeti")
            text = f'export LD_PRELOAD={library}\nNODED_ARGS="$NODED_ARGS -d"\n'
            defaults.write_text(defaults.read_text() + text)
            for daemon in (MASTERD, *self._always):
                self.kill(node, daemon)
        for node in self.nodes:
            self.start(node, NODED)
        # The first one to start it is the master before another candidate tries.
        self.start(self.nodes[0], MASTERD)
        self._start_always()

    def _start_always(self):
        """Start what runs on each node; a standby only where the store is known."""
        for node in self.nodes:
            for daemon in self._always:
                if not self.is_running(node, daemon):
                    self.start(node, daemon)

    def close(self):
        """End everything, and remove it."""
        if os.environ.get("KEEP_VCLUSTER"):
            return
        self._vcluster("down")
        shutil.rmtree(self.directory, ignore_errors=True)

    # Places
    def paths(self, node):
        """Return the places of a node as seen from this machine."""
        return Paths(root=node.root, hostname=node.name)

    def client(self, node, timeout_s=20.0):
        """Return a client of a node's master daemon that gives up soon."""
        return luxi.Client.of_node(
            self.paths(node), retries=0, connect_timeout_s=0.05, timeout_s=timeout_s
        )

    def number(self, number):
        """Return a node by its number in a schedule."""
        if number >= 0:
            return self.nodes[number]
        return self.candidates[
            (self.last_served + MASTER - number) % len(self.candidates)
        ]

    def is_running(self, node, daemon=MASTERD):
        return pidfile.is_locked(self.paths(node).pid_file(daemon))

    # Daemons
    def _processes(self, node, daemon):
        return [p for p in self.control.processes_on(node) if p.name == daemon]

    def kill(self, node, daemon):
        """End a daemon by SIGKILL, if it runs."""
        processes.kill(self._processes(node, daemon))

    def start(self, node, daemon, words=()):
        """Start a daemon; return whether it runs. A refusal is noted."""
        tools = self.control.environment(node)["PATH"].split(":")[0]
        command = [f"{tools}/daemon-util", "start", daemon, *words]
        done = self._run(node, command)
        if done is None or done.code == _NOT_MASTER:
            return False
        if done.failed:
            self.refuse(f"{node.short}: {daemon} {done.code}: {done.output}")
        return not done.failed

    def refuse(self, text):
        with self._lock:
            self.refusals.append(text)

    def _run(self, node, command):
        """Run a command on a node; None if the node is down, or goes down."""
        try:
            done = self.control.run(node, command, timeout_s=COMMAND_S)
        except (errors.GenericError, OSError):
            return None
        return None if isolation.holder(self.layout, node) is None else done

    # Faults
    def play(self, fault):
        """Begin one fault; return what ends it, or None."""
        nodes = [self.number(number) for number in fault.nodes]
        others = [self.number(number) for number in fault.others]
        return getattr(self, f"_play_{fault.kind}")(fault, nodes, others)

    def _play_kill(self, fault, nodes, _others):
        daemon = f"ganeti-{fault.daemon}"
        self.kill(nodes[0], daemon)
        return lambda: self._in_background(self.start, nodes[0], daemon)

    def _play_power(self, _fault, nodes, _others):
        with self._switches[nodes[0].name]:
            self.control.power_off(nodes[0])
        return lambda: self._in_background(self._power_on, nodes[0])

    def _power_on(self, node):
        try:
            with self._switches[node.name]:
                text = self.control.power_on(node)
        except errors.OpExecError as err:
            text = str(err)
        if text:
            self.refuse(text)

    def _play_pause(self, fault, nodes, _others):
        # A connection of the other side is accepted by the kernel nevertheless.
        hit = self._processes(nodes[0], f"ganeti-{fault.daemon}")
        processes.send(hit, signal.SIGSTOP)
        return lambda: processes.send(hit, signal.SIGCONT)

    def _play_cut(self, _fault, nodes, others):
        self._cut([(node, others) for node in nodes])
        return lambda: self._join([(node, others) for node in nodes])

    def _play_split(self, _fault, nodes, others):
        others = others or [node for node in self.nodes if node not in nodes]
        pairs = [(node, others) for node in nodes] + [(node, nodes) for node in others]
        self._cut(pairs)
        return lambda: self._join(pairs)

    def _play_isolate(self, _fault, nodes, others):
        rest = [node for node in others if node not in nodes]
        pairs = [(nodes[0], rest)] + [(node, nodes) for node in rest]
        self._cut(pairs)
        return lambda: self._join(pairs)

    def _cut(self, pairs):
        for node, others in pairs:
            self._on_network(network.cut, node, others)

    def _join(self, pairs):
        for node, others in pairs:
            self._on_network(network.join, node, others)

    def _on_network(self, act, node, others):
        self._on_node(act, node, [other.address for other in others])

    def _play_skew(self, fault, nodes, _others):
        self._set_bent(nodes[0], 0, int(fault.seconds * 1e9))

    def _play_slow(self, _fault, nodes, _others):
        self._set_bent(nodes[0], 1, _SLOW_MS)
        return lambda: self._set_bent(nodes[0], 1, 0)

    def _play_full(self, _fault, nodes, _others):
        self._set_bent(nodes[0], 2, 1)
        return lambda: self._set_bent(nodes[0], 2, 0)

    def _set_bent(self, node, place, value):
        values = list(self._bent[node.name])
        values[place] = value
        self._bent[node.name] = tuple(values)
        self._bend(node)

    def _bend(self, node):
        path = pathlib.Path(node.root, "etc/default/ganeti-faults")
        # In place: programs have it mapped.
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.write(_FAULTS.pack(*self._bent[node.name]))

    def _play_server_kill(self, fault, _nodes, _others):
        for number in fault.servers:
            etcd.kill(self.layout, number)
        return lambda: self._start_servers(fault.servers)

    def _start_servers(self, servers):
        for number in servers:
            etcd.start(self.layout, number)

    def _play_server_pause(self, fault, _nodes, _others):
        self._signal_servers(fault.servers, signal.SIGSTOP)
        return lambda: self._signal_servers(fault.servers, signal.SIGCONT)

    def _signal_servers(self, servers, number):
        for server in servers:
            etcd.signal_member(self.layout, server, number)

    def _play_server_cut(self, fault, nodes, _others):
        """Cut servers off from nodes, or if there are none, from the other servers."""
        hit = [etcd.address(self.layout, number) for number in fault.servers]
        rest = [n for n in self.servers if n not in fault.servers]
        if nodes:
            changes = [(self._on_node, node, hit) for node in nodes]
        else:
            others = [etcd.address(self.layout, number) for number in rest]
            changes = [(self._on_server, number, others) for number in fault.servers]
        for change, place, addresses in changes:
            change(network.cut, place, addresses)
        return lambda: [c(network.join, place, away) for c, place, away in changes]

    def _on_server(self, act, number, addresses):
        for process in etcd.running(self.layout, number):
            # A server that ends just now takes its network with it.
            with contextlib.suppress(OSError, IndexError):
                act(process.pid, addresses)

    def _on_node(self, act, node, addresses):
        pid = isolation.holder(self.layout, node)
        # A node that is switched off, or is going on or off, has no network.
        with contextlib.suppress(OSError, IndexError):
            if pid is not None and addresses:
                try:
                    act(pid, addresses)
                except NetlinkError as err:
                    if err.code != errno.ENODEV:
                        raise

    def _play_failover(self, fault, nodes, _others):
        command = ["gnt-cluster", "master-failover", *fault.words]
        if fault.is_killed:
            # The signal ends the command alone, not daemons that it has started.
            limit = f"{fault.seconds:.2f}"
            command = ["timeout", "-s", "KILL", "--foreground", limit, *command]
        self._in_background(self._fail_over, nodes[0], command, fault.is_killed)

    def _fail_over(self, node, command, is_killed):
        done = self._run(node, command)
        if done is not None and done.failed and not is_killed:
            self.refuse(f"{node.short}: {' '.join(command)}: {done.output}")

    def _play_restart(self, fault, nodes, _others):
        def restart():
            self.kill(nodes[0], MASTERD)
            self.start(nodes[0], MASTERD, fault.words)

        self._in_background(restart)

    def _in_background(self, act, *args):
        thread = threading.Thread(target=act, args=args)
        self._commands.append(thread)
        thread.start()

    def wait_for_commands(self, timeout_s):
        """Wait until the commands of operators have ended, or for some seconds."""
        end = time.monotonic() + timeout_s
        for thread in self._commands:
            thread.join(max(0.0, end - time.monotonic()))

    # Healing
    def heal(self):
        """End all faults; wait for the commands of operators."""
        self._heal_servers()
        for node in self.nodes:
            self._bent[node.name] = (0, 0, 0)
            self._bend(node)
            processes.send(self.control.processes_on(node), signal.SIGCONT)
            others = [other for other in self.nodes if other is not node]
            self._on_network(network.join, node, others)
        while self._commands:
            self._commands.pop().join()
        for node in self.nodes:
            if isolation.holder(self.layout, node) is None:
                self._power_on(node)
            self._on_network(network.join, node, self.nodes)
        self._start_always()

    def _heal_servers(self):
        addresses = [etcd.address(self.layout, number) for number in self.servers]
        for number in self.servers:
            etcd.signal_member(self.layout, number, signal.SIGCONT)
            etcd.start(self.layout, number)
            self._on_server(network.join, number, addresses)
        for node in self.nodes:
            self._on_node(network.join, node, addresses)

    def named_master(self, node):
        """Return whether a node's own files call it the master."""
        path = pathlib.Path(self.paths(node).data("ssconf_master_node"))
        return path.exists() and path.read_text().strip() == node.name

    def end_with_one_master(self, *, has_lost):
        """Do what an operator does until one master serves and all copies agree.

        First start what the nodes' own files call for, then move the role. With a store
        in etcd there is nothing to do: a candidate takes over by itself.

        Args:
            has_lost: an operator accepted loss. If changes of the candidates are lost,
                nodes refuse the master until they are added again, as its log says.
        """
        if self.servers:
            until("a takeover, and all copies to be current", self._are_current)
            return
        self._start_named()
        advised = set()

        def is_at_rest():
            # A master that learns only now that it is deposed ends, and leaves none.
            if not self.masters():
                self._start_named()
                if not self.masters():
                    self._choose_master()
            if has_lost and self._follow_advice(advised):
                return False
            self._renew_term()
            return self._are_current()

        until("one master, and all copies to be current", is_at_rest)

    def _start_named(self):
        for node in self.nodes:
            if self.named_master(node) and not self.is_running(node):
                self.start(node, MASTERD)

    def _follow_advice(self, done):
        """Add nodes again for which the master's log wants it; return whether any."""
        [master, *others] = self.serving() or [None]
        if master is None or others or self._are_current():
            return False
        text = pathlib.Path(master.root, _MASTER_LOG).read_text()
        names = set(_ADVICE.findall(text)) - done
        for name in sorted(names):
            done.add(name)
            self.control.run(
                master, ["gnt-node", "add", "--readd", "--no-ssh-key-check", name]
            )
        return bool(names)

    def _renew_term(self):
        """Have the watcher act, as cron would, if a candidate refuses the master."""
        [master, *others] = self.serving() or [None]
        if master is None or others:
            return
        with contextlib.suppress(errors.GenericError), self.client(master) as client:
            copies = client.call("QueryCopies")["copies"]
            if any(copy["wants_restart"] for copy in copies):
                self.control.run(master, ["ganeti-watcher", "--no-wait-children"])

    def masters(self):
        return [node for node in self.nodes if self.is_running(node)]

    def _choose_master(self):
        outputs = []
        for node in self.candidates:
            done = self.control.run(node, ["gnt-cluster", "master-failover"])
            if not done.failed:
                return
            outputs.append(f"{node.short}: {done.output}")
        raise AssertionError("nobody can become master:\n" + "\n".join(outputs))

    def serving(self):
        """Return the nodes whose master daemon answers, none while it cannot write."""
        collected = []
        for node in self.nodes:
            with contextlib.suppress(errors.GenericError), self.client(node) as client:
                client.call("QueryConfigValues", [["cluster_name"]])
                collected.append(node)
        return collected

    def _are_current(self):
        [node, *others] = self.serving() or [None]
        if node is None or others:
            return False
        with contextlib.suppress(errors.GenericError), self.client(node) as client:
            answer = client.call("QueryCopies")
            rows = answer["copies"]
            is_current = all(row["is_current"] and not row["lag"] for row in rows)
            return not answer["warning"] and is_current
        return False
