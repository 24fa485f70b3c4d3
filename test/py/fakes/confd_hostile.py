"""Mutated datagrams against a running confd, with a check of every reply."""

import hmac
import json
import os
import random
import socket
import time

from fakes import fuzz
from ganeti.base.constants.protocols import confd

#: Packets between two pings that wait until all of them were read.
BATCH = 100
#: Part of the packets after which memory counts, and its growth at most.
WARM_UP, GROWTH = 0.3, 0.1
_SEEDS = (
    (0, None),
    (1, "node1.example.com"),
    (2, {"0": "br0", "1": "10.0.0.7"}),
    (2, {"2": ["10.0.0.7", "10.0.0.8"]}),
    (3, {"3": [0, 1, 2]}),
    *((kind, None) for kind in (4, 5, 6, 11)),
    (7, "node1.example.com"),
    (8, "node1.example.com"),
    (9, "instance1.example.com"),
    (10, "/cluster/hvparams/kvm"),
)


def sign(key, salt, text):
    """Return a datagram."""
    digest = hmac.new(key, (salt + text).encode("utf-8", "surrogatepass"), "sha1")
    outer = {"msg": text, "salt": salt, "hmac": digest.hexdigest()}
    return b"plj0" + json.dumps(outer).encode()


def is_authentic(key, data):
    """Return whether a datagram has a signature of the key, by a plain reading."""
    try:
        outer = json.loads(data[4:])
        digest = hmac.new(key, (outer["salt"] + outer["msg"]).encode(), "sha1")
        return digest.hexdigest() == outer["hmac"].lower()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


class Attack:
    """Packets to one server."""

    def __init__(self, key, address, port, seed):
        self.key, self.where = key, (address, port)
        self.chance = random.Random(seed)
        self.salts = set()
        self.sent = self.replies = self.number = 0

    def inner(self):
        """Return the text of a request with a salt of its own."""
        kind, query = self.chance.choice(_SEEDS)
        self.number += 1
        return {"protocol": 1, "type": kind, "query": query, "rsalt": f"s{self.number}"}

    def packet(self):
        """Return a mutated datagram, signed or not."""
        message = self.inner()
        now = str(int(time.time()) + self.chance.choice((0, 0, 0, 299, -400, 10**12)))
        kind = self.chance.random()
        if kind < 0.3:
            text = json.dumps(fuzz.mutated_value(self.chance, message))
            return sign(self.key, now, text)
        if kind < 0.4:
            return os.urandom(self.chance.choice((0, 3, 100, 9000)))
        if kind < 0.5:
            return sign(b"another key", now, json.dumps(message))
        data = sign(self.key, now, json.dumps(message))
        if kind < 0.51:
            return data + b" " * 61440
        return fuzz.mutated_bytes(self.chance, data)

    def batch(self, sock):
        """Send packets, then wait for a ping that was sent after them."""
        for _ in range(BATCH):
            data = self.packet()[:65000]
            if is_authentic(self.key, data):
                self.salts.add(_salt(data))
            sock.sendto(data, self.where)
        self.number += 1
        last = f"ping{self.number}"
        ping = {"protocol": 1, "type": 0, "rsalt": last}
        sock.sendto(sign(self.key, str(int(time.time())), json.dumps(ping)), self.where)
        self.salts.add(last)
        self.sent += BATCH + 1
        while True:
            reply = sock.recv(65536)
            assert len(reply) <= confd.MAX_UDP_DATA_SIZE
            assert is_authentic(self.key, reply)
            salt = json.loads(reply[4:])["salt"]
            # Each request gets one reply, and a stranger gets none.
            assert salt in self.salts, f"a reply to nobody: {reply[:200]!r}"
            self.replies += 1
            if salt == last:
                break
        self.salts.clear()


def _salt(data):
    try:
        salt = json.loads(json.loads(data[4:])["msg"])["rsalt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return salt if isinstance(salt, str) else None


def run(key, address, port, pid, *, seed, count=None, seconds=None):
    """Attack a server until a number of packets or seconds is reached.

    Returns:
        packets sent, replies, and growth of the memory after the warm-up.

    Raises:
        AssertionError: a reply without a request, or memory grows; names the seed.
    """
    attack, began, base = Attack(key, address, port, seed), time.monotonic(), None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.settimeout(30)
        while True:
            done = (
                attack.sent / count
                if count
                else (time.monotonic() - began) / (seconds or 1)
            )
            if base is None and done >= WARM_UP:
                base = fuzz.rss_bytes(pid)
            if done >= 1:
                break
            try:
                attack.batch(sock)
            except (AssertionError, OSError) as err:
                raise AssertionError(f"seed {seed}: {err!r}") from err
    growth = fuzz.rss_bytes(pid) / base - 1
    assert growth <= GROWTH, f"seed {seed}: memory {growth:+.1%}"
    return attack.sent, attack.replies, growth
