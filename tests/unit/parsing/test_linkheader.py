from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.linkheader import link_targets


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('</p/2>; rel="next"', [({"next"}, "/p/2")]),
        ("</p/2>;rel=next,</p/9>; rel=last", [({"next"}, "/p/2"), ({"last"}, "/p/9")]),
        ('<a,b>; title="x, <y>; rel=\\"no\\""; REL="Next Prefetch"', [({"next", "prefetch"}, "a,b")]),
        # Of two the first counts.
        ("<x>; rel=canonical; rel=next", [({"canonical"}, "x")]),
        # Links of something else than the page.
        ('<x>; rel=next; anchor="#part"', []),
        ("<x>", [(set(), "x")]),
        ("<x>; rel", [(set(), "x")]),
        ("< x >; ; rel=next ;", [({"next"}, "x")]),
        # A broken link does not take the one behind it with it.
        ('<x; rel=next', []),
        ('x; rel=next, <y>; rel="next', [(set(), "y")]),
        ('<x> rel=next, <y>; rel=next', [(set(), "x"), ({"next"}, "y")]),
        ("", []),
    ],
)  # fmt: skip
def test_relations_and_targets_are_read(header: str, expected: list[tuple[set[str], str]]) -> None:
    assert list(link_targets(header)) == expected


def test_what_stands_behind_16_kb_is_not_read() -> None:
    header = ", ".join(f"<{number}>; rel=next" for number in range(10_000))

    assert 500 < len(list(link_targets(header))) < 2000


@given(st.text(alphabet='<>;,="\\ relnxt'))
def test_any_header_is_read_without_an_error(header: str) -> None:
    for relations, target in link_targets(header):
        assert target in header
        assert all(relations)


@pytest.mark.parametrize("part", ["<", "<>;", '<>;a="', '\\"', ";", "<>;a=", "<x>;a ", ' ="'])
def test_hostile_headers_are_read_at_once(part: str) -> None:
    begun_s = time.process_time()

    list(link_targets('<x>; rel="' + part * 100_000))
    list(link_targets(part * 100_000))

    assert time.process_time() - begun_s < 1.0
