"""Certificates that have ended, with the keys of those that have not."""

import datetime as dt

from cryptography import x509 as certificates
from cryptography.hazmat.primitives import hashes

from ganeti.base.tls import x509


def again(pair):
    """Return a self-signed certificate as it was, ended yesterday."""
    old = pair.certificate
    now = dt.datetime.now(dt.UTC)
    builder = (
        certificates.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(old.serial_number)
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now - dt.timedelta(days=1))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return x509.Pair(pair.key, builder.sign(pair.key, hashes.SHA256()))
