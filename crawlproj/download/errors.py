"""How a download fails below HTTP. Scrapy's errors where it has one, so that its middlewares know them."""

from __future__ import annotations

from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, IgnoreRequest


class ConnectTimeoutError(DownloadTimeoutError):
    """No connection, including TLS, within CRAWL_CONNECT_SECONDS."""


class HeaderTimeoutError(DownloadTimeoutError):
    """No complete response headers within CRAWL_HEADER_SECONDS."""


class IdleTimeoutError(DownloadTimeoutError):
    """The body stalled for CRAWL_IDLE_SECONDS."""


class TotalTimeoutError(DownloadTimeoutError):
    """The download took longer than DOWNLOAD_TIMEOUT."""


class TlsError(DownloadFailedError):
    """The TLS handshake failed."""


class CertificateError(TlsError):
    """The server's certificate is not for this host, has expired, or is not trusted."""


class ConnectionFailedError(DownloadFailedError):
    """No connection could be made, for a reason that has no name of its own: no route, for instance."""


class ConnectionLostError(DownloadFailedError):
    """The connection was closed within the response headers."""


class NoAnswerError(DownloadFailedError):
    """The connection was closed before the first byte of the response."""


class PutOffError(IgnoreRequest):
    """A request was not made; retry it after *wait_s*, or after the usual delay if None."""

    wait_s: float | None = None


class AddressBusyError(PutOffError):
    """This IP address is not due yet (CRAWL_IP_DELAY); nothing was sent."""

    def __init__(self, address: str, wait_s: float) -> None:
        super().__init__(f"{address} is due in {wait_s:g} s (CRAWL_IP_DELAY).")
        self.wait_s = wait_s


class LapsedError(PutOffError):
    """We may own its domain no more: our hold was not renewed in time."""


class StaleConnectionError(PutOffError):
    """The server closed a kept-alive connection before the first byte of the response."""
