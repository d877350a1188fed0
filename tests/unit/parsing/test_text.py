"""The text of pages as people write them: whole, and without what is around it."""

from __future__ import annotations

import pytest

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.parsing.extract import ExtractOptions, extract
from crawlproj.parsing.html import read_html

SENTENCE = "The river rose in the night, and by the morning nobody in the village could cross it any more."
ARTICLE = "\n".join(f"{SENTENCE} Day {day}." for day in range(6))
PARAGRAPHS = "".join(f"<p>{line}</p>" for line in ARTICLE.splitlines())
TEASER = (
    "<p>A teaser of another story that is long enough to be read as a sentence, and then some more words.</p>"
)
RELATED = (
    '<div class="related-posts"><h3>Related posts</h3><ul>'
    + "".join(
        f"<li><a href=/{number}>Another story that you may like, number {number}</a>" for number in range(4)
    )
    + "</ul></div>"
)
COMMENTS = (
    '<section id="comments" class="comments-area"><h2>2 Comments</h2><ol class="comment-list">'
    f'<li class="comment"><p>{SENTENCE} I was there.</p>'
    '<li class="comment"><p>A great story, thanks for it!</p></ol></section>'
)

both_modes = pytest.mark.parametrize("mode", ["main", "all"])


def page_text(markup: str, mode: str = "main") -> str:
    return read_html(markup.encode(), Config(text=mode)).text


def test_all_text_has_a_line_for_each_block_and_keeps_words_with_markup_inside_whole() -> None:
    text = page_text(
        "<h1>Title</h1><div>one<div>two</div>th<b>re</b>e</div>four<br>five<ul><li>six<li>seven</ul>eight",
        "all",
    )

    assert text == "Title\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight"


def test_all_text_has_what_main_text_leaves_out_too() -> None:
    text = page_text(f'<nav><a href="/x">menu</a></nav>{PARAGRAPHS}<div class="share">Tweet</div>', "all")

    assert text == f"menu\n{ARTICLE}\nTweet"


@both_modes
def test_a_comment_does_not_end_a_line(mode: str) -> None:
    text = page_text(f"<div>{PARAGRAPHS}<p>{SENTENCE} No<!-- -->body<!-- 2 -->.</p></div>", mode)

    assert text == f"{ARTICLE}\n{SENTENCE} Nobody."


@both_modes
def test_white_space_is_folded_also_that_which_does_not_break(mode: str) -> None:
    text = page_text(f"<div>{PARAGRAPHS}<p>\r\n\t {SENTENCE} \n Nobody\xa0&nbsp;at\n\tall.\n</p></div>", mode)

    assert text == f"{ARTICLE}\n{SENTENCE} Nobody at all."


@both_modes
def test_what_stands_in_a_line_stays_in_it(mode: str) -> None:
    line = (
        f'{SENTENCE} It <em>r</em>ose <a href="/x">again</a><img src="y">, <abbr title="z">all</abbr> said.'
    )

    text = page_text(f"<div><p>{line}</p>{PARAGRAPHS}</div>", mode)

    assert text == f"{SENTENCE} It rose again, all said.\n{ARTICLE}"


@pytest.mark.parametrize("unseen", ["script", "style", "noscript", "template"])
def test_all_text_leaves_out_what_is_not_seen(unseen: str) -> None:
    text = page_text(f"<body><p>seen</p><{unseen}>hidden</{unseen}></body>", "all")

    assert text == "seen"


@pytest.mark.parametrize(
    "around",
    [
        f"<nav>{TEASER}</nav>",
        f"<footer>{TEASER}</footer>",
        RELATED,
        COMMENTS,
        f'<div style="display: none">{TEASER}</div>',
        '<ul><li><a href="/a">A link to a page of this site</a><li><a href="/b">Another link to it</a></ul>',
        '<div class="share-buttons"><a href="/t">Share</a> <a href="/m">Mail</a></div>',
    ],
)
def test_main_text_is_the_article_without_what_is_around_it(around: str) -> None:
    text = page_text(f"<body>{around}<div><h1>A title</h1>{PARAGRAPHS}{around}</div>{around}</body>")

    # It may begin with the title.
    assert text.removeprefix("A title\n") == ARTICLE


def test_a_name_is_not_believed_of_most_of_the_page() -> None:
    text = page_text(f'<body><div class="sidebar"><div class="comment">{PARAGRAPHS}</div></div></body>')

    assert text == ARTICLE


def test_an_article_in_several_blocks_is_whole() -> None:
    half = f"<div>{PARAGRAPHS}</div>"

    text = page_text(f"<body><div>{half}{half}</div></body>")

    assert text == f"{ARTICLE}\n{ARTICLE}"


def test_the_introduction_in_front_of_an_article_belongs_to_it() -> None:
    text = page_text(f"<article><header><p>{SENTENCE}</p></header><div>{PARAGRAPHS}</div></article>")

    assert text == f"{SENTENCE}\n{ARTICLE}"


def test_lines_of_one_paragraph_stay_lines() -> None:
    text = page_text(f"<div>{PARAGRAPHS}<p>{SENTENCE}<br>{SENTENCE}</p></div>")

    assert text == f"{ARTICLE}\n{SENTENCE}\n{SENTENCE}"


@both_modes
@pytest.mark.parametrize(
    "html", ["", "<frameset><frame></frameset>", "<body></body>", "<p>\0</p>", "<svg><x/></svg>"]
)
def test_a_page_of_nothing_has_no_text(mode: str, html: str) -> None:
    assert page_text(html, mode) == ""


# -- where the text is from, for pages that hardly have any

JSON_LD = '<script type="application/ld+json">{"@type": "NewsArticle", "articleBody": "The body."}</script>'
DESCRIPTION = '<meta name=description content="The description.">'
NOSCRIPT = "<noscript>No scripts.</noscript>"


@pytest.mark.parametrize(
    ("body", "text", "source"),
    [
        (f"{DESCRIPTION}{JSON_LD}{NOSCRIPT}<article>{PARAGRAPHS}</article>", ARTICLE, "main"),
        (f"{DESCRIPTION}{JSON_LD}{NOSCRIPT}<div id=app></div>", "No scripts.", "noscript"),
        (f"{DESCRIPTION}{JSON_LD}<div id=app></div>", "The body.", "json-ld"),
        (f"{DESCRIPTION}<div id=app></div>", "The description.", "description"),
        ("<div id=app></div>", "", None),
    ],
)
def test_the_text_is_taken_from_the_best_place_that_has_one(body: str, text: str, source: str | None) -> None:
    page = Page("http://a.test/", "web", "a.test", 0, 200, 0, 0, {"Content-Type": "text/html"}, body.encode())

    found = extract(page, ExtractOptions(Config()))

    assert (found.text, found.text_source) == (text, source)


@pytest.mark.parametrize(
    ("body", "sources"),
    [
        # Too little to be sure of, and still all that there is.
        ("<select><option>a<option>b</select>", {"relaxed", "all"}),
        ("<footer><a href=/>x</a> | <a href=/>y</a></footer>", {"relaxed", "all"}),
    ],
)
def test_a_page_of_nothing_but_menus_has_their_text(body: str, sources: set[str]) -> None:
    found = read_html(body.encode(), Config(full_text=True))

    assert found.text_source in sources
    assert found.text
    assert set(found.text.split()) <= set((found.full_text or "").split())
