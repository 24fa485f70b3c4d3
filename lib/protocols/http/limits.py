"""Limits and ciphers shared by the HTTP client and server."""

from typing import Final

#: Ciphers of TLS 1.2: ephemeral keys and authenticated encryption, as in TLS 1.3.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
#: Limit of each read and write step of a server, in seconds.
STEP_TIMEOUT_S: Final = 10
#: Seconds for a whole request, and bytes per second that extend them: a peer that
#: sends a body byte by byte must not keep a thread.
REQUEST_TIMEOUT_S: Final = 10
MIN_RATE: Final = 256 * 1024
#: Seconds that the reader of an answer may keep a server waiting in all, and bytes per
#: second that extend them: one that reads byte by byte must not keep a thread.
ANSWER_TIMEOUT_S: Final = 30
MIN_ANSWER_RATE: Final = 8 * 1024
#: Time limit of a refused peer to close its connection, in seconds.
CLOSE_TIMEOUT_S: Final = 1
#: Servers keep idle connections for this long, in seconds.
IDLE_TIMEOUT_S: Final = 75
#: Clients reuse idle connections for a shorter time, so that a request never crosses
#: the server's close.
REUSE_S: Final = IDLE_TIMEOUT_S - 15
#: Largest request body, in bytes: enough for a snapshot of a large cluster.
MAX_BODY: Final = 128 * 1024 * 1024
#: Largest answer, in bytes, unless the request has its own limit.
MAX_ANSWER: Final = 1024 * 1024
