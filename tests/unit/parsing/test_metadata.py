from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.head import Head
from crawlproj.parsing.metadata import Metadata, metadata_of

URL = "https://a.test/news/title-of-it"
DAY = datetime(2020, 1, 5, tzinfo=UTC)
FETCHED_MS = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)


def read(*json_ld: Any, url: str = URL, title: str = "Title of it | The Site", **of_head: Any) -> Metadata:
    """Metadata of a page with that JSON-LD (text, or what is to become it) and other declarations."""
    scripts = [one if isinstance(one, str) else json.dumps(one) for one in json_ld]
    return metadata_of(Head(title=title, json_ld=scripts, **of_head), url, FETCHED_MS)


def metas(**contents: str) -> list[tuple[str, str]]:
    return [(name.replace("__", ":"), content) for name, content in contents.items()]


def article(**more: Any) -> dict[str, Any]:
    return {"@context": "https://schema.org", "@type": "NewsArticle", "headline": "Title of it", **more}


def test_a_page_that_declares_nothing_has_no_metadata() -> None:
    assert metadata_of(Head(), "https://a.test/") == Metadata()


# Dates.


@pytest.mark.parametrize(
    "name",
    ["article__published_time", "datepublished", "citation_publication_date", "parsely-pub-date", "date"],
)
def test_the_day_of_publication_is_read_from_metas(name: str) -> None:
    assert read(metas=metas(**{name: "2020-01-05"})).published == DAY


def test_the_zone_is_the_one_that_was_written() -> None:
    found = read(metas=metas(article__published_time="2020-01-05T23:30:00-05:00")).published

    assert found == datetime(2020, 1, 6, 4, 30, tzinfo=UTC)
    assert found.utcoffset() == timedelta(hours=-5)


def test_the_sources_of_a_date_are_tried_from_the_most_to_the_least_reliable() -> None:
    sources: list[dict[str, Any]] = [
        {"metas": [("article:published_time", "2020-01-01")]},
        {"json_ld": [json.dumps(article(datePublished="2020-01-02"))]},
        {"metas": [("pubdate", "2020-01-03")]},
        {"times": [("2020-01-04", "entry-date published")]},
        {"times": [("2020-01-05", "")]},
        {"metas": [("date", "2020-01-06")]},
        {"url": "https://a.test/2020/01/07/x"},
    ]

    for first in range(len(sources)):
        declared: dict[str, Any] = {"metas": [], "json_ld": [], "times": []}
        for source in reversed(sources[first:]):
            for name, value in source.items():
                # A time element beside a marked one would be of another day.
                declared[name] = value if name in ("url", "times") else declared[name] + value
        url = declared.pop("url")
        found = metadata_of(Head(title="Title of it", **declared), url)
        assert found.published == datetime(2020, 1, first + 1, tzinfo=UTC)


def test_a_date_that_cannot_be_read_gives_way_to_the_next_source() -> None:
    found = read(
        article(datePublished="2020-01-05"), metas=metas(article__published_time="0001-01-01T00:00:00Z")
    )

    assert found.published == DAY


def test_time_elements_of_different_days_say_nothing() -> None:
    assert read(times=[("2020-01-05", "teaser"), ("2020-01-06", "teaser")]).published is None
    assert read(times=[("2020-01-05", "x"), ("2020-01-05T10:00:00Z", ""), ("soon", "")]).published == DAY


def test_a_marked_time_element_is_taken_among_others() -> None:
    times = [("2019-09-09", "teaser"), ("2020-01-05", "dt-published"), ("2021-02-03", "dt-updated")]

    found = read(times=times)

    assert found.published == DAY
    assert found.modified == datetime(2021, 2, 3, tzinfo=UTC)


def test_no_date_is_later_than_two_days_after_the_fetch() -> None:
    fetched = datetime.fromtimestamp(FETCHED_MS / 1000, UTC)
    soon, late = fetched + timedelta(days=1), fetched + timedelta(days=3)

    assert read(metas=metas(article__published_time=soon.isoformat())).published == soon
    assert read(metas=metas(article__published_time=late.isoformat())).published is None
    assert read(url=f"https://a.test/{late:%Y/%m/%d}/x").published is None


