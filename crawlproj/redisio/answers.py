"""What an answer of Redis means: a value, an error that waiting may cure, or one that it does not."""

from __future__ import annotations

import re
from typing import Any

from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from crawlproj.errors import CrawlError, Fenced, RedisRefused

# Errors that pass by themselves. Inside a script, Redis 6.2 wraps them: "Error running script ...: -OOM ...".
_TEMPORARY = re.compile(
    r"(?:^|[ :]-)(?:LOADING|BUSY|MISCONF|OOM|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED"
    r"|TRYAGAIN|CLUSTERDOWN|MOVED|ASK)\b"
)
_WRAPPED = re.compile(r"^Error running script .*?@user_script: \d+: -")
_FULL = re.compile(r"(?:^|[ :]-)OOM\b")
_READ_ONLY = re.compile(r"(?:^|[ :]-)READONLY\b")
_FORBIDDEN = re.compile(r"(?:^|[ :]-)(?:NOAUTH|WRONGPASS|NOPERM|DENIED)\b")


class ScriptError(CrawlError):
    """Redis answered a script or a command with an error that waiting does not cure."""


class NotNow(Exception):
    """Redis answered that it cannot serve requests at the moment."""


class Full(NotNow):
    """Redis is at its `maxmemory`; says how much it uses, and what to do."""


def checked(answer: Any, where: str) -> Any:
    """Return the answer to one command, or raise the error it stands for."""
    if not isinstance(answer, ResponseError):
        return answer
    text = text_of(answer)
    if text.startswith("FENCED"):
        raise Fenced(text)
    if is_temporary(text):
        raise NotNow(text)
    if _FORBIDDEN.search(text):
        raise _refused(text, where) from answer
    raise ScriptError(text) from answer


def is_temporary(text: str) -> bool:
    return _TEMPORARY.search(text) is not None


def is_full(answer: Any) -> bool:
    """Whether Redis refused a command because it is at its `maxmemory`."""
    return isinstance(answer, ResponseError) and _FULL.search(text_of(answer)) is not None


def is_read_only(answer: Any) -> bool:
    """Whether the server refused a command because it is a replica."""
    return isinstance(answer, ResponseError) and _READ_ONLY.search(text_of(answer)) is not None


def reason_of(exc: Exception, where: str) -> str:
    """Return why a connection failed, if a retry may help; raise RedisRefused if not."""
    # redis-py wraps errors in the handshake of a unix socket.
    while isinstance(exc.__cause__, RedisError):
        exc = exc.__cause__
    text = text_of(exc)
    if is_temporary(text):
        return f"cannot serve requests now ({text})"
    if isinstance(exc, InvalidResponse):
        raise RedisRefused(f"The server at {where} is not Redis ({text}). Check REDIS_URL.") from exc
    if isinstance(exc, (AuthenticationError, ResponseError)):
        raise _refused(text, where) from exc
    # The second: of a connection that died while idle.
    if not isinstance(exc, (RedisConnectionError, RedisTimeoutError, OSError)):
        raise exc
    return f"did not answer ({text})"


def text_of(exc: BaseException) -> str:
    """Return the error as Redis wrote it: redis-py strips the codes it knows. ERR is left out."""
    code = getattr(exc, "status_code", None)
    return f"{code} {exc}" if code and code != "ERR" else _WRAPPED.sub("", str(exc).removeprefix("ERR "))


def _refused(text: str, where: str) -> RedisRefused:
    if text.startswith("NOAUTH"):
        remedy = "Put the password into REDIS_URL (redis://:PASSWORD@HOST:PORT) or REDIS_PARAMS."
    elif text.startswith("NOPERM"):
        remedy = "Allow this user to run scripts and all commands on the crawl's keys, or use another user."
    else:
        remedy = "Check user, password and database in REDIS_URL and REDIS_PARAMS."
    return RedisRefused(f"Redis at {where} refused access: {text.rstrip('.')}. {remedy}")
