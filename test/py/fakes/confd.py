"""Values for tests of confd: the vectors of the protocol, and a source without files."""

import json
import os

from fakes import clusters
from ganeti.protocols.confd import wire

KEY = b"3b7f60c2d9e84a15b6c0f1a29d5e7788c4d3e2f1\n"
SERIAL = 77


def vector(inner, salt, digest):
    """Return the bytes of a datagram in the spelling of the vectors."""
    text = json.dumps({"msg": inner, "salt": salt, "hmac": digest}, separators=",:")
    return b"plj0" + text.encode()


_ROLE = '{"protocol":1,"type":1,"query":"pear.cluster.test","rsalt":"salt-B"}'
_MASTER = (
    '{"protocol":1,"status":0,'
    '"answer":["apple.cluster.test","192.0.2.250","192.0.2.11"],"serial":77}'
)
#: Name: time of the request, request, and inner text, salt and MAC of the reply.
VECTORS = {
    "ping": (
        1700000100,
        vector(
            '{"protocol":1,"type":0,"rsalt":"0f3c1a52-77aa-4c0e-9b51-2d1e6f8a9c01"}',
            "1700000100",
            "fa00a7bb63f7eb1341dee00e149a20435b34cd0f",
        ),
        '{"protocol":1,"status":0,"answer":3010000,"serial":0}',
        "0f3c1a52-77aa-4c0e-9b51-2d1e6f8a9c01",
        "c5668cf0ba9bd54e5d0f5a7eb53a4da09ab4e173",
    ),
    "role": (
        1700000101,
        vector(_ROLE, "1700000101", "aff752f83d6bfe2d1ff4b59f7dd481da59e01835"),
        '{"protocol":1,"status":0,"answer":1,"serial":77}',
        "salt-B",
        "1365ed53d8abb58ada075304638a3983d1396a72",
    ),
    "instance IP": (
        1700000102,
        vector(
            '{"protocol":1,"type":2,"query":{"0":"br7","1":"198.51.100.7"},'
            '"rsalt":"salt-C"}',
            "1700000102",
            "da169598945c4706026d703447eb38867db11fec",
        ),
        '{"protocol":1,"status":0,"answer":"192.0.2.13","serial":77}',
        "salt-C",
        "cb907c149c85590612fc01c505dbafbe1f38b03f",
    ),
    "master fields": (
        1700000103,
        vector(
            '{"protocol":1,"type":3,"query":{"3":[0,1,2]},"rsalt":"salt-D"}',
            "1700000103",
            "c3bc692cf271e54a8902b1774d4b2159b6347f89",
        ),
        _MASTER,
        "salt-D",
        "fc69cf2908884f856d4ad463e065d6b5a35db03a",
    ),
    "unknown IP": (
        1700000104,
        vector(
            '{"protocol":1,"type":2,"query":{"1":"198.51.100.99"},"rsalt":"salt-E"}',
            "1700000104",
            "26d0ad666e8a105b0d9a63bb1052a88e963ba224",
        ),
        '{"protocol":1,"status":1,"answer":0,"serial":0}',
        "salt-E",
        "1a97bfba5732e59f09492f2e9c4b9cfd85f31650",
    ),
    "line end": (
        1700000101,
        vector(_ROLE + "\n", "1700000101", "2242e9f2c31e8e579cd5d0fdc23188c377cca6c3"),
        '{"protocol":1,"status":0,"answer":1,"serial":77}',
        "salt-B",
        "1365ed53d8abb58ada075304638a3983d1396a72",
    ),
}


def nic(number, **changes):
    """Return the stored form of a NIC."""
    data = {"mac": f"aa:00:00:00:00:{number:02x}", "nicparams": {}}
    return {**data, "uuid": f"nic-{number}", **changes}


def orchard():
    """Return the cluster that the vectors ask about, with a few more objects."""
    instance = clusters.instance(
        1,
        primary=3,
        nics=[
            nic(1, ip="198.51.100.7", nicparams={"link": "br7"}),
            nic(2, ip="198.51.100.8"),
            nic(3),
        ],
        disks=["disk-1", "disk-2"],
        osparams_private={"password": "tiger"},
    )
    nodes = [
        clusters.node(1, name="apple.cluster.test", primary_ip="192.0.2.11"),
        clusters.node(2, name="pear.cluster.test", primary_ip="192.0.2.12"),
        clusters.node(3, name="fig.cluster.test", primary_ip="192.0.2.13"),
    ]
    start = clusters.snapshot(
        3,
        extra=[
            clusters.drbd_disk("disk-1", 3, 2),
            clusters.drbd_disk("disk-2", 3, 1),
            instance,
        ],
        master_ip="192.0.2.250",
        osparams_private_cluster={"tiny": {"token": "tiger"}},
        nicparams={"default": {"link": "br0", "mode": "bridged"}},
    )
    return clusters.changed(start, *nodes).at(SERIAL, 1)


class FakeSource:
    """A source of snapshots for a server: `put` publishes one."""

    def __init__(self, snapshot, key=KEY, magics=(wire.MAGIC_SHA1,)):
        self._reader, self._writer = os.pipe()
        self._next = [snapshot]
        self._signers = wire.Signers(key, magics)
        #: Readings of the descriptor.
        self.notices = 0

    def put(self, snapshot):
        """Publish a snapshot, None for none."""
        self._next.append(snapshot)
        os.write(self._writer, b"\0")

    def fileno(self):
        return self._reader

    def notice(self):
        self.notices += len(os.read(self._reader, 64))

    def is_due(self):
        return bool(self._next)

    def update(self, projection):
        if not self._next:
            return False
        projection.advance(self._next.pop(0))
        return True

    def detects_replays(self):
        return False

    def signers(self):
        return self._signers

    def next_look_s(self):
        return 60.0

    def close(self):
        os.close(self._reader)
        os.close(self._writer)
