"""What the end of a download means for its site and for a retry, and its name in rows and logs."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    IgnoreRequest,
    ResponseDataLossError,
)

from crawlproj.download.client import Answer, BadRequestError
from crawlproj.download.errors import CertificateError, ConnectTimeoutError, NoAnswerError, TlsError
from crawlproj.download.guard import AddressRefusedError
from crawlproj.download.wire import BadResponseError, HeadersTooLargeError
from crawlproj.politeness.pacing import Ending, Trouble

#: We did not want the response, or its rest: the site is fine, and a retry would end the same way.
_UNWANTED = (IgnoreRequest, DownloadCancelledError)
#: The same every time, whatever the site does.
FINAL = (AddressRefusedError, BadRequestError, CertificateError, HeadersTooLargeError)
#: What an error means; the first that fits. Anything else is trouble with the answer.
_MEANINGS: tuple[tuple[Trouble, tuple[type[Exception], ...]], ...] = (
    (Trouble.FINAL, FINAL),
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


def ending_of(answer: Answer) -> Ending:
    """Return what the end of a request means for its domain."""
    error = answer.error
    if error is None:
        retry_after = answer.header(b"Retry-After")
        wait_s = retry_after_s(retry_after, answer.header(b"Date")) if retry_after else None
        return Ending(answer.status, answer.latency_s, wait_s)
    if isinstance(error, _UNWANTED):
        return Ending()
    for means, errors in _MEANINGS:
        if isinstance(error, errors):
            return Ending(error=error_name(error), error_means=means)
    return Ending(error=error_name(error))


def error_name(error: BaseException | None) -> str:
    """Return a short stable name for what kept us from an answer: ``connection_refused``, ``data_loss``."""
    words = [word.lower() for word in _WORDS.findall(type(error).__name__)] if error else []
    name = "_".join(words).removesuffix("_error").removeprefix("download_").removeprefix("response_")
    return name or "unknown"


def retry_after_s(header: bytes, date: bytes) -> float | None:
    """Return the seconds a Retry-After header asks for, given as a number or as a date.

    A date counts from the *date* of the response: the server's clock and ours may differ.
    """
    header = header.strip()
    # On bytes: some Unicode digits, such as '²', are not numbers.
    if header.isdigit():
        return float(header)
    if (until_s := _timestamp_of(header)) is None:
        return None
    now_s = _timestamp_of(date)
    return max(0.0, until_s - (time.time() if now_s is None else now_s))


def _timestamp_of(date: bytes) -> float | None:
    try:
        return parsedate_to_datetime(date.decode("latin-1")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
