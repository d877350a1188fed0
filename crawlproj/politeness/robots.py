"""What a site's robots.txt allows, as RFC 9309 decides it. Pure: responses and the time are arguments.

docs/robots.md says what is obeyed, and where and why that differs from Google's parser.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

#: The RFC asks crawlers to read at least this much.
MAX_ROBOTS_BYTES = 500 * 1024
#: Redirects followed before robots.txt counts as not there.
MAX_ROBOTS_REDIRECTS = 5
#: What is read of one line; Google's parser reads as much.
MAX_LINE_BYTES = 8 * 2083 - 1
MAX_SITEMAPS = 100
MAX_SITEMAP_BYTES = 2048
#: Wildcard rules are tried one by one, so this bounds what a URL costs; see `_Matcher`.
MAX_WILDCARDS = 4000

_FORMAT = 1
#: More than any rules grow to: every octet of the largest file escaped.
_MAX_RULES_BYTES = 4 * MAX_ROBOTS_BYTES
_FIRST_RETRY_S = 60.0
_LAST_RETRY_S = 3600.0

#: A byte order mark, also one that lost its end.
_MARK = re.compile(rb"\xef(?:\xbb\xbf?)?")
#: A line we understand: its name, which may go on as it likes, and what follows the colon. The misspelt
#: names are those Google's parser has seen often.
_LINE = re.compile(
    rb"^[ \t\v\f]*(user[- ]?agent|allow|dis(?:allow|sallow|salow|alow|allaw)|diasllow|crawl-?delay|site-?map)"
    rb"([^:#\n]*)(:[^#\n]*)?",
    re.IGNORECASE | re.MULTILINE,
)
_SECONDS = re.compile(rb"\d{1,9}(?:\.\d*)?|\.\d+")
_TOKEN = re.compile(rb"[a-z_-]*")
_WORD = re.compile(rb"[^\s/]*")

# Both sides are compared in one form: escaped is what is neither reserved nor unreserved (RFC 3986), and
# '*', '$' and "'" where they are meant literally. So "%2A" in a rule is a '*' in a URL, as the RFC has it.
# Each expression begins with one set of characters, which is what makes it fast.
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

    ``retry`` says that the site could not tell: nothing may be fetched now, and it is to be asked again soon.
    """

    agent: str
    retry: bool = False
    crawl_delay_s: float | None = None
    #: As written, so perhaps relative.
    sitemaps: tuple[str, ...] = ()
    #: The rules of our group, a line each: '+' (allow) or '-' and the pattern in its normal form.
    rules: str = ""
    _matcher: _Matcher | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_response(cls, status: int | None, body: bytes, agent: str, redirects: int = 0) -> RobotRules:
        """Return the rules a robots.txt response gives *agent*; *status* None: there was no response.

        A redirect says nothing yet, so nothing may be fetched, until *redirects* of them led to this one
        and the RFC counts the file as not there. A file of the full size takes about 40 ms, and one made to
        be slow 150: read large ones, and `prepare` them, in a thread.
        """
        if status is None or status == 429:
            return cls(agent, retry=True)
        if 200 <= status < 300:
            return _parse(body, agent)
        if 400 <= status < 500 or (300 <= status < 400 and redirects >= MAX_ROBOTS_REDIRECTS):
            return cls(agent)
        return cls(agent, retry=True)

    def may_fetch(self, url: str) -> bool:
        """Return whether *url*, which must be canonical and of this origin, may be fetched."""
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
        # The RFC: always allowed.
        return path == "/robots.txt" or matcher.allows(_ODD_IN_URL.sub(_normal, path))

    def prepare(self) -> RobotRules:
        """Do now, in whatever thread this is, what the first `may_fetch` would have to."""
        if self.rules:
            self._matcher = _Matcher(self.rules.split("\n"))
        return self

    @property
    def size_bytes(self) -> int:
        """About the memory these rules take, once they were asked."""
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
    """What the lines for one agent, or for all, say; groups of the same agent are one."""

    def __init__(self) -> None:
        self.is_named = False
        self.delay_s: float | None = None
        #: '+' or '-' and the pattern; a dict, to have each once.
        self.rules: dict[bytes, None] = {}


def _parse(body: bytes, agent: str) -> RobotRules:
    token = agent.partition("/")[0].strip().lower().encode("utf-8", "replace")
    ours, everyones = _Group(), _Group()
    addressed: list[_Group] = []
    sitemaps: dict[str, None] = {}
    # Rules end a list of agents; all other lines, delays too, stand between them without a meaning for it.
    has_rules = False
    for name, rest, value in _LINE.findall(_text(body)):
        kind = name[:1].lower()
        said = value[1:].strip() if value and len(value) < 2048 else _said(name, rest, value)
        if said is None:
            continue
        if kind == b"d" or kind == b"a":
            has_rules = True
            for group in addressed:
                _add(group, b"-" if kind == b"d" else b"+", said)
        elif kind == b"u":
            if has_rules:
                addressed, has_rules = [], False
            named = _addressed(said.lower(), token, ours, everyones)
            if named is not None and named not in addressed:
                named.is_named = True
                addressed.append(named)
        elif kind == b"c" and _SECONDS.fullmatch(said):
            for group in addressed:
                group.delay_s = max(float(said), group.delay_s or 0.0)
        elif kind == b"s" and 0 < len(said) <= MAX_SITEMAP_BYTES and len(sitemaps) < MAX_SITEMAPS:
            sitemaps[said.decode("utf-8", "replace")] = None
    group = ours if ours.is_named else everyones
    return RobotRules(agent, False, group.delay_s, tuple(sitemaps), _normalised(group.rules))