@pytest.mark.parametrize("minutes", [-2, 0, 5])
def test_a_clock_on_the_page_is_not_a_publication_date(minutes: int) -> None:
    shown = datetime.fromtimestamp(FETCHED_MS / 1000, UTC) + timedelta(minutes=minutes)

    assert read(times=[(shown.isoformat(), "")]).published is None
    assert read(metas=metas(date=shown.isoformat())).published is None
    assert read(metas=metas(article__published_time=shown.isoformat())).published == shown


def test_a_vague_date_that_is_the_day_of_the_last_change_is_not_that_of_publication() -> None:
    found = read(times=[("2020-01-05", "")], metas=metas(article__modified_time="2020-01-05T10:00:00Z"))

    assert found.published is None
    assert found.modified == DAY.replace(hour=10)


def test_a_date_in_the_query_or_the_host_of_a_url_is_none() -> None:
    assert read(url="https://a.test/x?d=/2020/01/05/").published is None
    assert read(url="https://2020-01-05.test/").published is None
    assert read(url="https://a.test/2020/01/05/x?y").published == DAY


# JSON-LD.


@pytest.mark.parametrize(
    "script",
    [
        article(datePublished="2020-01-05"),
        [article(datePublished="2020-01-05")],
        {"@context": "x", "@graph": [{"@type": "WebSite"}, article(datePublished="2020-01-05")]},
        [{"@graph": [[article(datePublished="2020-01-05")]]}],
        {"@type": "WebPage", "mainEntity": article(datePublished="2020-01-05")},
        article(**{"@type": ["Thing", "BlogPosting"], "datePublished": "2020-01-05"}),
        article(**{"@type": "http://schema.org/Article", "datePublished": "2020-01-05"}),
        article(**{"@type": "schema:article", "datePublished": "2020-01-05"}),
        article(datePublished=["2020-01-05"]),
        article(datePublished=1578182400),
        article(dateCreated="2020-01-05"),
    ],
)
def test_json_ld_is_read_in_every_shape(script: Any) -> None:
    found = read(script)

    assert found.published == DAY
    assert found.kind == "article"


@pytest.mark.parametrize(
    "script",
    [
        '<!-- {"@type": "Article", "datePublished": "2020-01-05"} -->',
        '//<![CDATA[\n{"@type": "Article", "datePublished": "2020-01-05"}\n//]]>',
        '/* <![CDATA[ */ {"@type": "Article", "datePublished": "2020-01-05"} /* ]]> */',
        '{"@type": "Article", "description": "two\nlines\tand a tab", "datePublished": "2020-01-05"}',
        '{"@type": "Article", "keywords": ["a", "b",], "datePublished": "2020-01-05",}',
        '{"@type": "Article", "datePublished": "2020-01-05"};',
        '\ufeff{"@type": "Article", "datePublished": "2020-01-05"}',
        "{&quot;@type&quot;: &quot;Article&quot;, &quot;datePublished&quot;: &quot;2020-01-05&quot;}",
        '{"@type": "WebSite"}{"@type": "Article", "datePublished": "2020-01-05"}',
        '{"@type": "WebSite"},\n{"@type": "Article", "datePublished": "2020-01-05"}',
        r'{"@type": "Article", "description": "it\'s", "datePublished": "2020-01-05"}',
        r'{"@type": "Article", "description": "cut \ud83d", "datePublished": "2020-01-05"}',
    ],
)
def test_json_ld_with_a_common_mistake_is_read(script: str) -> None:
    assert read(script).published == DAY


@pytest.mark.parametrize(
    "script",
    [
        "",
        " ",
        "{",
        "null",
        "1",
        '"Article"',
        "[]",
        "[1, null, []]",
        "<p>",
        '{"@type": "Article" "x"}',
        '{"@graph": 5}',
    ],
)
def test_json_ld_that_is_none_is_ignored(script: str) -> None:
    assert read(script, article(datePublished="2020-01-05")).published == DAY


@pytest.mark.parametrize(
    "value",
    [None, 5, 1.5, True, [], {}, [None], [[]], [{}], {"name": {}}, {"name": 3}, {"@id": 4}, "", [5, "x"]],
)
def test_values_of_the_wrong_type_harm_nothing(value: Any) -> None:
    keys = (
        "@id",
        "url",
        "mainEntityOfPage",
        "headline",
        "datePublished",
        "dateModified",
        "author",
        "publisher",
    )
    node = article(**dict.fromkeys([*keys, "image", "isAccessibleForFree", "name"], value))

    found = read(
        node, {"@type": value}, {"@type": "WebPage", "mainEntity": value, "datePublished": "2020-01-05"}
    )

    assert found.published == DAY


