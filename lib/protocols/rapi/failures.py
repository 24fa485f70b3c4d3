"""Errors of the client of the remote API, under their documented names."""


class Error(Exception):
    """Root of this module's errors; by itself, the client is used wrongly."""


class GanetiApiError(Error):
    """The server refused a request, or it could not be reached.

    Attributes:
        code: status of HTTP, or the error number of the transport library; None if
            there is neither.
    """

    def __init__(self, msg: str, code: int | None = None) -> None:
        Error.__init__(self, msg)
        self.code = code


class CertificateError(GanetiApiError):
    """The certificate of the server is not trusted."""
