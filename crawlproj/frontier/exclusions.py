"""The exclusion file: what must not be fetched. It can be changed while the crawl runs."""

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

#: How often the file is checked for changes.
_CHECK_S = 1.0
#: A plain domain name; its last label starts with a letter, or it would be an IP address.
_PLAIN_DOMAIN = re.compile(r"(?:[a-z0-9_-]+\.)*(?!xn--)[a-z][a-z0-9-]*").fullmatch
_COMMENT = re.compile(r"\s+#.*")
#: Characters that the URL parser would strip from a host, or accept in it.
_NOT_IN_HOST = re.compile(r"[\s*@]|:$").search
_SPELLING = UrlRules(())


class Exclusions:
    """The rules of one file. Raises BadSetting when it is invalid at the start.

    Lines: ``example.org`` (and all hosts below it), ``www.example.org/path/prefix`` (this host alone),
    ``re:PATTERN`` (anywhere in the URL), ``# comment``.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._checked_s = float("-inf")
        try:
            self._stamp: tuple[int, int, int] | None = self._stamp_now()
            self._rules = _Rules(self._lines())
        except (OSError, ValueError) as exc:
            raise BadSetting(f"CRAWL_EXCLUDE_FILE: {self._describe(exc)}") from exc

    def excludes(self, url: str) -> bool:
        """Whether *url*, clean and canonical, must not be fetched."""
        return self._rules.excludes(url)

    def reload_if_changed(self, now_s: float) -> bool:
        """Reload the file if it changed, and return whether it did; checks at most once a second.

        If the file is missing or has an invalid line, that is logged and the old rules stay. Reading 100,000
        lines takes a few tenths of a second, and may be done in a thread.
        """
        if now_s - self._checked_s < _CHECK_S:
            return False
        self._checked_s = now_s
        stamp = None
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return False
            self._rules = _Rules(self._lines())
        except (OSError, ValueError) as exc:
            if stamp != self._stamp:
                # Logged once, not every second.
                logger.error("cannot reload exclusions, keeping the old ones: %s", self._describe(exc))
            self._stamp = stamp
            return False
        self._stamp = stamp
        logger.info("exclusions reloaded: %s", self._path)
        return True

    def _stamp_now(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8-sig").splitlines()

    def _describe(self, error: OSError | ValueError) -> str:
        if isinstance(error, UnicodeDecodeError):
            return f"{str(self._path)!r} is not UTF-8 text."
        if isinstance(error, OSError):
            return f"cannot read {str(self._path)!r}: {error.strerror}."
        return f"{str(self._path)!r}, {error}"


def load_rules(config: Config) -> tuple[AdmissionRules, Exclusions | None]:
    """Return the rules of a run, and its exclusion file if there is one. Raises BadSetting."""
    exclusions = Exclusions(config.exclude_file) if config.exclude_file else None
    return AdmissionRules(config, exclusions.excludes if exclusions else None), exclusions


class _Rules:
    """The rules in *lines*. Raises ValueError with the number of an invalid line."""

    def __init__(self, lines: Iterable[str]) -> None:
        domains: set[str] = set()
        prefixes: defaultdict[str, list[str]] = defaultdict(list)
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
                prefixes[host].append(path)
            else:
                domains.add(host)
        self._domains = HostSet(domains)
        self._prefixes = {host: tuple(paths) for host, paths in prefixes.items()}
        self._is_found: Callable[[str], bool] | None = matcher(patterns)

    def excludes(self, url: str) -> bool:
        host = host_of(url)
        if host in self._domains:
            return True
        paths = self._prefixes.get(host)
        if paths is not None and url[url.find("/", 8) :].startswith(paths):
            return True
        return self._is_found is not None and self._is_found(url)


def _host_and_path(text: str) -> tuple[str, str]:
    """Return the host and the path prefix of a line, as in canonical URLs."""
    if _PLAIN_DOMAIN(text):
        return text, ""
    host, slash, path = text.partition("/")
    try:
        url = canonicalise(f"http://{host}/")
        if url != f"http://{host_of(url)}/" or _NOT_IN_HOST(host):
            raise BadUrl(text)
        if not slash:
            return host_of(url), ""
        canonical = _SPELLING.clean(canonicalise(f"{url}{path}"))
    except BadUrl:
        raise BadUrl(
            f"{text!r} is not a domain, a host with a path, or re:PATTERN. Write example.org (all hosts "
            "below it are included), example.org/private or re:/calendar/[0-9]; without http:// and port."
        ) from None
    # Canonical URLs have no empty query, but here '?' means that there must be one.
    return host_of(url), canonical[len(url) - 1 :] + ("?" if path.endswith("?") else "")
