"""Sockets of kept connections: which server has closed one."""

import socket

from ganeti.protocols.http.kept import KeptSockets

HOST, OTHER = ("192.0.2.1", 1811), ("192.0.2.2", 1811)


def test_only_the_server_that_has_closed_one_is_named():
    kept = KeptSockets()
    pairs = [socket.socketpair() for _ in range(3)]
    for (ours, _theirs), host in zip(pairs, (HOST, HOST, OTHER), strict=True):
        kept.note(host, ours.fileno())
    assert (kept.has_closed(HOST), kept.has_closed(OTHER)) == (False, False)
    pairs[1][1].send(b"data is no end")
    assert not kept.has_closed(HOST)
    pairs[1][1].close()
    assert (kept.has_closed(HOST), kept.has_closed(OTHER)) == (True, False)
    # A socket that the client closed counts no more, also if its number is used again.
    pairs[1][0].close()
    again = socket.socketpair()
    assert not kept.has_closed(HOST)
    for sock in (*pairs[0], *pairs[2], *again):
        sock.close()


def test_a_server_without_connections_has_closed_none():
    assert not KeptSockets().has_closed(HOST)
