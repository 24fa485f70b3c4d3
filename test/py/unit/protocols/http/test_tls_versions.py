"""Versions and ciphers of TLS, and missing certificates: handshakes in memory."""

import contextlib
import datetime as dt

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from OpenSSL import SSL

from ganeti.base.filesystem import files
from ganeti.base.tls import x509
from ganeti.protocols.http import tls

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


def shake_hands(context, **options):
    """Return the version that both ends agree on; raises the server's SSL.Error."""
    return connected(context, **options).get_protocol_version_name()


def connected(context, *, version=None, certificate=None, ciphers=ANY_CIPHER):
    """Return the server's end after a handshake; raises its SSL.Error."""
    client_context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    client_context.set_cipher_list(ciphers)
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
    return server


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


@pytest.fixture(scope="module")
def key_files(tmp_path_factory):
    """Return the files of certificates by the kind of their key."""
    folder = tmp_path_factory.mktemp("keys")
    keys = {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
    }
    paths = {}
    for kind, key in keys.items():
        now, name = dt.datetime.now(dt.UTC), x509.subject_of("n.example.com")
        certificate = (
            library.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        paths[kind] = str(folder / f"{kind}.pem")
        files.write_file(paths[kind], x509.Pair(key, certificate).pem)
    return paths


#: Ciphers of TLS 1.2, the key that they need, and whether a server permits them.
CIPHERS = [
    ("ECDHE-RSA-AES256-GCM-SHA384", "rsa", True),
    ("ECDHE-RSA-CHACHA20-POLY1305", "rsa", True),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "ecdsa", True),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "ecdsa", True),
    # Without forward secrecy: static RSA.
    ("AES256-GCM-SHA384", "rsa", False),
    ("AES128-GCM-SHA256", "rsa", False),
    ("AES256-SHA256", "rsa", False),
    # Not authenticated encryption: CBC.
    ("ECDHE-RSA-AES256-SHA384", "rsa", False),
    ("ECDHE-RSA-AES128-SHA", "rsa", False),
    ("ECDHE-ECDSA-AES256-SHA384", "ecdsa", False),
    ("ECDHE-ECDSA-AES128-SHA", "ecdsa", False),
]


@pytest.mark.parametrize("who", ["noded", "rapi"])
@pytest.mark.parametrize(("cipher", "kind", "is_permitted"), CIPHERS)
def test_ciphers_have_forward_secrecy_and_authentication(
    pem, key_files, who, cipher, kind, is_permitted
):
    guard = tls.PeerGuard(pem[2], pem[0], lambda: {"u1": pem[3]})
    own = key_files[kind]
    options = {
        "version": SSL.TLS1_2_VERSION,
        "certificate": pem[1],
        "ciphers": f"{cipher}:@SECLEVEL=0".encode(),
    }

    def context():
        if who == "rapi":
            return tls.server_context(own, own)
        return tls.server_context(own, own, guard=guard, authority=pem[0])

    if is_permitted:
        assert connected(context(), **options).get_cipher_name() == cipher
        return
    with pytest.raises(SSL.Error, match="no shared cipher"):
        connected(context(), **options)
    # It is the server's choice: both ends could.
    lax = context()
    lax.set_cipher_list(ANY_CIPHER)
    assert connected(lax, **options).get_cipher_name() == cipher


@pytest.mark.parametrize("version", [SSL.TLS1_VERSION, SSL.TLS1_1_VERSION])
def test_the_remote_api_refuses_old_versions(pem, version):
    context = tls.server_context(pem[0], pem[0])
    context.set_cipher_list(ANY_CIPHER)
    with pytest.raises(SSL.Error, match="unsupported protocol"):
        shake_hands(context, version=version)


@pytest.mark.parametrize("kind", ["of the cluster", "foreign", "none"])
def test_the_remote_api_ignores_certificates_of_clients(pem, key_files, kind):
    certificate = {"of the cluster": pem[1], "foreign": key_files["ecdsa"]}.get(kind)
    context = tls.server_context(pem[0], pem[0])
    server = connected(context, certificate=certificate)
    assert server.get_peer_certificate() is None