def _text(body: bytes) -> bytes:
    """Return what counts of a file, its lines ended by newlines."""
    text = body.replace(b"\r", b"\n")
    if len(text) > MAX_ROBOTS_BYTES:
        # Cut at a line, or the last rule would be shorter, and so wider, than it was written.
        text = text[:MAX_ROBOTS_BYTES].rpartition(b"\n")[0]
    mark = _MARK.match(text)
    return text[mark.end() :] if mark else text


def _said(name: bytes, rest: bytes, value: bytes) -> bytes | None:
    """Return what a line without a colon says, if it is two words, or what is read of a long one."""
    if value:
        return value[1 : max(1, MAX_LINE_BYTES - len(name) - len(rest))].strip()
    words = (name + rest).split()
    return words[1] if len(words) == 2 else None


def _addressed(named: bytes, token: bytes, ours: _Group, everyones: _Group) -> _Group | None:
    if named == b"*" or named[:2] in (b"* ", b"*\t"):
        return everyones
    # The name as the RFC writes it, letters, '_' and '-'; or a whole word, for names that have digits.
    names = [match[0] for match in (_TOKEN.match(named), _WORD.match(named)) if match]
    return ours if token and token in names else None


def _add(group: _Group, sign: bytes, pattern: bytes) -> None:
    # Any other, the empty one too, matches nothing.
    if pattern[:1] == b"/" or pattern[:1] == b"*":
        group.rules[sign + pattern] = None
        if sign == b"+" and b"/index.htm" in pattern:
            # As Google has it: who allows a directory's index page allows the directory.
            folder, _, page = pattern.rpartition(b"/")
            if page.startswith(b"index.htm"):
                group.rules[sign + folder + b"/$"] = None


def _normalised(rules: Iterable[bytes]) -> str:
    # As Latin-1 every octet is a character; UTF-8 or not, it is escaped as it came.
    lines = b"\n".join([*rules, b""]).decode("latin-1")
    return _ODD_IN_RULES.sub(_normal, lines).removesuffix("\n")


def _normal(odd: re.Match[str]) -> str:
    return _NORMAL[odd[0]]


class _Matcher:
    """Finds the longest rule that matches a path, in a time that no pattern can make explode.

    Rules without wildcards are looked up, one look for each length there is. The others are tried from the
    longest on, each in one pass over the path. Those after MAX_WILDCARDS are read strictly: as if each that
    disallows matched everything, and none that allows anything.
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
        # Of two as long the one that allows comes first, and wins.
        wild.sort(reverse=True)
        self._wild = [(length, allow, *_pieces(pattern)) for length, allow, pattern in wild]

    def allows(self, path: str) -> bool:
        longest, allowed = self._literal(path)
        for length, allow, first, middle, last in self._wild:
            if length < longest:
                break
            # The first test alone turns most away, before anything is called.
            if path.startswith(first) and (length > longest or allow) and _goes_on(path, first, middle, last):
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
    """Return what a path must begin with, hold in this order after it, and end with after that."""
    first, *middle, last = pattern.removesuffix("$").split("*")
    if pattern[-1] != "$":
        middle.append(last)
        last = ""
    return first, [piece for piece in middle if piece], last


def _goes_on(path: str, first: str, middle: list[str], last: str) -> bool:
    at = len(first)
    for piece in middle:
        # The leftmost will do: whatever matches further on matches after this one, too.
        at = path.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return len(path) - len(last) >= at and path.endswith(last)


@dataclass(frozen=True, slots=True)
class KnownRules:
    """The rules in force for an origin, until they must be fetched again.

    With ``failures``, robots.txt could not be had so often in a row: the rules are older ones, or, with
    ``rules.retry``, there are none and nothing may be fetched.
    """

    rules: RobotRules
    expires_at_s: float
    failures: int = 0


class RobotsCache:
    """The rules of the origins used last, at most *max_origins* and about *max_bytes* of them.

    Rules hold for *ttl_s*. An origin that could not tell is asked again after *retry_s*, then after twice as
    long each time, up to *max_retry_s* or an hour; until it can, the rules it gave before stay in force.
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
        """Return how often in a row *origin* could not tell, and when it is asked again."""
        known = self._known[origin]
        return known.failures, known.expires_at_s

    def put(self, origin: str, rules: RobotRules, now_s: float, *, least_s: float = 0.0) -> KnownRules:
        """Take in what *origin* answered, and return what is in force from now on.

        Rules hold for *least_s* at least, however short their time is.
        """
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
        """Take in what others knew of *origin*, unless it is known better here.

        It may have expired: then it only says how often the origin failed, and what it allowed before.
        """
        before = self._known.get(origin)
        if before is None or before.expires_at_s < known.expires_at_s:
            self._keep(origin, known)

    def _keep(self, origin: str, known: KnownRules) -> None:
        self._forget(origin)
        self._known[origin] = known
        self._bytes += _size_bytes(origin, known)
        # The one just kept stays, whatever its size: its URLs are about to be judged.
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
