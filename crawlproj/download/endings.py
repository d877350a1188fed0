"""What the end of a download says: of its site, of another try, and in a word for people."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    IgnoreRequest,
    ResponseDataLossError,
)

from crawlproj.download.connection import CertificateError, ConnectTimeoutError, NoAnswerError, TlsError
from crawlproj.download.guard import AddressRefusedError
from crawlproj.download.handler import BadRequestError
from crawlproj.download.wire import BadResponseError, HeadersTooLargeError
from crawlproj.politeness.pacing import Ended, Trouble

#: We did not want the answer, or no more of it: the site is well, and asking again would end the same way.
_UNWANTED = (IgnoreRequest, DownloadCancelledError)
#: What an error means; the first that fits. Anything else is trouble with the answer.
_MEANINGS: tuple[tuple[Trouble, tuple[type[Exception], ...]], ...] = (
    (Trouble.FINAL, (AddressRefusedError, BadRequestError, CertificateError, HeadersTooLargeError)),
    (Trouble.PAGE, (ResponseDataLossError, BadResponseError)),
    (
        Trouble.SITE,
        (
            CannotResolveHostError,
            ConnectTimeoutError,
            DownloadConnectionRefusedError,
            NoAnswerError,
            TlsError,
        ),
    ),
)
_WORDS = re.compile(r"[A-Z][a-z0-9]*")


def ended_of(error: BaseException) -> Ended:
    """Return what a download that ended in *error* means for its domain."""
    if isinstance(error, _UNWANTED):
        return Ended()
    for means, errors in _MEANINGS:
        if isinstance(error, errors):
            return Ended(error=error_name(error), error_means=means)
    return Ended(error=error_name(error))


def error_name(error: BaseException | None) -> str:
    """Return a short stable name for what kept us from an answer: ``connection_refused``, ``data_loss``."""
    words = [word.lower() for word in _WORDS.findall(type(error).__name__)] if error else []
    name = "_".join(words).removesuffix("_error").removeprefix("download_").removeprefix("response_")
    return name or "unknown"


def retry_after_s(header: bytes | None, now_s: float) -> float | None:
    """Return the seconds a Retry-After header asks for, given as a number or as a date."""
    if not header:
        return None
    header = header.strip()
    # Of the bytes: among characters there are digits, such as '²', that are no number.
    if header.isdigit():
        return float(header)
    text = header.decode("latin-1")
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None