def test_the_node_about_the_page_wins_over_others() -> None:
    other = article(headline="Another", url="https://a.test/other", datePublished="2011-01-01")
    by_url = article(
        headline="Other words", url="http://www.a.test/news/title-of-it/", datePublished="2020-01-05"
    )
    by_page = article(
        headline="Other words", mainEntityOfPage={"@id": URL + "#main"}, datePublished="2020-01-05"
    )
    by_title = article(datePublished="2020-01-05")

    for mine in (by_url, by_page, by_title):
        assert read(other, mine, other).published == DAY
        assert read({"@graph": [other, other, mine]}).published == DAY


def test_articles_of_which_none_is_the_page_say_nothing_about_it() -> None:
    teasers = [
        article(headline=f"Teaser {number}", datePublished="2020-01-05", author="A B") for number in range(3)
    ]

    found = read(teasers)

    assert (found.published, found.author, found.kind) == (None, None, None)


def test_the_only_article_is_not_the_page_if_it_says_so() -> None:
    node = article(headline="Another", url="https://a.test/other", datePublished="2020-01-05")

    assert read(node).published is None
    assert read({**node, "url": None}).published == DAY


def test_references_within_the_graph_are_followed() -> None:
    graph = [
        article(author={"@id": "#p"}, publisher={"@id": "#o"}, image={"@id": "#i"}),
        {"@type": "Person", "@id": "#p", "name": "Ada Lovelace"},
        {"@type": "Organization", "@id": "#o", "name": "The Site"},
        {"@type": "ImageObject", "@id": "#i", "url": "https://a.test/i.png"},
    ]

    found = read({"@graph": graph})

    assert (found.author, found.site_name, found.image) == (
        "Ada Lovelace",
        "The Site",
        "https://a.test/i.png",
    )


# Kinds.


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("Article", "article"),
        ("NewsArticle", "article"),
        ("Product", "product"),
        ("ProductGroup", "product"),
        ("DiscussionForumPosting", "forum"),
        ("QAPage", "forum"),
        ("ItemList", "list"),
        ("CollectionPage", "list"),
        ("VideoObject", "video"),
        ("PodcastEpisode", "audio"),
        ("Recipe", "recipe"),
        ("Event", "event"),
        ("JobPosting", "job"),
        ("Course", "course"),
        ("Book", "book"),
        ("SoftwareApplication", "software"),
        ("Dataset", "dataset"),
        ("ProfilePage", "profile"),
        ("WebPage", None),
        ("WebSite", None),
        ("Organization", None),
        ("BreadcrumbList", None),
        ("Unheard", None),
    ],
)
def test_the_kind_is_that_of_the_type(type_: str, kind: str | None) -> None:
    assert read({"@type": type_, "name": "Title of it"}).kind == kind


@pytest.mark.parametrize(
    ("og_type", "kind"),
    [("article", "article"), ("Product", "product"), ("product.item", "product"), ("video.movie", "video"),
     ("music.song", "audio"), ("website", None), ("my:own", None), ("", None)],
)  # fmt: skip
def test_opengraph_names_the_kind_where_json_ld_does_not(og_type: str, kind: str | None) -> None:
    assert read({"@type": "WebPage"}, metas=metas(og__type=og_type)).kind == kind
    assert read({"@type": "Recipe", "name": "Title of it"}, metas=metas(og__type=og_type)).kind == "recipe"


# People and places.


@pytest.mark.parametrize(
    ("author", "names"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        ({"@type": "Person", "name": "Ada Lovelace"}, "Ada Lovelace"),
        ([{"name": "Ada Lovelace"}, {"name": "Alan Turing"}], "Ada Lovelace; Alan Turing"),
        (["Ada Lovelace", {"name": ["Alan Turing", "ada lovelace"]}], "Ada Lovelace; Alan Turing"),
        ("By Ada Lovelace", "Ada Lovelace"),
        ("By: Ada Lovelace", "Ada Lovelace"),
        ("Written by Ada Lovelace", "Ada Lovelace"),
        ("ByAda Lovelace", "Ada Lovelace"),
        ("von Ada Lovelace", "Ada Lovelace"),
        ("Veröffentlicht von Ada Lovelace", "Ada Lovelace"),
        ("Author: Ada Lovelace", "Ada Lovelace"),
        ("Carl von Ossietzky", "Carl von Ossietzky"),
        ("Byron Lord", "Byron Lord"),
        ("Ada Lovelace <ada@a.test>", "Ada Lovelace"),
        ("Ada Lovelace (https://a.test/ada)", "Ada Lovelace"),
        ("Ada  \n Lovelace, ", "Ada Lovelace"),
        ("Ren&eacute; D&#39;Arc", "René D'Arc"),
        ("https://a.test/ada", None),
        ("ada@a.test", None),
        ("@ada", None),
        ("admin", None),
        ("Administrator", None),
        ("  ", None),
        ("12", None),
        ("x" * 300, None),
    ],
)
def test_authors_are_names_and_nothing_else(author: Any, names: str | None) -> None:
    assert read(article(author=author)).author == names


