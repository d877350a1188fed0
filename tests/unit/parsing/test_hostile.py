"""Pages made to harm a parser: each is read in a process of its own, with little memory and little time."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import brotli
import pytest
import zstandard

ROOT = Path(__file__).parents[3]
CPU_S = 2
#: On top of what the process has before it reads the page.
MEMORY_BYTES = 300_000_000

#: Reads a task a line, each in a fork of its own: starting Python would take longer than all the reading.
READER = """
import base64, gzip, json, os, resource, sys, time
from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.parsing.extract import ExtractOptions, extract

def read(task):
    body = eval(task["body"])
    page = Page("http://a.test/dir/page", "web", "a.test", 0, 200, 0, 0, task["headers"], body)
    page.sitemap_level = task["sitemap_level"]
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + task["memory"],) * 2)
    began = time.process_time()
    found = extract(page, ExtractOptions(Config(**{"max_body": 1_000_000, **task["options"]})))
    cpu_s = time.process_time() - began
    return {
        "cpu_s": cpu_s, "links": found.links[:10], "count": len(found.links),
        "text": (found.text or "")[:200], "truncated": found.truncated, "charset": found.charset,
        "bytes": found.body_bytes, "title": found.title,
    }

for line in sys.stdin:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            answer = read(json.loads(line))
        except BaseException as exc:
            answer = {"error": type(exc).__name__}
        print(json.dumps(answer), flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        print(json.dumps({"error": f"ended with {status}"}), flush=True)
"""


class Read(Protocol):
    def __call__(
        self,
        body: str,
        headers: dict[str, str] | None = None,
        *,
        memory: int = MEMORY_BYTES,
        sitemap_level: int = 0,
        **options: object,
    ) -> dict[str, object]: ...


@pytest.fixture(scope="module")
def read() -> Iterator[Read]:
    """Return what reads the body that a Python expression makes, within the limits, in another process."""
    reader = subprocess.Popen(
        [sys.executable, "-c", READER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    tasks, answers = reader.stdin, reader.stdout

    def read(
        body: str,
        headers: dict[str, str] | None = None,
        *,
        memory: int = MEMORY_BYTES,
        sitemap_level: int = 0,
        **options: object,
    ) -> dict[str, object]:
        sent = {"Content-Type": "text/html", **(headers or {})}
        task = {"body": body, "headers": sent, "options": options, "memory": memory}
        task["sitemap_level"] = sitemap_level
        print(json.dumps(task), file=tasks, flush=True)
        answer: dict[str, object] = json.loads(answers.readline())
        assert "error" not in answer, answer["error"]
        cpu_s = answer["cpu_s"]
        assert isinstance(cpu_s, float)
        assert cpu_s < CPU_S
        return answer

    yield read
    tasks.close()
    answers.close()
    reader.wait()


END = "b'<a href=/found>the end</a>'"


@pytest.mark.parametrize(
    "expression",
    [
        "b'<div>' * 100_000",
        "b'<div><p>' * 60_000 + b'</p>' * 50_000",
        "b'<div></x>' * 90_000",
        "b'<ul><li>' * 60_000",
        "b'<section><b>' * 60_000",
        "b'<b><i><u>x</b>' * 60_000",
        "b'<table><tr><td>' * 50_000",
        "b'<svg><g>' * 60_000",
        "b'<template>' * 60_000",
        "b'<a href=x><div>' * 50_000",
        "b'<div ' + b' '.join(b'a%d=1' % n for n in range(90_000)) + b'>'",
        "b'<div/' + b'/'.join(b'a%d' % n for n in range(110_000)) + b'>'",
        "b'<div ' + b' '.join(b'a%d=\">\"' % n for n in range(80_000)) + b'>'",
        "(b'<div ' + b' '.join(b'a%d' % n for n in range(900)) + b'>') * 150",
        "b'<p>' + b'&amp;' * 150_000",
        "b'<!--' * 200_000 + b'-->'",
        "b'<' * 900_000 + b'>'",
        "b'<a href=\"' + b'x' * 900_000 + b'\">'",
        "b'<meta name=robots content=x>' * 30_000",
        "b'<title>' * 100_000 + b'</title>'",
        "b'<select><option>' * 50_000 + b'</select>'",
        "b'<svg>' + b'<a>' * 300_000",
        "b'<svg>' + b'<a>y' * 200_000",
        "b'<svg><noscript><title>' * 150 + b'x' * 900_000",
        "b'</p>' * 220_000",
        "b'<p>x' * 220_000",
        "b'<p>' * 300_000",
        "b'<table>' * 120_000",
        "b'<table><a href=x>' * 50_000",
        "b'<a href=x>' * 90_000",
        "b'&' * 900_000",
        "b'<x-y>' * 512 + b'</x-z>' * 140_000",
        "b'<p>' + b'<object>' * 511 + b'</p>' * 200_000",
        "b'<div>' * 510 + b'<p>x' * 200_000",
        "b''.join(b'<p class=c%d>%d' % (n, n) for n in range(45_000))",
        "b'<style></styl' * 60_000 + b'</style>'",
        "b'<script><!--<script>' * 40_000 + b'--></script>'",
        "b'<svg><![CDATA[' + b']]' * 400_000 + b']]>'",
        "b'<pre>' + b' \\n' * 400_000",
        "b'<div style=\"' + b'display ' * 100_000 + b'\">x'",
    ],
)
def test_a_page_of_nothing_but_tags_is_read_in_time_and_what_follows_is_found(
    read: Read, expression: str
) -> None:
    found = read(f"{expression} + {END}")

    assert isinstance(found["links"], list)
    # A template is a document of its own.
    expected = [] if "template" in expression else ["http://a.test/found"]
    assert [link for link in found["links"] if link != "http://a.test/dir/x"] == expected


@pytest.mark.parametrize(
    "expression",
    [
        "b'<a href=\"' * 200_000",
        "b'<svg><noscript><title>' * 80_000",
        "b'<plaintext>' * 150_000",
        "b'<!--<script>' * 150_000",
        "b'\\0' * 1_900_000",
        "bytes(range(256)) * 7_000",
        "b'<textarea>' * 150_000",
        "b'<frameset><frame src=x>' * 80_000",
    ],
)
def test_a_page_without_an_end_is_read_in_time(read: Read, expression: str) -> None:
    found = read(expression, max_body=2_000_000)

    assert found["bytes"] == len(eval(expression))


def test_links_and_text_of_a_page_nested_too_deep_are_found(read: Read) -> None:
    body = "b'<title>T</title>' + b'<div>' * 100_000 + b'some words' + b'</div>' * 1000 + " + END

    found = read(body, text="all")

    assert (found["links"], found["title"]) == (["http://a.test/found"], "T")
    assert "some words" in str(found["text"])


@pytest.mark.parametrize("name", ["nGt", "nLt"])
def test_a_character_longer_than_its_name_does_not_burst_the_buffer_of_the_parser(
    read: Read, name: str
) -> None:
    found = read(f"b'<p>' + b'x' * 16_379 + b'&{name};' + b'A' * 300_000 + " + END)

    assert found["links"] == ["http://a.test/found"]


def test_links_behind_a_million_attributes_are_found(read: Read) -> None:
    body = "b'<div ' + b' '.join(b'%d' % n for n in range(1_000_000)) + b'>some words' + " + END

    found = read(body, max_body=20_000_000)

    assert found["links"] == ["http://a.test/found"]


def test_fifty_megabytes_of_one_line_are_cut(read: Read) -> None:
    found = read("b'word ' * 10_000_000")

    assert (found["bytes"], found["truncated"]) == (1_000_000, True)


def test_a_zip_bomb_is_cut(read: Read) -> None:
    found = read("gzip.compress(b'<p>word ' + b' ' * 30_000_000)", {"Content-Encoding": "gzip"})

    assert (found["bytes"], found["truncated"], found["text"]) == (1_000_000, True, "word")


def zlib_bomb(wbits: int) -> bytes:
    """Return 100 KB that inflate to 80 MB: one part that can be repeated, as it refers to nothing before."""
    stream = zlib.compressobj(9, wbits=wbits)
    head = stream.compress(b"<p>word ") + stream.flush(zlib.Z_FULL_FLUSH)
    part = stream.compress(b" " * 1_000_000) + stream.flush(zlib.Z_FULL_FLUSH)
    return (head + part * 100)[:WIRE_BYTES]


def brotli_bomb() -> bytes:
    stream = brotli.Compressor(quality=9)
    head: bytes = stream.process(b"<p>word ") + stream.flush()
    head += stream.process(b" " * 8_000_000) + stream.flush()
    part: bytes = stream.process(b" " * 8_000_000) + stream.flush()
    return (head + part * 10_000)[:WIRE_BYTES]


def zstd_bomb() -> bytes:
    """Return a frame of blocks that say "this byte, 128 KiB times", four bytes each: 3 GB."""
    raw, repeated = 0 << 1, 1 << 1
    head = b"\x28\xb5\x2f\xfd\x00\x38" + (8 << 3 | raw).to_bytes(3, "little") + b"<p>word "
    block = ((128 << 10) << 3 | repeated).to_bytes(3, "little") + b" "
    return (head + block * WIRE_BYTES)[:WIRE_BYTES]


#: What a shard reads of a body by default, and so the most that a bomb has.
WIRE_BYTES = 100_000
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: zlib_bomb(31),
    "deflate": lambda: zlib_bomb(15),
    "br": brotli_bomb,
    "zstd": zstd_bomb,
    "gzip, gzip": lambda: gzip.compress(zlib_bomb(31)),
    "br, zstd": lambda: zstandard.ZstdCompressor().compress(brotli_bomb()),
    "zstd, br": lambda: brotli.compress(zstd_bomb(), quality=5),
    "deflate, gzip, br, zstd": lambda: zstandard.compress(
        brotli.compress(gzip.compress(zlib_bomb(15)), quality=5)
    ),
}


@pytest.mark.parametrize("encoding", BOMBS)
def test_a_bomb_of_any_coding_is_cut_within_little_memory_and_time(read: Read, encoding: str) -> None:
    body = f"base64.b64decode({base64.b64encode(BOMBS[encoding]())!r})"

    found = read(body, {"Content-Encoding": encoding}, memory=64 << 20, max_body=WIRE_BYTES)

    assert (found["bytes"], found["truncated"], found["text"]) == (WIRE_BYTES, True, "word")


@pytest.mark.parametrize(
    ("encoding", "expression"),
    [
        ("gzip", "gzip.compress(b'') * 5_000"),
        ("zstd", "b'\\x28\\xb5\\x2f\\xfd\\x20\\x00\\x01\\x00\\x00' * 11_000"),
        ("zstd", "(b'\\x50\\x2a\\x4d\\x18' + bytes(4)) * 12_500"),
        ("br", "b'\\x3b' + b'\\x06' * 99_999"),
        ("gzip, gzip", "gzip.compress(gzip.compress(b'') * 1_000_000)"),
    ],
)
def test_a_body_of_nothing_takes_little_time(read: Read, encoding: str, expression: str) -> None:
    found = read(expression, {"Content-Encoding": encoding}, memory=64 << 20, max_body=WIRE_BYTES)

    assert found["bytes"] == 0


def test_a_million_links_are_cut_and_it_is_said(read: Read) -> None:
    found = read(
        "b''.join(b'<a href=/%d>%d</a>' % (n, n) for n in range(1_000_000))",
        max_body=1_000_000,
        max_links=5000,
    )

    assert (found["count"], found["truncated"]) == (5000, True)


def test_a_long_base_does_not_make_long_links(read: Read) -> None:
    found = read(
        "b'<base href=\"/' + b'x' * 500_000 + b'/\">' + b''.join(b'<a href=%d>' % n for n in range(5000))"
    )

    assert found["links"] == [f"http://a.test/dir/{n}" for n in range(10)]


@pytest.mark.parametrize(
    "expression",
    [
        "b'<urlset>' + b'<loc>' * 1_000_000",
        "b'<urlset>' + b'<loc>http://a.test/</loc>' * 200_000",
        "b'<urlset><loc>' + b' ' * 5_000_000",
        "b'<urlset><loc' + b' ' * 5_000_000",
        "b'<urlset>' + b'<loc ' * 1_000_000",
        "b'<urlset>' + b'<loc><![CDATA[' * 300_000",
        "b'<urlset><loc>http://a.test/' + b'&amp;' * 2_500_000 + b'</loc>'",
        "b'<urlset>' + b'<!--' * 1_200_000",
        "b'<urlset>' + b'<!---->' * 700_000",
        "b'<' + b'a' * 5_000_000",
        "b'<' * 5_000_000",
        "b'<feed >' + b'<link ' * 800_000",
        "b'<feed ><link' + b\" href='\" * 700_000 + b'>'",
        "b'<feed ><link' + b' href ' * 800_000 + b'>'",
        "b'<feed ><link href' + b' ' * 5_000_000 + b'>'",
        "b'http://' * 700_000",
        "b'x' + b'\\n ' * 2_500_000",
        "b'x\\n' + b' ' * 5_000_000",
        "gzip.compress(bytes(100_000_000))",
        "b'<!DOCTYPE x [' + b'<!ENTITY a \"&a;&a;\">' * 200_000 + b']><urlset><loc>&a;</loc>'",
    ],
)
def test_a_sitemap_made_to_take_forever_is_read_in_time(read: Read, expression: str) -> None:
    found = read(expression, sitemap_level=1, sitemap_bytes=15_000_000, sitemap_urls=50_000)

    assert (found["text"], found["title"]) == ("", None)


def test_a_sitemap_of_the_largest_size_is_read_in_time(read: Read) -> None:
    entry = "<url><loc>https://www.a.test/section/%d/some-title?id=%d&amp;x=1</loc></url>"
    body = f"b'<urlset>' + b''.join(b'{entry}' % (n % 97, n) for n in range(50_000)) + b' ' * 40_000_000"

    found = read(f"gzip.compress({body}, 1)", sitemap_level=1)

    assert found["count"] == 50_000


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("javascript:alert(1)//", "http://a.test/dir/x"),
        ("data:text/html,/", "http://a.test/dir/x"),
        ("//evil.test", "http://evil.test/x"),
        ("\\\\\\\\evil.test\\\\y\\\\", "http://evil.test/y/x"),
        (" h\\tttp://b.test/ ", "http://b.test/x"),
        ("http://", "http://a.test/dir/x"),
        ("", "http://a.test/dir/x"),
    ],
)
def test_only_the_first_base_counts_and_only_one_of_the_web(read: Read, base: str, link: str) -> None:
    body = f'b\'<a href="x">1</a><base href="{base}"><base href="http://late.test/">\''

    found = read(body)

    assert found["links"] == [link if base else "http://late.test/x"]


def test_links_that_are_not_of_the_web_are_none(read: Read) -> None:
    hrefs = [
        "javascript:x",
        " JaVaScRiPt:x",
        "java\\nscript:x",
        "data:text/html,x",
        "mailto:a@b",
        "blob:x",
        "\\x01javascript:x",
    ]
    body = "".join(f'<a href="{href}">x</a>' for href in hrefs)

    assert read(f"b'{body}' + {END}")["links"] == ["http://a.test/found"]


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("b'<p>a\\xff\\xc3(b\\x00c</p>'", "windows-1252", "aÿÃ(bc"),
        ("b'<p>w\\x00or\\x00\\x00d</p>'", "utf-8", "word"),
        ("'<p>wörd ☃</p>'.encode('utf-16-le')", "utf-16le", "wörd ☃"),
        ("'<p>wörd ☃</p>'.encode('utf-16-be')", "utf-16be", "wörd ☃"),
        ("b'\\xff\\xfe' + '<p>word'.encode('utf-16-le') + b'\\x00\\xd8'", "utf-16le", "word\ufffd"),
    ],
)
def test_bytes_that_are_not_text_are_read_as_far_as_they_are(
    read: Read, body: str, charset: str, text: str
) -> None:
    found = read(body)

    assert (found["charset"], found["text"]) == (charset, text)


def test_the_limits_of_these_tests_are_real(read: Read) -> None:
    with pytest.raises(AssertionError, match="MemoryError"):
        read("b'x' * 200_000_000", {"Content-Type": "text/plain; charset=koi8-r"}, max_body=200_000_000)
