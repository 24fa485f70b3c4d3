"""Clients that submit jobs the whole time, and record what was acknowledged."""

import contextlib
import functools
import itertools
import random
import threading
import time

from fakes.histories.rules import FINAL, Submission
from fakes.patience import Background
from ganeti.base import errors

#: Seconds between two jobs of one client.
_PAUSE_S = 0.03
#: Seconds that one question for the end of a job waits.
_WAIT_S = 1
#: Kinds of jobs with their weights; ``role`` demotes or promotes a candidate.
_KINDS = {"delay": 10, "tag": 8, "register": 3, "role": 1}


class Load(Background):
    """Some clients. Use it as a context manager."""

    def __init__(self, machines, name, count=4):
        super().__init__(functools.partial(self._run, n) for n in range(count))
        self.submissions = []
        self._machines = machines
        self._name = name
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def _run(self, number):
        chance = random.Random(f"{self._name}/{number}")
        while not self.stopping.is_set():
            for place in range(len(self._machines.candidates)):
                self._use(place, chance)

    def _use(self, place, chance):
        client = self._machines.client(self._machines.nodes[place], timeout_s=8)
        try:
            with client:
                while not self.stopping.is_set():
                    self._submit(client, place, chance)
                    self.stopping.wait(_PAUSE_S)
        except errors.GenericError:
            # Another node is the master, or this one refuses: try the next.
            self.stopping.wait(0.01)

    def _submit(self, client, place, chance):
        kind = chance.choices(list(_KINDS), list(_KINDS.values()))[0]
        with self._lock:
            number = next(self._numbers)
            item = Submission(f"{self._name}-{number}", kind, invoked=time.monotonic())
            self.submissions.append(item)
        op = {"comment": item.mark, "reason": []} | self._opcode(item, number, chance)
        item.job = int(client.call("SubmitJob", [[op]]))
        item.acknowledged = time.monotonic()
        self._machines.last_served = place
        if kind != "delay":
            self._wait(client, item)

    def _opcode(self, item, number, chance):
        if item.kind == "tag":
            item.value = item.mark
            return {
                "OP_ID": "OP_TAGS_SET",
                "kind": "cluster",
                "name": "",
                "tags": [item.value],
            }
        if item.kind == "register":
            high, low = divmod(number % 65536, 256)
            # Unicast prefixes, others in each of 64 histories.
            first = int(self._name.rpartition("r")[2]) % 64 * 4 + 2
            item.value = f"{first:02x}:{high:02x}:{low:02x}"
            return {"OP_ID": "OP_CLUSTER_SET_PARAMS", "mac_prefix": item.value}
        if item.kind == "role" and len(self._machines.candidates) > 2:
            node = chance.choice(self._machines.candidates)
            return {
                "OP_ID": "OP_NODE_SET_PARAMS",
                "node_name": node.name,
                "master_candidate": chance.random() < 0.6,
                "auto_promote": False,
            }
        nodes = [node.name for node in self._machines.nodes]
        return {
            "OP_ID": "OP_TEST_DELAY",
            "duration": 0.01,
            "repeat": 1,
            "on_master": False,
            "on_nodes": [chance.choice(nodes)],
        }

    def _wait(self, client, item):
        status = None
        while not self.stopping.is_set() and status not in FINAL:
            answer = client.call(
                "WaitForJobChange", [item.job, ["status"], None, None, _WAIT_S]
            )
            status = answer[0][0] if answer != "nochange" else status
            if status not in FINAL:
                self.stopping.wait(0.02)
        if status in FINAL:
            item.ended = time.monotonic()
            item.status = status


@contextlib.contextmanager
def load(machines, name):
    """Run clients during a block; yield the list of what they submit."""
    with Load(machines, name) as running:
        yield running.submissions