def test_authors_are_taken_from_the_first_place_that_names_some() -> None:
    declared = metas(author="admin", **{"dc.creator": "Ada Lovelace"})

    assert read(article(author="https://a.test/"), metas=declared).author == "Ada Lovelace"
    assert read(metas=[("citation_author", "A B"), ("citation_author", "C D")]).author == "A B; C D"
    assert read(bylines=["By Ada Lovelace"], metas=declared[:1]).author == "Ada Lovelace"


def test_the_site_is_the_author_only_if_there_is_no_other() -> None:
    node = article(author={"name": "The Site"}, publisher={"name": "The Site"})

    assert read(node).author == "The Site"
    assert read(node, bylines=["Ada Lovelace"]).author == "Ada Lovelace"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("By Ada Lovelace", "Ada Lovelace"),
        ("By Ada Lovelace | Jan 5, 2020", "Ada Lovelace"),
        ("von Ada Lovelace · 5. Januar 2020", "Ada Lovelace"),
        ("Ada LovelaceDecember 17, 2025", "Ada Lovelace"),
        ("Post by ada » 11. Sep 2024, 18:36", "ada"),
        ("Ada Lovelace, Senior Editor", "Ada Lovelace"),
        ("Alan says:", None),
        ("Name *", "Name"),
        (".css-1{color:red; width:1}", None),
        ("This is a whole sentence about someone else", None),
        ("", None),
    ],
)
def test_the_name_in_a_byline_is_found(line: str, name: str | None) -> None:
    found = read(bylines=[line])

    assert found.author == (name if name != "Name" else None)


def test_the_name_of_the_site_is_the_one_for_people() -> None:
    node = article(publisher={"name": "Publisher"})
    site = {"@type": "WebSite", "name": "WebSite"}
    names = {"og__site_name": "Open &amp; Graph", "application-name": "App"}

    assert read(node, site, metas=metas(**names)).site_name == "Open & Graph"
    assert read(node, site, metas=metas(**{"application-name": "App"})).site_name == "Publisher"
    assert read(site, metas=metas(**{"application-name": "App"})).site_name == "WebSite"
    assert read(metas=metas(**{"application-name": " App\n1 "})).site_name == "App 1"


@pytest.mark.parametrize(
    ("written", "image"),
    [
        ("https://b.test/i.png", "https://b.test/i.png"),
        ("/i.png", "https://a.test/i.png"),
        ("i.png", "https://a.test/base/i.png"),
        ("//b.test/i.png", "https://b.test/i.png"),
        (" /my picture.png ", "https://a.test/my%20picture.png"),
        ("data:image/png;base64,AAAA", None),
        ("javascript:alert(1)", None),
        ("http://", None),
        ("https://[b/i.png", "https://[b/i.png"),
        ("//[b/i.png", None),
        ("/" + "x" * 3000, None),
    ],
)
def test_the_image_is_an_address_of_the_web(written: str, image: str | None) -> None:
    assert read(metas=metas(og__image=written), base="/base/").image == image


@pytest.mark.parametrize(
    "image",
    [
        "https://a.test/i.png",
        ["https://a.test/i.png", "https://a.test/j.png"],
        {"@type": "ImageObject", "url": "https://a.test/i.png"},
        {"contentUrl": "https://a.test/i.png"},
        [{"url": ["https://a.test/i.png"]}],
    ],
)
def test_the_image_of_json_ld_is_read_in_every_shape(image: Any) -> None:
    assert read(article(image=image)).image == "https://a.test/i.png"
    assert read(article(image=image), metas=metas(og__image="/og.png")).image == "https://a.test/og.png"


