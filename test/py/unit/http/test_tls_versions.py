"""Versions of TLS, and handshakes without a certificate, between two ends in memory."""

import contextlib

import pytest
from OpenSSL import SSL

from ganeti.http import tls
from ganeti.utils import x509

#: Permits each old cipher, so that the version alone decides.
ANY_CIPHER = b"ALL:@SECLEVEL=0"


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Return the files of a cluster certificate and of one node's certificate."""
    folder = tmp_path_factory.mktemp("pem")
    server, node = str(folder / "server.pem"), str(folder / "node.pem")
    digest = x509.write_cluster_certificate(server)
    own = x509.write_client_certificate(node, server_pem=server, name="n1", serial=5)
    return server, node, digest, own


def server_context(pem, *, listed):
    guard = tls.PeerGuard(pem[2], pem[0], lambda: listed)
    return tls.server_context(pem[0], pem[0], guard=guard)


def shake_hands(context, *, version=None, certificate=None):
    """Return the version that both ends agree on; raises the server's SSL.Error."""
    client_context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    client_context.set_cipher_list(ANY_CIPHER)
    if version is not None:
        client_context.set_min_proto_version(version)
        client_context.set_max_proto_version(version)
    if certificate is not None:
        client_context.use_certificate_file(certificate)
        client_context.use_privatekey_file(certificate)
    server, client = SSL.Connection(context, None), SSL.Connection(client_context, None)
    server.set_accept_state()
    client.set_connect_state()
    for _round in range(10):
        for end, other in ((client, server), (server, client)):
            with contextlib.suppress(SSL.WantReadError):
                end.do_handshake()
            with contextlib.suppress(SSL.WantReadError):
                other.bio_write(end.bio_read(65536))
    server.do_handshake()
    return server.get_protocol_version_name()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (SSL.TLS1_VERSION, None),
        (SSL.TLS1_1_VERSION, None),
        (SSL.TLS1_2_VERSION, "TLSv1.2"),
        (SSL.TLS1_3_VERSION, "TLSv1.3"),
    ],
)
def test_the_oldest_version_is_1_2(pem, version, name):
    context = server_context(pem, listed={"u1": pem[3]})
    # The ciphers that a server permits need 1.2; here the version alone is tested.
    context.set_cipher_list(ANY_CIPHER)
    if name is not None:
        assert shake_hands(context, version=version, certificate=pem[1]) == name
        return
    with pytest.raises(SSL.Error, match="unsupported protocol"):
        shake_hands(context, version=version, certificate=pem[1])


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
@pytest.mark.parametrize("listed", [True, False])
def test_a_handshake_without_a_certificate_fails(pem, version, listed):
    context = server_context(pem, listed={"u1": pem[3]} if listed else {})
    with pytest.raises(SSL.Error, match="peer did not return a certificate"):
        shake_hands(context, version=version)


def test_a_certificate_must_be_listed_and_of_this_cluster(pem, tmp_path):
    context = server_context(pem, listed={"u1": pem[3]})
    assert shake_hands(context, certificate=pem[1]) == "TLSv1.3"
    foreign = str(tmp_path / "foreign.pem")
    digest = x509.write_cluster_certificate(foreign)
    for known in ({"u1": pem[3]}, {"u1": digest}, {}):
        context = server_context(pem, listed=known)
        with pytest.raises(SSL.Error, match="certificate verify failed"):
            shake_hands(context, certificate=foreign)


def test_servers_that_know_no_callers_ask_for_no_certificate(pem):
    context = tls.server_context(pem[0], pem[0])
    assert shake_hands(context) == "TLSv1.3"


def test_files_that_do_not_fit_are_refused(pem):
    with pytest.raises(tls.errors.X509CertError, match="no usable certificate and key"):
        tls.server_context(pem[0], pem[1])
