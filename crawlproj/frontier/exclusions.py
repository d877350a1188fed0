"""The exclusion file: what must not be fetched, by people's wish, and can be changed while the crawl runs."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from crawlproj.config import Config
from crawlproj.errors import BadSetting, BadUrl
from crawlproj.frontier.admission import AdmissionRules, HostSet, matcher
from crawlproj.model.urls import UrlRules, canonicalise, host_of

logger = logging.getLogger(__name__)

#: How often the file is looked at.
_LOOK_S = 1.0
#: A line that is a plain name; its last part has a letter, or it would be an IP address.
_PLAIN_DOMAIN = re.compile(r"(?:[a-z0-9_-]+\.)*(?!xn--)[a-z][a-z0-9-]*").fullmatch
_COMMENT = re.compile(r"\s+#.*")
#: What the URL parser would take out of a host, or let pass.
_NOT_IN_HOST = re.compile(r"[\s*@]|:$").search
_SPELLING = UrlRules(())


class Exclusions:
    """The rules of one file. Raises BadSetting when it cannot be used at the start.

    Lines: ``example.org`` (and all hosts below it), ``www.example.org/beginning/of/path`` (this host alone),
    ``re:PATTERN`` (found anywhere in the URL), ``# comment``.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._looked_s = float("-inf")
        try:
            self._stamp: tuple[int, int, int] | None = self._stamp_now()
            self._rules = _Rules(self._lines())
        except (OSError, ValueError) as exc:
            raise BadSetting(f"CRAWL_EXCLUDE_FILE: {self._complaint(exc)}") from exc

    def excludes(self, url: str) -> bool:
        """Tell whether *url*, clean and canonical, must not be fetched."""
        return self._rules.excludes(url)

    def reload_if_changed(self, now_s: float) -> bool:
        """Read the file again if it changed, and return whether it did; looks at most once a second.

        A file that is gone or has a bad line changes nothing but the log: the rules at hand stay. Reading
        100,000 lines takes a few tenths of a second, and may be done in a thread.
        """
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        stamp = None
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return False
            self._rules = _Rules(self._lines())
        except (OSError, ValueError) as exc:
            if stamp != self._stamp:
                # Once, and not every second.
                logger.error("exclusions not read again, the old ones stay: %s", self._complaint(exc))
            self._stamp = stamp
            return False
        self._stamp = stamp
        logger.info("exclusions read again: %s", self._path)
        return True

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8-sig").splitlines()

    def _complaint(self, error: OSError | ValueError) -> str:
        if isinstance(error, UnicodeDecodeError):
            return f"{str(self._path)!r} is not UTF-8 text; save it as such."
        if isinstance(error, OSError):
            return f"cannot read {str(self._path)!r}: {error.strerror}."
        return f"{str(self._path)!r}, {error}"


def load_rules(config: Config) -> tuple[AdmissionRules, Exclusions | None]:
    """Return the rules of a run, and the exclusion file they ask, if there is one. Raises BadSetting."""
    exclusions = Exclusions(config.exclude_file) if config.exclude_file else None
    return AdmissionRules(config, exclusions.excludes if exclusions else None), exclusions


class _Rules:
    """The rules in *lines*. Raises ValueError with the number of a bad line."""

    def __init__(self, lines: Iterable[str]) -> None:
        domains: set[str] = set()
        beginnings: defaultdict[str, list[str]] = defaultdict(list)
        patterns: list[str] = []
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            try:
                if text.startswith("re:"):
                    patterns.append(re.compile(text[3:]).pattern)
                    continue
                host, path = _host_and_path(_COMMENT.sub("", text))
            except re.error as exc:
                raise ValueError(f"line {number}: {text!r} is not a regular expression: {exc}") from exc
            except BadUrl as exc:
                raise ValueError(f"line {number}: {exc}") from exc
            if path:
                beginnings[host].append(path)
            else:
                domains.add(host)
        self._domains = HostSet(domains)
        self._beginnings = {host: tuple(paths) for host, paths in beginnings.items()}
        self._is_found: Callable[[str], bool] | None = matcher(patterns)

    def excludes(self, url: str) -> bool:
        host = host_of(url)
        if host in self._domains:
            return True
        paths = self._beginnings.get(host)
        if paths is not None and url[url.find("/", 8) :].startswith(paths):
            return True
        return self._is_found is not None and self._is_found(url)


def _host_and_path(text: str) -> tuple[str, str]:
    """Return the host and the beginning of paths in a line, written as they are in canonical URLs."""
    if _PLAIN_DOMAIN(text):
        return text, ""
    host, slash, path = text.partition("/")
    try:
        url = canonicalise(f"http://{host}/")
        if url != f"http://{host_of(url)}/" or _NOT_IN_HOST(host):
            raise BadUrl(text)
        if not slash:
            return host_of(url), ""
        written = _SPELLING.clean(canonicalise(f"{url}{path}"))
    except BadUrl:
        raise BadUrl(
            f"{text!r} is not a domain, a host with a path, or re:PATTERN. Write example.org (all hosts "
            "below it are included), example.org/private or re:/calendar/[0-9]; without http:// and port."
        ) from None
    # An empty query is no part of a canonical URL, but here it says that there must be one.
    return host_of(url), written[len(url) - 1 :] + ("?" if path.endswith("?") else "")