@pytest.mark.parametrize(
    ("free", "paywalled"),
    [(False, True), ("False", True), ("false", True), ("http://schema.org/False", True), (True, False),
     ("True", False), (None, None), ("maybe", None), (0, None)],
)  # fmt: skip
def test_a_paywall_is_known_where_it_is_declared(free: Any, paywalled: bool | None) -> None:
    assert read(article(isAccessibleForFree=free)).paywalled is paywalled
    assert read({"@type": "WebPage", "isAccessibleForFree": free}).paywalled is paywalled


@pytest.mark.parametrize(
    ("tier", "paywalled"), [("free", False), ("metered", True), ("Locked", True), ("x", None)]
)
def test_the_content_tier_declares_a_paywall_too(tier: str, paywalled: bool | None) -> None:
    assert read(metas=metas(article__content_tier=tier)).paywalled is paywalled


def test_an_event_with_tickets_has_no_paywall() -> None:
    assert read({"@type": "Event", "name": "Title of it", "isAccessibleForFree": False}).paywalled is None


# Hostile pages.

LARGE = 200_000


@pytest.mark.parametrize(
    "head",
    [
        Head(json_ld=["[" * LARGE]),
        Head(json_ld=['{"@graph":' * (LARGE // 10) + "1" + "}" * (LARGE // 10)]),
        Head(json_ld=['{"mainEntity":' * 400 + "1" + "}" * 400]),
        Head(json_ld=["{" + " " * LARGE + "x"]),
        Head(json_ld=["}" + " " * LARGE + "x"]),
        Head(json_ld=["," + " " * LARGE + "x"]),
        Head(json_ld=["/*" + " " * LARGE + "x"]),
        Head(json_ld=["-->" + " " * LARGE + "x"]),
        Head(json_ld=["//" * (LARGE // 2)]),
        Head(json_ld=["\\" * LARGE]),
        Head(json_ld=["\\ud800" * (LARGE // 6)]),
        Head(json_ld=["&quot;" * (LARGE // 6)]),
        Head(json_ld=['{"@type": "Article", "datePublished": ' + "1" * 50_000 + "}"]),
        Head(json_ld=['[' + ",".join(['{"@type": "Article", "headline": "x"}'] * 5000) + "]"]),
        Head(json_ld=['{"@type": "Article"}'] * 50_000),
        Head(json_ld=["x" * 50_000_000]),
        Head(metas=[("author", f"Name {number}") for number in range(10_000)]),
        Head(metas=[("author", "a@" * 5000)] * 10_000),
        Head(metas=[("date", "1 " * 5000)] * 10_000),
        Head(metas=[("og:image", "//[")] * 10_000),
        Head(metas=[("og:site_name", " " * LARGE), ("og:title", "&" * LARGE), ("author", ";" * LARGE)]),
        Head(metas=[(f"name{number}", "x") for number in range(10_000)]),
        Head(times=[("1 Jan " * 30, "published")] * 10_000),
        Head(bylines=["By " + "A" * LARGE] * 10_000),
        Head(bylines=[" " * LARGE] * 10_000),
        Head(title="x " * LARGE, canonical="http://" + "/" * LARGE, json_ld=['{"@type": "Article"}']),
    ],
    ids=range(26),
)  # fmt: skip
def test_a_hostile_page_takes_little_time(head: Head) -> None:
    began_s = time.process_time()

    metadata_of(head, "https://a.test/" + "/2020" * 400, FETCHED_MS)

    assert time.process_time() - began_s < 0.5


def test_json_ld_behind_a_script_that_is_too_large_is_read() -> None:
    assert read("x" * 300_000, article(datePublished="2020-01-05")).published == DAY


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["Article", "2020-01-05", URL]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["@type", "@graph", "@id", "author", "name", "url", "image", "datePublished", "mainEntity"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(_json, st.text(), st.text())
def test_any_page_can_be_read(value: Any, text: str, url: str) -> None:
    names = ["author", "og:image", "og:site_name", "og:type", "date", "article:published_time"]

    found = metadata_of(
        Head(
            text,
            [(name, text) for name in names],
            text,
            text,
            text,
            [json.dumps(value), text],
            [(text, text)],
            [text],
        ),
        url,
        FETCHED_MS,
    )

    for moment in (found.published, found.modified):
        assert moment is None or moment.astimezone(timezone.utc)  # noqa: UP017
