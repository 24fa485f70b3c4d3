"""Connections between helper programs: who is accepted."""

import concurrent.futures
import socket

import pytest

from ganeti.base.tls import x509
from ganeti.tools import channel as channels


@pytest.fixture
def ends(tmp_path):
    for name in ("server", "client"):
        pair = x509.create_self_signed(name, validity_s=3600)
        (tmp_path / f"{name}.key").write_bytes(pair.key_pem)
        (tmp_path / f"{name}.cert").write_bytes(pair.certificate_pem)

    def end(own, peer):
        files = (f"{own}.key", f"{own}.cert", f"{peer}.cert")
        paths = [str(tmp_path / name) for name in files]
        return channels.pinned(*paths, is_server=own == "server")

    return end("server", "client"), end("client", "server")


def test_only_the_pinned_certificate_is_accepted(ends):
    server, client = ends
    refused = []

    def accept(end):
        return channels.accept(
            listener, end, 30, absence="nobody came", note=refused.append
        )

    with (
        channels.listen("127.0.0.1", 0) as listener,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        address = listener.getsockname()
        accepted = pool.submit(accept, server)
        with channels.connect(address, client, 30) as ours, accepted.result() as theirs:
            theirs.send(b"x")
            assert ours.receive(1) == b"x"
        # As one whose issuer is accepted: the chain is valid, the digest is not.
        accepted = pool.submit(accept, server._replace(peer="00"))
        with channels.connect(address, client, 30) as ours:
            with pytest.raises(channels.ChannelError):
                ours.receive(1, 10)
            # The next one.
            listener.shutdown(socket.SHUT_RDWR)
        with pytest.raises(OSError, match="Invalid argument"):
            accepted.result()
    (text,) = refused
    assert "another certificate" in text
