"""Plays schedules on a cluster, and judges the histories."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import heapq
import itertools
import time

from fakes import evidence as node_logs
from fakes import patience
from fakes.histories import clients, evidence, machines, readers, rules, schedule

#: Nodes and candidates of the clusters, in the order in which they are used.
SIZES = ((3, 3), (5, 5), (4, 4), (7, 5))
#: Seconds for commands of operators after the last fault.
_OPERATORS_S = 10.0


@dataclasses.dataclass
class Figures:
    """Counts of many histories."""

    histories: int = 0
    jobs: int = 0
    faults: int = 0
    refusals: int = 0
    forced: int = 0
    lost: int = 0
    terms: int = 0
    acts: int = 0
    answers: int = 0
    longest_s: float = 0.0

    def add(self, other):
        """Add the counts of others."""
        for field in dataclasses.fields(self):
            both = getattr(self, field.name), getattr(other, field.name)
            is_top = field.name == "longest_s"
            setattr(self, field.name, max(both) if is_top else sum(both))

    def __str__(self):
        return (
            f"{self.histories} histories without a violation ({self.forced} with"
            f" accepted loss): {self.faults} faults, {self.terms} terms,"
            f" {self.refusals} refusals, {self.jobs} jobs acknowledged, {self.lost} of"
            f" them lost with consent and listed, {self.acts} calls and {self.answers} answers of"
            f" confd checked; longest {self.longest_s:.1f} s"
        )


class Stage:
    """A cluster on which histories are played one after another."""

    def __init__(self, nodes, candidates, store="file"):
        self.machines = machines.Machines(nodes, candidates, store)
        self._sizes = nodes, candidates
        self._logs = evidence.Logs(self.machines)
        self._rounds = itertools.count(1)
        self._settle()

    def close(self):
        self.machines.close()

    def play(self, seed, figures):
        """Play one seed.

        Raises:
            AssertionError: a rule was violated; names seed, faults and log lines.
        """
        faults = schedule.make(seed, *self._sizes, len(self.machines.servers))
        began = time.monotonic()
        self._logs.acts(), self._logs.elected()
        history = rules.History(
            is_forced=any(fault.is_forced for fault in faults),
            before=evidence.copies(self.machines),
        )
        self.machines.refusals.clear()
        try:
            name = f"s{seed}r{next(self._rounds)}"
            with readers.Readers(self.machines) as reading:
                with clients.load(self.machines, name) as submissions:
                    history.submissions = submissions
                    self._play(faults)
                    self.machines.heal()
                self._settle(has_lost=history.is_forced)
            history.answers = reading.answers
            self._collect(history)
            collected = rules.violations(history)
            assert not collected, "\n".join(collected)
        except Exception as err:
            raise AssertionError(self._report(seed, faults, err)) from err
        jobs = [item for item in history.submissions if item.job is not None]
        lost = [item for item in jobs if item.job not in history.jobs]
        figures.add(
            Figures(
                histories=1,
                jobs=len(jobs),
                faults=len(faults),
                refusals=len(history.refusals),
                forced=history.is_forced,
                lost=len(lost),
                terms=len({act[1] for acts in history.acts.values() for act in acts}),
                acts=sum(map(len, history.acts.values())),
                answers=reading.count,
                longest_s=time.monotonic() - began,
            )
        )

    def _play(self, faults):
        """Begin and end faults at their times."""
        began, order = time.monotonic(), itertools.count()
        queue = [(fault.at_s, next(order), fault) for fault in faults]
        heapq.heapify(queue)
        while queue and queue[0][0] <= schedule.LENGTH_S:
            at_s, _number, what = heapq.heappop(queue)
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            if not isinstance(what, schedule.Fault):
                what()
                continue
            ending = self.machines.play(what)
            if ending is not None:
                heapq.heappush(queue, (at_s + what.seconds, next(order), ending))
        # Operators see their commands through before anybody heals the network.
        end = began + schedule.LENGTH_S + _OPERATORS_S
        self.machines.wait_for_commands(end - time.monotonic())

    def _settle(self, *, has_lost=False):
        """Wait until one master serves, with candidates and jobs at rest."""
        self.machines.end_with_one_master(has_lost=has_lost)
        [node] = self.machines.serving()
        with self.machines.client(node, timeout_s=60) as client:
            for candidate in self.machines.candidates:
                self._promote(client, candidate)
            self._wait_for_jobs(client)
        self.machines.end_with_one_master(has_lost=has_lost)

    def _promote(self, client, node):
        rows = client.call("QueryNodes", [[node.name], ["role", "offline"], False])
        if rows[0][0] in ("M", "C"):
            return
        op = {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": node.name, "reason": []}
        op |= {"master_candidate": True, "auto_promote": False}
        job = int(client.call("SubmitJob", [[op]]))
        self._wait_for_jobs(client)
        [[status, result]] = client.call("QueryJobs", [[job], ["status", "opresult"]])
        assert status == "success", f"{node.short} cannot be a candidate: {result}"

    def _wait_for_jobs(self, client):
        for job, _status in client.call("QueryJobs", [None, ["id", "status"]]):
            patience.job_status(client, job, rules.FINAL)

    def _collect(self, history):
        stage = self.machines
        serving = stage.serving()
        history.serving = [node.short for node in serving]
        history.refusals = list(stage.refusals)
        [master] = stage.masters()
        with stage.client(master, timeout_s=60) as client:
            history.jobs = evidence.jobs(client)
            history.tags = set(client.call("QueryTags", ["cluster", ""]))
            history.register = client.call("QueryClusterInfo")["mac_prefix"]
        history.after = evidence.settled_copies(stage)
        history.chain = evidence.chain(stage, master)
        history.acts = self._logs.acts()
        history.elected = self._logs.elected()
        history.lost, history.lost_jobs = evidence.lost(stage)

    def _report(self, seed, faults, err):
        nodes, candidates = self._sizes
        again = (
            f"test/bench/run histories 1 --seed {seed} --nodes {nodes}"
            f" --candidates {candidates}"
            + (" --store etcd" if self.machines.servers else "")
        )
        lines = [
            f"history of seed {seed} on {nodes} nodes, {candidates} candidates; again:",
            again,
            *map(str, faults),
            "refusals:",
            *self.machines.refusals,
            str(err),
        ]
        return "\n".join(lines) + "\n" + node_logs.of_cluster(self.machines.directory)


def run(
    count,
    seed,
    sizes=SIZES,
    *,
    store="file",
    beside=4,
    minutes=None,
    keep_going=False,
    show=lambda _text: None,
):
    """Play histories, the seeds from one on, on some clusters at the same time.

    Args:
        count: how many histories.
        seed: of the first one.
        sizes: nodes and candidates of the clusters; each gets an equal share.
        store: ``file`` or ``etcd``.
        beside: clusters at the same time.
        minutes: begin no history after this, but the first one of a cluster.
        keep_going: show violations and go on with a new cluster.
        show: called with lines of progress.

    Returns:
        the figures, and the texts of the violations.

    Raises:
        AssertionError: a rule was violated, unless ``keep_going``.
    """
    began = time.monotonic()
    pieces = [(size, seed + n) for n, size in enumerate(sizes)]
    figures, texts = Figures(), []

    def play_share(worker):
        mine = pieces[worker::beside]
        for place, (size, first) in enumerate(mine):
            seeds = range(first, seed + count, len(sizes))
            end = began + (minutes or 1e9) * 60 * (place + 1) / len(mine)
            _play_seeds(size, seeds, end)

    def _play_seeds(size, seeds, end):
        left = collections.deque(seeds)
        while left and time.monotonic() < end:
            with contextlib.closing(Stage(*size, store)) as stage:
                try:
                    # A cluster that took all of the time to come up plays one, too.
                    while True:
                        current = left.popleft()
                        before = time.monotonic()
                        stage.play(current, figures)
                        spent = time.monotonic() - before
                        show(f"seed {current} on {size}: {spent:.1f} s")
                        if not left or time.monotonic() >= end:
                            break
                except AssertionError as err:
                    if not keep_going:
                        left.clear()
                        raise
                    texts.append(str(err))
                    show(f"VIOLATION {err}")

    with concurrent.futures.ThreadPoolExecutor(beside) as pool:
        for done in [pool.submit(play_share, n) for n in range(beside)]:
            done.result()
    return figures, texts
