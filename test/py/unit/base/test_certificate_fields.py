"""Fields of certificates, files of keys, and errors about both."""

import datetime as dt
import hashlib
import stat

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509

UUID = "11111111-2222-4333-8444-555555555555"
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture(scope="module")
def issuer():
    return authority.create()


@pytest.fixture(scope="module")
def other():
    return authority.create()


@pytest.fixture(scope="module")
def cluster():
    return x509.create_self_signed()


def now():
    return dt.datetime.now(dt.UTC)


def test_a_certificate_is_valid_on_nodes_whose_clocks_are_late(issuer):
    made = authority.issue_with_key(
        issuer, name="n1", uuid=UUID, serial=77, validity_s=3600
    ).certificate
    begin = now() - made.not_valid_before_utc
    assert 10 * MINUTE <= begin < 20 * MINUTE
    left = made.not_valid_after_utc - now()
    assert 55 * MINUTE < left <= 60 * MINUTE
    assert made.serial_number == 77
    assert x509.seconds_left(made) == pytest.approx(left.total_seconds(), abs=60)
    assert made.signature_hash_algorithm.name == "sha256"


def test_a_certificate_does_not_outlive_its_issuer(cluster):
    for validity_s, expected_s in ((None, 3600), (7200, 3600), (60, 60)):
        short = x509.create_self_signed(validity_s=3600, serial=5)
        made = x509.create_signed(short, "n1", serial=9, validity_s=validity_s)
        left_s = x509.seconds_left(made.certificate)
        assert expected_s - 60 < left_s <= expected_s
        assert made.certificate.serial_number == 9
        assert short.certificate.serial_number == 5
    assert x509.seconds_left(cluster.certificate) == pytest.approx(
        5 * 365 * 86400, abs=3600
    )


def extension(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind)


