"""Constants of import, export and transfer."""

from typing import Final

EXPORT_MODES: Final = ("local", "remote")
EXPORT_CONF_FILE: Final = "config.ini"
INISECT_EXP: Final = "export"
INISECT_INS: Final = "instance"
INISECT_HYP: Final = "hypervisor"
INISECT_BEP: Final = "backend"
INISECT_OSP: Final = "os"
INISECT_OSP_PRIVATE: Final = "os_private"
IEM_IMPORT: Final = "import"
IEM_EXPORT: Final = "export"
IEIO_FILE: Final = "file"
IEIO_RAW_DISK: Final = "raw"
IEIO_SCRIPT: Final = "script"
IEC_NONE: Final = "none"
IEC_GZIP: Final = "gzip"
IEC_GZIP_FAST: Final = "gzip-fast"
IEC_GZIP_SLOW: Final = "gzip-slow"
IEC_LZOP: Final = "lzop"
IEC_ALL: Final = ("gzip", "gzip-fast", "gzip-slow", "lzop", "none")
#: Name -> command of compression tools that are not a program of the same name.
IEC_COMMANDS: Final = {
    IEC_GZIP: ("gzip",),
    IEC_GZIP_FAST: ("gzip", "-1"),
    IEC_GZIP_SLOW: ("gzip", "-9"),
}
IEC_DEFAULT_TOOLS: Final = ("gzip", "gzip-fast", "gzip-slow")
#: Version of the hand-over between transfer programs.
RIE_VERSION: Final = 0
#: Text that is HMACed in the handshake.
RIE_HANDSHAKE: Final = "Hi, I'm Ganeti"
#: Seconds.
RIE_CERT_VALIDITY: Final = 86400
#: Seconds.
RIE_CONNECT_TIMEOUT: Final = 180
RIE_CONNECT_RETRIES: Final = 10
#: Seconds.
RIE_CONNECT_ATTEMPT_TIMEOUT: Final = 20
IE_MAGIC_RE: Final = "^[-_.a-zA-Z0-9]{5,100}$"
X509_CERT_CN: Final = "ganeti.example.com"
#: Days.
X509_CERT_DEFAULT_VALIDITY: Final = 1825
X509_CERT_SIGNATURE_HEADER: Final = "X-Ganeti-Signature"
X509_CERT_SIGN_DIGEST: Final = "SHA256"
RSA_KEY_BITS: Final = 2048
#: Days.
SSL_CERT_EXPIRATION_WARN: Final = 30
#: Days.
SSL_CERT_EXPIRATION_ERROR: Final = 7
#: Seconds.
DISK_TRANSFER_CONNECT_TIMEOUT: Final = 60
