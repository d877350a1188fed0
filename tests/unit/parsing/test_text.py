from __future__ import annotations

import time

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawlproj.parsing.text import TextMode, page_text

SENTENCE = "The river rose in the night, and by the morning nobody in the village could cross it any more."
ARTICLE = "\n".join(f"{SENTENCE} Day {day}." for day in range(6))
PARAGRAPHS = "".join(f"<p>{line}</p>" for line in ARTICLE.splitlines())
TEASER = (
    "<p>A teaser of another story that is long enough to be read as a sentence, and then some more words.</p>"
)

both_modes = pytest.mark.parametrize("mode", ["fast", "article"])


def test_all_text_has_a_line_for_each_block_and_keeps_words_with_markup_inside_whole() -> None:
    tree = LexborHTMLParser(
        "<h1>Title</h1><div>one<div>two</div>th<b>re</b>e</div>four<br>five<ul><li>six<li>seven</ul>eight"
    )

    text = page_text(tree, "all")

    assert text == "Title\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight"


def test_all_text_has_what_main_text_leaves_out_too() -> None:
    tree = LexborHTMLParser(f'<nav><a href="/x">menu</a></nav>{PARAGRAPHS}<div class="share">Tweet</div>')

    text = page_text(tree, "all")

    assert text == f"menu\n{ARTICLE}\nTweet"


@pytest.mark.parametrize("mode", ["fast", "article", "all"])
def test_a_comment_does_not_end_a_line(mode: TextMode) -> None:
    tree = LexborHTMLParser(f"<div>{PARAGRAPHS}<p>{SENTENCE} No<!-- -->body<!-- 2 -->.</p></div>")

    text = page_text(tree, mode)

    assert text == f"{ARTICLE}\n{SENTENCE} Nobody."


@pytest.mark.parametrize("mode", ["fast", "article", "all"])
def test_white_space_is_folded_also_that_which_does_not_break(mode: TextMode) -> None:
    tree = LexborHTMLParser(
        f"<div>{PARAGRAPHS}<p>\r\n\t {SENTENCE} \n Nobody\xa0&nbsp;at\n\tall.\n</p></div>"
    )

    text = page_text(tree, mode)

    assert text == f"{ARTICLE}\n{SENTENCE} Nobody at all."


@pytest.mark.parametrize("unseen", ["script", "style", "noscript", "template"])
def test_all_text_leaves_out_what_is_not_seen(unseen: str) -> None:
    tree = LexborHTMLParser(f"<body><p>seen</p><{unseen}>hidden</{unseen}></body>")

    text = page_text(tree, "all")

    assert text == "seen"


@both_modes
@pytest.mark.parametrize(
    "around",
    [
        f"<nav>{TEASER}</nav>",
        f"<footer>{TEASER}</footer>",
        f'<div class="related-posts">{TEASER}</div>',
        f'<div id="comments"><div>{TEASER * 2}</div></div>',
        f'<div style="display: none">{TEASER}</div>',
        '<ul><li><a href="/a">A link to a page of this site</a><li><a href="/b">Another link to it</a></ul>',
        "<p>Advertisement</p>",
    ],
)
def test_main_text_is_the_article_alone(mode: TextMode, around: str) -> None:
    tree = LexborHTMLParser(f"<body>{around}<div><h1>A title</h1>{PARAGRAPHS}{around}</div>{around}</body>")

    text = page_text(tree, mode)

    assert text == ARTICLE


@both_modes
def test_a_name_is_not_believed_of_most_of_the_page(mode: TextMode) -> None:
    tree = LexborHTMLParser(
        f'<body><div class="sidebar"><div class="comment">{PARAGRAPHS}</div></div></body>'
    )

    text = page_text(tree, mode)

    assert text == ARTICLE


def test_an_article_in_several_blocks_is_whole() -> None:
    half = f"<div>{PARAGRAPHS}</div>"
    tree = LexborHTMLParser(f"<body><div>{half}{half}</div></body>")

    text = page_text(tree, "article")

    assert text == f"{ARTICLE}\n{ARTICLE}"


def test_the_introduction_in_front_of_an_article_belongs_to_it() -> None:
    tree = LexborHTMLParser(f"<article><header><p>{SENTENCE}</p></header><div>{PARAGRAPHS}</div></article>")

    text = page_text(tree, "article")

    assert text == f"{SENTENCE}\n{ARTICLE}"


def test_lines_of_one_paragraph_stay_lines() -> None:
    tree = LexborHTMLParser(f"<div>{PARAGRAPHS}<p>{SENTENCE}<br>{SENTENCE}</p></div>")

    text = page_text(tree, "article")

    assert text == f"{ARTICLE}\n{SENTENCE}\n{SENTENCE}"


@both_modes
@pytest.mark.parametrize(
    "html", ["", "<frameset><frame></frameset>", "<body></body>", "<p>\0</p>", "<svg><x/></svg>"]
)
def test_a_page_of_nothing_has_no_text(mode: TextMode, html: str) -> None:
    tree = LexborHTMLParser(html)

    text = page_text(tree, mode)

    assert text.strip("\0\ufffd") == ""


@both_modes
@pytest.mark.parametrize("nested", ["<div>", "<span>", "<ul><li>", "<div class=nav>", "<div class=nav><p>"])
def test_the_deepest_page_let_through_takes_little_time(mode: TextMode, nested: str) -> None:
    html = nested * 999 + SENTENCE
    tree = LexborHTMLParser(html)

    start_s = time.process_time()
    page_text(tree, mode)

    assert time.process_time() - start_s < 0.5


def test_fast_text_joins_what_stands_in_a_line_and_parts_what_blocks_part() -> None:
    line = (
        f'{SENTENCE} It <em>r</em>ose <a href="/x">again</a><img src="y">, <abbr title="z">all</abbr> said.'
    )
    tree = LexborHTMLParser(f"<div><p>{line}</p>{PARAGRAPHS}<p>One<br>two<i></i>.</p></div>")

    lines = page_text(tree, "fast").splitlines()

    assert lines[:2] == [f"{SENTENCE} It rose again", ", all said."]
    assert lines[-2:] == ["One", "two."]