def test_an_authority_signs_certificates_and_nothing_else(issuer):
    usage = extension(issuer.certificate, library.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert usage.value.crl_sign
    for name in (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
    ):
        assert not getattr(usage.value, name), name
    constraints = extension(issuer.certificate, library.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    identifier = extension(issuer.certificate, library.SubjectKeyIdentifier)
    assert not identifier.critical
    assert x509.is_self_signed(issuer.certificate)
    assert issuer.key.key_size == x509.KEY_BITS == 2048


def test_a_certificate_of_a_node_serves_and_calls(issuer):
    made = authority.issue_with_key(issuer, name="n1", uuid=UUID, serial=1)
    usage = extension(made.certificate, library.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert not usage.crl_sign
    assert set(extension(made.certificate, library.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    constraints = extension(made.certificate, library.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (False, None)
    assert made.certificate.issuer == issuer.certificate.subject
    assert isinstance(made.key.curve, ec.SECP256R1)
    assert authority.names_of(issuer.certificate) == ()
    identifier = extension(made.certificate, library.AuthorityKeyIdentifier)
    own = extension(issuer.certificate, library.SubjectKeyIdentifier)
    assert identifier.value.key_identifier == own.value.digest


def test_who_issued_a_certificate(issuer, other, cluster):
    made = authority.issue_with_key(issuer, name="n1", uuid=UUID, serial=1)
    assert x509.is_issued_by(made.certificate, issuer.certificate)
    assert not x509.is_issued_by(made.certificate, other.certificate)
    assert not x509.is_issued_by(made.certificate, made.certificate)
    assert not x509.is_self_signed(made.certificate)
    assert authority.is_one(issuer.certificate)
    assert not authority.is_one(cluster.certificate)


def test_a_digest_is_that_of_the_der_form(cluster):
    der = cluster.certificate.public_bytes(serialization.Encoding.DER)
    pairs = hashlib.sha1(der).hexdigest().upper()
    wanted = ":".join(pairs[n : n + 2] for n in range(0, 40, 2))
    assert cluster.digest == x509.digest(cluster.certificate) == wanted
    assert x509.format_digest(der) == wanted


def test_files_have_the_key_first_and_are_read_in_any_order(cluster, tmp_path):
    assert cluster.pem == cluster.key_pem + cluster.certificate_pem
    assert cluster.pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    turned = cluster.certificate_pem + cluster.key_pem
    assert x509.parse(turned, "x").digest == cluster.digest
    path = tmp_path / "server.pem"
    x509.write_cluster_certificate(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o440
    own = tmp_path / "client.pem"
    x509.write_client_certificate(str(own), server_pem=str(path), name="n1", serial=3)
    assert stat.S_IMODE(own.stat().st_mode) == 0o440
    subject = x509.load(str(own)).certificate.subject
    assert subject.rfc4514_string() == "CN=n1"


def ed25519_pair():
    key = ed25519.Ed25519PrivateKey.generate()
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_keys_of_other_kinds_are_refused(cluster):
    pem = ed25519_pair()
    for read in (
        lambda: x509.parse_key(pem, "a.pem"),
        lambda: x509.parse(pem + cluster.certificate_pem, "a.pem"),
    ):
        with pytest.raises(errors.X509CertError) as caught:
            read()
        assert caught.value.args == ("a.pem: wanted an RSA or EC key",)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (x509.parse_key, "a.pem: no key: "),
        (x509.parse, "a.pem: no key and certificate: "),
        (x509.parse_certificate, "a.pem: no certificate: "),
        (x509.parse_certificates, "a.pem: no certificate: "),
    ],
)
def test_texts_without_what_is_wanted_are_named(read, text):
    with pytest.raises(errors.X509CertError) as caught:
        read(b"nothing", "a.pem")
    assert caught.value.args[0].startswith(text)


def test_files_that_are_missing_are_named(tmp_path):
    path = str(tmp_path / "none.pem")
    with pytest.raises(errors.X509CertError) as caught:
        x509.load(path)
    assert caught.value.args == (f"{path}: No such file or directory",)
    for read in (x509.load_certificate, x509.load_certificates):
        with pytest.raises(errors.X509CertError, match=r"none\.pem: no certificate: "):
            read(path)


# Renewal: two authorities in one file
def test_while_the_authority_is_renewed_both_are_trusted(issuer, other, tmp_path):
    server, key = str(tmp_path / "server.pem"), str(tmp_path / "server-key.pem")
    pairs = [other, issuer]
    files.write_file(server, authority.certificates_pem(pairs))
    files.write_file(key, authority.keys_pem(pairs))
    assert authority.trusted(server) == [other.certificate, issuer.certificate]
    loaded = authority.load_all(server_pem=server, key_path=key)
    assert [pair.digest for pair in loaded] == [other.digest, issuer.digest]
    assert authority.load(server_pem=server, key_path=key).digest == other.digest
    # Keys in another order: the first certificate issues.
    files.write_file(key, authority.keys_pem([issuer, other]))
    assert authority.load(server_pem=server, key_path=key).digest == other.digest
    files.write_file(server, other.certificate_pem)
    kept = authority.load_all(server_pem=server, key_path=key)
    assert [pair.digest for pair in kept] == [other.digest]
    assert authority.is_used(server)


def test_a_key_file_without_a_key_or_with_another_one(issuer, other, tmp_path):
    server, key = str(tmp_path / "server.pem"), str(tmp_path / "server-key.pem")
    authority.write(issuer, server_pem=server, key_path=key)
    assert stat.S_IMODE((tmp_path / "server.pem").stat().st_mode) == 0o440
    for content, problem in (
        (b"", "has no key"),
        (other.key_pem, f"is not the key of {server}"),
    ):
        files.write_file(key, content)
        with pytest.raises(errors.X509CertError) as caught:
            authority.load(server_pem=server, key_path=key)
        assert caught.value.args == (
            f"{key}: {problem}; copy this file from another master candidate",
        )
    files.write_file(
        key, b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"
    )
    with pytest.raises(errors.X509CertError, match=r"server-key\.pem: no key: "):
        authority.load(server_pem=server, key_path=key)


def test_a_request_has_the_name_and_a_key_of_its_own():
    key, request = authority.new_request("n1")
    parsed = library.load_pem_x509_csr(request)
    assert parsed.subject.rfc4514_string() == "CN=n1"
    assert parsed.is_signature_valid
    assert isinstance(parsed.signature_hash_algorithm, hashes.SHA256)
    own = x509.parse_key(key, "x").public_key()
    assert parsed.public_key() == own
    assert authority.requested_key(request.decode()) == own
