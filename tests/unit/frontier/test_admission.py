from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawlproj.config import load_config
from crawlproj.errors import BadSetting
from crawlproj.frontier.admission import AdmissionRules

PAGE = "https://www.example.org/dir/page"


def rules(**settings: object) -> AdmissionRules:
    return AdmissionRules(load_config({f"CRAWL_{name.upper()}": value for name, value in settings.items()}))


def refusal(url: str, depth: int = 1, source: str | None = PAGE, **settings: object) -> str | None:
    return rules(**settings).refusal(url, depth, source)


@pytest.mark.parametrize(
    ("scope", "url", "expected"),
    [
        ("everything", "http://other.test/", None),
        ("domain", "http://example.org:8080/", None),
        ("domain", "https://a.b.example.org/", None),
        ("domain", "https://example.com/", "scope"),
        ("domain", "https://badexample.org/", "scope"),
        ("host", "http://www.example.org:8080/x", None),
        ("host", "https://example.org/", "scope"),
        ("host", "https://www.example.org.evil.test/", "scope"),
        ("seeds", "https://www.example.org/dir/other", "scope"),
        ("list", "https://www.example.org/dir/other", "scope"),
        ("list", "https://listed.test/", None),
        ("list", "https://a.b.listed.test/", None),
        ("list", "https://unlisted.test/", "scope"),
        ("list", "https://only.host.test/", None),
        ("list", "https://host.test/", "scope"),
        ("list", "https://xn--bcher-kva.test/", None),
    ],
)
def test_a_link_is_followed_within_the_scope(scope: str, url: str, expected: str | None) -> None:
    assert refusal(url, scope=scope, scope_domains="listed.test,ONLY.host.test,b\u00fccher.test") == expected


@pytest.mark.parametrize("scope", ["domain", "host", "seeds"])
def test_where_a_seed_redirects_to_is_in_scope_and_where_a_link_does_is_not(scope: str) -> None:
    assert refusal("https://other.test/", depth=0, scope=scope) is None
    assert refusal("https://other.test/", depth=1, scope=scope) == "scope"


def test_a_list_holds_for_redirects_of_seeds_as_well() -> None:
    assert refusal("https://other.test/", depth=0, scope="list", scope_domains="example.org") == "scope"


def test_a_seed_is_refused_only_for_its_length_and_by_exclusions() -> None:
    given = rules(
        scope="list",
        scope_domains="example.org",
        include="/only/",
        exclude="/private/",
        trap_depth=1,
        max_url=100,
    )

    assert given.refusal("https://other.test/a/a/a/a/a/x.zip?a&b&c&a&a&a", 0, None) is None
    assert given.refusal("https://other.test/private/", 0, None) == "excluded"
    assert given.refusal("https://other.test/" + "x" * 100, 0, None) == "length"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.test/blog/1", None),
        ("https://a.test/news/1?x=1", None),
        ("https://a.test/shop/", "not_included"),
        ("https://a.test/blog/login", "excluded"),
        ("https://a.test/blog/PRINT", "excluded"),
        ("https://a.test/blog/abab", "excluded"),
    ],
)
def test_patterns_are_looked_for_in_the_whole_url(url: str, expected: str | None) -> None:
    include = ["^https://a\\.test/blog/", "/news/"]
    exclude = ["/login$", "(?i)print", r"(ab)\1"]

    assert refusal(url, include=include, exclude=exclude) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.test/x.zip", "extension"),
        ("https://a.test/x.tar.GZ", "extension"),
        ("https://a.test/x.PDF?download=1", "extension"),
        ("https://a.test/x.html", None),
        ("https://a.test/x.zip/about", None),
        ("https://a.test/zip", None),
        ("https://a.test/?file=x.zip", None),
        ("https://files.zip/", None),
    ],
)
def test_files_are_known_by_the_end_of_their_path(url: str, expected: str | None) -> None:
    assert refusal(url) == expected


def test_people_choose_the_extensions() -> None:
    assert refusal("https://a.test/x.foo", skip_extensions=".FOO,bar") == "extension"
    assert refusal("https://a.test/x.zip", skip_extensions=".FOO,bar") is None


def test_depth_and_length_have_limits() -> None:
    deep = AdmissionRules(load_config({"DEPTH_LIMIT": 2, "CRAWL_MAX_URL": 64}))

    assert deep.refusal("https://a.test/", 2, PAGE) is None
    assert deep.refusal("https://a.test/", 3, PAGE) == "depth"
    assert deep.refusal("https://a.test/" + "x" * (64 - 15), 1, PAGE) is None
    assert deep.refusal("https://a.test/" + "x" * (65 - 15), 1, PAGE) == "length"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b/a/c/a/d", None),
        ("/a/b/a/c/a/d/a", "trap_repeat"),
        ("/a/a/a/a", "trap_repeat"),
        ("/a/a/a/a/", "trap_repeat"),
        ("/2024/01/01/01", None),
        ("/a/b/a/b", None),
        ("/a/b/a/b/a/b", "trap_repeat"),
        ("/x/a/b/c/a/b/c/a/b/c/y", "trap_repeat"),
        ("/a/b/c/a/b/c/a/b/d", None),
        ("/////x", "trap_repeat"),
        ("/" + "/".join(map(str, range(20))), None),
        ("/" + "/".join(map(str, range(20))) + "/", None),
        ("/" + "/".join(map(str, range(21))), "trap_depth"),
        ("/?" + "&".join(f"p{number}" for number in range(12)), None),
        ("/?" + "&".join(f"p{number}" for number in range(13)), "trap_parameters"),
        ("/?a=1&a=2&a=3&b=4", None),
        ("/?a=1&a=2&b=3&a=4&a=5", "trap_parameters"),
    ],
)
def test_a_path_that_goes_round_is_a_trap(path: str, expected: str | None) -> None:
    assert refusal(f"https://a.test{path}") == expected


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=16), st.integers(1, 4))
@example(list("a1a23b4b"), 2)
def test_repeats_are_what_looking_at_every_group_finds(segments: list[str], most: int) -> None:
    path = "/" + "/".join(segments)
    parts = path[1:].removesuffix("/").split("/")
    rounds = max(most, 2)
    group = any(
        parts[at : at + size] * rounds == parts[at : at + size * rounds]
        for size in range(2, len(parts) // rounds + 1)
        for at in range(len(parts) - size * rounds + 1)
    )
    single = max(map(parts.count, parts)) > most

    found = refusal(f"https://a.test{path}", trap_segments=most)

    assert found == ("trap_repeat" if group or single else None)


@pytest.mark.parametrize("name", ["*.example.org", "https://example.org", "example.org:8080", "exa mple"])
def test_an_invalid_domain_is_named_with_the_remedy(name: str) -> None:
    with pytest.raises(BadSetting) as raised:
        rules(scope="list", scope_domains=[name])

    assert f"CRAWL_SCOPE_DOMAINS has {name!r}" in str(raised.value)
    assert "Write example.org" in str(raised.value)


def test_other_exclusions_are_asked_for_seeds_and_links() -> None:
    given = AdmissionRules(load_config({}), is_excluded="http://a.test/".__eq__)

    assert given.refusal("http://a.test/", 0, None) == "excluded"
    assert given.refusal("http://a.test/", 1, PAGE) == "excluded"
    assert given.refusal("http://a.test/x", 1, PAGE) is None
