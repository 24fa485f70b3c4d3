"""Master candidates in this process: real copies behind a transport that can fail."""

import threading

from fakes import cluster
from ganeti import store
from ganeti.base import errors


class Answer:
    def __init__(self, payload=None, fail_msg=None):
        self.payload = payload
        self.fail_msg = fail_msg


class Candidates:
    """Copies by node uuid; ``replicate`` is what `store.open_master` wants.

    Nodes in ``down`` refuse calls; nodes in ``hanging`` answer only when they are
    taken out again (see `release`); a node in ``losing`` does the work, but its
    answer is lost.
    """

    def __init__(self, folder, numbers):
        self.copies = {
            cluster.make_id("node", number): store.Replica(f"{folder}/copy{number}.db")
            for number in numbers
        }
        self.down = set()
        self.losing = set()
        self.hanging = {}
        self.calls = []

    def __getitem__(self, number):
        return self.copies[cluster.make_id("node", number)]

    def node(self, number):
        return cluster.make_id("node", number)

    def replicate(self, nodes, request):
        name, args = request.procedure.name, request.args
        return {node: self.call(node, name, args) for node in nodes}

    def call(self, node, procedure, args):
        self.calls.append((node, procedure))
        if node in self.hanging:
            self.hanging[node].wait(60)
        if node in self.down:
            return Answer(fail_msg="connection refused")
        try:
            method = getattr(self.copies[node], procedure.removeprefix("store_"))
            answer = Answer(method(*args))
        except errors.GenericError as err:
            return Answer(fail_msg=str(err))
        return Answer(fail_msg="connection lost") if node in self.losing else answer

    def hang(self, number):
        self.hanging[self.node(number)] = threading.Event()

    def release(self, number):
        self.hanging.pop(self.node(number)).set()

    def close(self):
        for event in self.hanging.values():
            event.set()
        for copy in self.copies.values():
            copy.close()
