"""robots.txt rules by RFC 9309. Pure: responses and the time are arguments.

docs/robots.md says what is obeyed, and where and why that differs from Google's parser.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

#: The least that the RFC requires crawlers to read.
MAX_ROBOTS_BYTES = 500 * 1024
#: Redirects followed before robots.txt counts as missing.
MAX_ROBOTS_REDIRECTS = 5
#: The rest of a line is ignored, as in Google's parser.
MAX_LINE_BYTES = 8 * 2083 - 1
MAX_SITEMAPS = 100
MAX_SITEMAP_BYTES = 2048
#: Wildcard rules are tried one by one, so this bounds the cost of a URL; see `_Matcher`.
MAX_WILDCARDS = 4000

_FORMAT = 1
#: The largest file with every byte escaped.
_MAX_RULES_BYTES = 4 * MAX_ROBOTS_BYTES
_FIRST_RETRY_S = 60.0
_LAST_RETRY_S = 3600.0

#: A byte order mark, perhaps truncated.
_MARK = re.compile(rb"\xef(?:\xbb\xbf?)?")
#: A line we understand: its name, anything up to the colon, and the value. The misspelt names are those that
#: Google's parser accepts.
_LINE = re.compile(
    rb"^[ \t\v\f]*(user[- ]?agent|allow|dis(?:allow|sallow|salow|alow|allaw)|diasllow|crawl-?delay|site-?map)"
    rb"([^:#\n]*)(:[^#\n]*)?",
    re.IGNORECASE | re.MULTILINE,
)
_SECONDS = re.compile(rb"\d{1,9}(?:\.\d*)?|\.\d+")
_TOKEN = re.compile(rb"[a-z_-]*")
_WORD = re.compile(rb"[^\s/]*")

# Rules and URLs are compared in one form: everything neither reserved nor unreserved (RFC 3986) is escaped,
# and so are literal '*', '$' and "'". So "%2A" in a rule is a '*' in a URL, as the RFC says. Each expression
# starts with one character set, which makes it fast.
_PLAIN = r"A-Za-z0-9\-._~:/?#\[\]@!&()+,;="
_ODD_IN_URL = re.compile(rf"[^{_PLAIN}](?:(?<=%)[0-9A-Fa-f]{{2}})?")
_ODD_IN_RULES = re.compile(rf"[^{_PLAIN}*\n](?:(?<=%)[0-9A-Fa-f]{{2}}|(?<=\$)\n)?")


def _normal_forms() -> dict[str, str]:
    unreserved = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    forms = {chr(octet): f"%{octet:02X}" for octet in range(256)} | {"%": "%", "$\n": "$\n"}
    for high in "0123456789ABCDEFabcdef":
        for low in "0123456789ABCDEFabcdef":
            character = chr(int(high + low, 16))
            forms[f"%{high}{low}"] = character if character in unreserved else f"%{high}{low}".upper()
    return forms


_NORMAL = _normal_forms()


@dataclass(slots=True)
class RobotRules:
    """What one agent may fetch from one origin.

    ``retry``: robots.txt could not be fetched, so nothing may be fetched now, and it is to be retried soon.
    """

    agent: str
    retry: bool = False
    crawl_delay_s: float | None = None
    #: As written, perhaps relative.
    sitemaps: tuple[str, ...] = ()
    #: The rules of our group, one per line: '+' (allow) or '-' and the normalised pattern.
    rules: str = ""
    _matcher: _Matcher | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_response(cls, status: int, body: bytes, agent: str) -> RobotRules:
        """Return the rules of a robots.txt response for *agent*; a redirect is one that cannot be followed.

        A file of the full size takes about 40 ms, a hostile one 150: parse large ones, and `prepare` them, in
        a thread.
        """
        if 200 <= status < 300:
            return _parse(body, agent)
        if 300 <= status < 500 and status != 429:
            # A missing file, also after too many redirects.
            return cls(agent)
        return cls(agent, retry=True)

    def may_fetch(self, url: str) -> bool:
        """Whether *url*, which must be canonical and of this origin, may be fetched."""
        if self.retry:
            return False
        if not self.rules:
            return True
        matcher = self._matcher or self.prepare()._matcher
        assert matcher is not None
        at = url.find("/", url.find("://") + 3)
        path = url[at:] if at >= 0 else "/"
        if not path.isascii():
            path = path.encode("utf-8", "replace").decode("latin-1")
        # Always allowed, by the RFC.
        return path == "/robots.txt" or matcher.allows(_ODD_IN_URL.sub(_normal, path))

    def prepare(self) -> RobotRules:
        """Compile the rules now, in this thread, instead of at the first `may_fetch`."""
        if self.rules:
            self._matcher = _Matcher(self.rules.split("\n"))
        return self

    @property
    def size_bytes(self) -> int:
        """The approximate memory of these rules once prepared."""
        parts = 100 * self.rules.count("\n") + 50 * self.rules.count("*")
        return 500 + len(self.rules) + parts + sum(map(len, self.sitemaps))

    def to_bytes(self) -> bytes:
        fields = (self.agent, self.retry, self.crawl_delay_s, self.sitemaps, self.rules)
        return bytes([_FORMAT]) + zlib.compress(msgspec.msgpack.encode(fields), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> RobotRules:
        """Return what `to_bytes` wrote. Raises ValueError for anything else."""
        if data[:1] != bytes([_FORMAT]):
            raise ValueError(f"robots rules of format {data[:1]!r}, not {_FORMAT}")
        try:
            packed = zlib.decompressobj().decompress(data[1:], _MAX_RULES_BYTES)
            return cls(*_DECODER.decode(packed))
        except (zlib.error, msgspec.MsgspecError) as exc:
            raise ValueError(f"damaged robots rules: {exc}") from exc


_DECODER = msgspec.msgpack.Decoder(tuple[str, bool, float | None, tuple[str, ...], str])


class _Group:
    """The lines for one agent, or for all; groups of the same agent are merged."""

    def __init__(self) -> None:
        self.is_named = False
        self.delay_s: float | None = None
        #: '+' or '-' and the pattern; a dict, as an ordered set.
        self.rules: dict[bytes, None] = {}


def _parse(body: bytes, agent: str) -> RobotRules:
    token = agent.partition("/")[0].strip().lower().encode("utf-8", "replace")
    ours, default = _Group(), _Group()
    addressed: list[_Group] = []
    sitemaps: dict[str, None] = {}
    # Only rules end a list of agents; other lines, even delays, do not.
    has_rules = False
    for name, rest, value in _LINE.findall(_text(body)):
        kind = name[:1].lower()
        text = value[1:].strip() if value and len(value) < 2048 else _value_of(name, rest, value)
        if text is None:
            continue
        if kind == b"d" or kind == b"a":
            has_rules = True
            for group in addressed:
                _add(group, b"-" if kind == b"d" else b"+", text)
        elif kind == b"u":
            if has_rules:
                addressed, has_rules = [], False
            named = _addressed(text.lower(), token, ours, default)
            if named is not None and named not in addressed:
                named.is_named = True
                addressed.append(named)
        elif kind == b"c" and _SECONDS.fullmatch(text):
            for group in addressed:
                group.delay_s = max(float(text), group.delay_s or 0.0)
        elif kind == b"s" and 0 < len(text) <= MAX_SITEMAP_BYTES and len(sitemaps) < MAX_SITEMAPS:
            sitemaps[text.decode("utf-8", "replace")] = None
    group = ours if ours.is_named else default
    return RobotRules(agent, False, group.delay_s, tuple(sitemaps), _normalised(group.rules))


def _text(body: bytes) -> bytes:
    """Return the part of a file that counts, with newlines as line ends."""
    text = body.replace(b"\r", b"\n")
    if len(text) > MAX_ROBOTS_BYTES:
        # Cut at a line end: a truncated rule would match more than it was meant to.
        text = text[:MAX_ROBOTS_BYTES].rpartition(b"\n")[0]
    mark = _MARK.match(text)
    return text[mark.end() :] if mark else text


def _value_of(name: bytes, rest: bytes, value: bytes) -> bytes | None:
    """Return the value of a line of two words without a colon, or the truncated value of a long line."""
    if value:
        return value[1 : max(1, MAX_LINE_BYTES - len(name) - len(rest))].strip()
    words = (name + rest).split()
    return words[1] if len(words) == 2 else None


def _addressed(named: bytes, token: bytes, ours: _Group, default: _Group) -> _Group | None:
    if named == b"*" or named[:2] in (b"* ", b"*\t"):
        return default
    # The RFC's form of a name (letters, '_' and '-'), or a whole word, for names with digits.
    names = [match[0] for match in (_TOKEN.match(named), _WORD.match(named)) if match]
    return ours if token and token in names else None


def _add(group: _Group, sign: bytes, pattern: bytes) -> None:
    # Any other pattern, such as an empty one, matches nothing.
    if pattern[:1] == b"/" or pattern[:1] == b"*":
        group.rules[sign + pattern] = None
        if sign == b"+" and b"/index.htm" in pattern:
            # As in Google's parser: allowing a directory's index page allows the directory.
            folder, _, page = pattern.rpartition(b"/")
            if page.startswith(b"index.htm"):
                group.rules[sign + folder + b"/$"] = None


def _normalised(rules: Iterable[bytes]) -> str:
    # In Latin-1 every byte is a character, so any encoding is escaped byte by byte.
    lines = b"\n".join([*rules, b""]).decode("latin-1")
    return _ODD_IN_RULES.sub(_normal, lines).removesuffix("\n")


def _normal(odd: re.Match[str]) -> str:
    return _NORMAL[odd[0]]


class _Matcher:
    """Finds the longest rule that matches a path, in bounded time.

    Rules without wildcards are looked up, once per distinct length. The others are tried from the longest on,
    each in one pass over the path. Beyond MAX_WILDCARDS, a disallow rule counts as matching everything and an
    allow rule as matching nothing.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self._prefixes: dict[str, bool] = {}
        #: Rules that end in '$' and have no other wildcard.
        self._whole: dict[str, bool] = {}
        wild: list[tuple[int, bool, str]] = []
        strict = 0
        for rule in rules:
            allow, pattern = rule[0] == "+", rule[1:]
            if "*" not in pattern:
                paths = self._whole if pattern[-1] == "$" else self._prefixes
                pattern = pattern.removesuffix("$")
                paths[pattern] = allow or paths.get(pattern, False)
            elif len(wild) < MAX_WILDCARDS:
                wild.append((len(pattern), allow, pattern))
            elif not allow:
                strict = max(strict, len(pattern))
        self._lengths = sorted(set(map(len, self._prefixes)), reverse=True)
        if strict:
            wild.append((strict, False, "*"))
        # Of two rules of the same length the one that allows comes first, and wins.
        wild.sort(reverse=True)
        self._wild = [(length, allow, *_pieces(pattern)) for length, allow, pattern in wild]

    def allows(self, path: str) -> bool:
        longest, allowed = self._literal(path)
        for length, allow, first, middle, last in self._wild:
            if length < longest:
                break
            # The cheap first test rejects most.
            if (
                path.startswith(first)
                and (length > longest or allow)
                and _matches_rest(path, first, middle, last)
            ):
                return allow
        return allowed

    def _literal(self, path: str) -> tuple[int, bool]:
        """Return the length of the longest rule without '*' that matches, and whether it allows."""
        allow = self._whole.get(path)
        if allow is not None:
            return len(path) + 1, allow
        for length in self._lengths:
            if length <= len(path) and (allow := self._prefixes.get(path[:length])) is not None:
                return length, allow
        return -1, True


