"""Certificates of the cluster and of nodes."""

import re

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("pem") / "server.pem")
    return path, x509.write_cluster_certificate(path)


def test_the_cluster_certificate_is_as_documented(server):
    path, digest = server
    pair = x509.load(path)
    assert isinstance(pair.key, rsa.RSAPrivateKey)
    assert pair.key.key_size == 2048
    assert pair.certificate.signature_hash_algorithm.name == "sha256"
    assert pair.certificate.subject.rfc4514_string() == "CN=ganeti.example.com"
    assert pair.certificate.serial_number == 1
    assert x509.is_self_signed(pair.certificate)
    years = x509.seconds_left(pair.certificate) / 86400 / 365
    assert years == pytest.approx(5, abs=0.01)
    assert digest == pair.digest
    assert re.fullmatch(r"([0-9A-F]{2}:){19}[0-9A-F]{2}", digest)


def test_a_node_certificate_is_signed_by_the_clusters(server, tmp_path):
    path = str(tmp_path / "client.pem")
    digest = x509.write_client_certificate(
        path, server_pem=server[0], name="n1.tst", serial=1700000000
    )
    certificate = x509.load_certificate(path)
    certificate.verify_directly_issued_by(x509.load_certificate(server[0]))
    assert certificate.serial_number == 1700000000
    assert not x509.is_self_signed(certificate)
    assert x509.digest(certificate) == digest


@pytest.mark.parametrize("data", [b"", b"-----BEGIN CERTIFICATE-----\nx\n", b"\xff"])
def test_damaged_files_are_named(tmp_path, data):
    path = str(tmp_path / "bad.pem")
    files.write_file(path, data)
    for load in (x509.load, x509.load_certificate):
        with pytest.raises(errors.X509CertError, match=r"bad\.pem"):
            load(path)


def test_secrets_differ_and_have_the_documented_form():
    first, second = x509.new_secret(), x509.new_secret()
    assert re.fullmatch(r"[0-9a-f]{40}\n", first)
    assert first != second


def test_certificates_of_services_name_their_hosts():
    """Clients of today do not compare the common name, and see no name otherwise."""
    certificate = x509.create_service("cluster.example.net").certificate
    assert authority.names_of(certificate) == (
        "ganeti.example.com",
        "cluster.example.net",
    )
    assert certificate.subject.rfc4514_string() == "CN=ganeti.example.com"


def test_a_certificate_of_the_cluster_names_no_host(server):
    assert authority.names_of(x509.load(server[0]).certificate) == ()