def _pieces(pattern: str) -> tuple[str, list[str], str]:
    """Return the prefix of a path, the parts it must contain in this order, and its suffix."""
    first, *middle, last = pattern.removesuffix("$").split("*")
    if pattern[-1] != "$":
        middle.append(last)
        last = ""
    return first, [piece for piece in middle if piece], last


def _matches_rest(path: str, first: str, middle: list[str], last: str) -> bool:
    at = len(first)
    for piece in middle:
        # The leftmost is enough: what matches after a later one matches after this one, too.
        at = path.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return len(path) - len(last) >= at and path.endswith(last)


@dataclass(frozen=True, slots=True)
class KnownRules:
    """The rules in force for an origin, until they must be fetched again.

    ``failures``: how often in a row robots.txt could not be fetched. Then the rules are older ones, or, with
    ``rules.retry``, there are none and nothing may be fetched.
    """

    rules: RobotRules
    expires_at_s: float
    failures: int = 0


class RobotsCache:
    """The rules of the most recently used origins, at most *max_origins* and about *max_bytes*.

    Rules expire after *ttl_s*. A failed fetch is retried after *retry_s*, then after twice as long each time,
    up to *max_retry_s* or an hour; meanwhile older rules stay in force.
    """

    def __init__(
        self,
        max_origins: int,
        ttl_s: float,
        retry_s: float = _FIRST_RETRY_S,
        *,
        max_retry_s: float = _LAST_RETRY_S,
        max_bytes: int = 32_000_000,
    ) -> None:
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._retry_s = retry_s
        self._max_retry_s = min(max_retry_s, _LAST_RETRY_S)
        self._known: OrderedDict[str, KnownRules] = OrderedDict()
        self._bytes = 0

    def get(self, origin: str, now_s: float) -> RobotRules | None:
        """Return the rules in force for *origin*, or None when they must be fetched (again)."""
        known = self._known.get(origin)
        if known is None:
            return None
        self._known.move_to_end(origin)
        return known.rules if now_s < known.expires_at_s else None

    def trouble(self, origin: str) -> tuple[int, float]:
        """Return how often in a row *origin* failed, and when it is retried."""
        known = self._known[origin]
        return known.failures, known.expires_at_s

    def put(self, origin: str, rules: RobotRules, now_s: float, *, least_s: float = 0.0) -> KnownRules:
        """Store what *origin* answered, and return what is in force from now on, for at least *least_s*."""
        before = self._known.get(origin)
        known = KnownRules(rules, now_s + max(self._ttl_s, least_s))
        if rules.retry:
            failures = before.failures + 1 if before else 1
            wait_s = min(self._retry_s * 2.0 ** min(failures - 1, 16), self._max_retry_s)
            in_force = before.rules if before else rules
            known = KnownRules(in_force, now_s + wait_s, failures)
        self._keep(origin, known)
        return known

    def recall(self, origin: str, known: KnownRules) -> None:
        """Store what other processes knew of *origin*, unless newer rules are known here.

        It may have expired: then only its failures and older rules count.
        """
        before = self._known.get(origin)
        if before is None or before.expires_at_s < known.expires_at_s:
            self._keep(origin, known)

    def _keep(self, origin: str, known: KnownRules) -> None:
        self._forget(origin)
        self._known[origin] = known
        self._bytes += _size_bytes(origin, known)
        # Never the one just stored: its URLs are about to be judged.
        while len(self._known) > 1 and (
            len(self._known) > self._max_origins or self._bytes > self._max_bytes
        ):
            self._forget(next(iter(self._known)))

    def _forget(self, origin: str) -> None:
        known = self._known.pop(origin, None)
        if known is not None:
            self._bytes -= _size_bytes(origin, known)

    def __len__(self) -> int:
        return len(self._known)


def _size_bytes(origin: str, known: KnownRules) -> int:
    return 300 + len(origin) + known.rules.size_bytes
