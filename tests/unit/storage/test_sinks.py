"""What every format promises: the contract that each sink runs through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawlproj.config import Config
from crawlproj.model.records import Page
from crawlproj.storage.parquet import ParquetSink
from crawlproj.storage.reader import DAMAGE
from crawlproj.storage.row import COLUMNS, PageRow
from crawlproj.storage.sink import SINKS, Sink

if TYPE_CHECKING:
    from tests.unit.storage.conftest import MakePage

ROOT = Path(__file__).parents[3]
Store = Callable[..., Path]


@pytest.fixture(params=SINKS)
def kind(request: pytest.FixtureRequest) -> type[Sink]:
    return SINKS[request.param]


@pytest.fixture
def store(kind: type[Sink], tmp_path: Path) -> Store:
    """Writes a closed file of the given pages."""

    def store(*pages: tuple[PageRow, Page]) -> Path:
        path = tmp_path / f"p-000001{kind.suffix}"
        sink = kind(path)
        for row, page in pages:
            sink.append(row, page)
        sink.close()
        return path

    return store


def test_the_settings_offer_the_formats_there_are() -> None:
    choices = Config.__dataclass_fields__["page_store"].metadata["choices"]

    assert list(choices) == list(SINKS)


def test_a_row_comes_back_as_it_was(kind: type[Sink], store: Store, a_page: MakePage) -> None:
    row, page = a_page()

    [read] = kind.read(store((row, page)), COLUMNS)

    assert read == msgspec.structs.asdict(row)
    assert list(read) == list(COLUMNS)


_some_text = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
#: In milliseconds: 1800 to 2999.
_some_moment = st.none() | st.integers(-5_364_662_400_000, 32_472_144_000_000).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)
_headings = st.fixed_dictionaries({"level": st.integers(1, 6), "text": st.text("ab\n\0é")})
_texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                **dict.fromkeys(
                    ("title", "description", "text", "full_text", "error", "language"), _some_text
                ),
                **dict.fromkeys(("text_source", "author", "site_name", "kind", "image"), _some_text),
                **dict.fromkeys(("published", "modified"), _some_moment),
                "headings": st.none() | st.lists(_headings, max_size=3),
                "paywalled": st.none() | st.booleans(),
                "link_urls": st.none() | _texts,
                "fields": st.none() | st.dictionaries(st.text("ab\n\0é"), _texts, max_size=3),
                "simhash": st.none() | st.integers(-(2**63), 2**63 - 1),
                "status": st.integers(0, 999),
                "truncated": st.booleans(),
            }
        ),
        max_size=4,
    )
)
def test_any_row_comes_back_as_it_was(
    kind: type[Sink], a_page: MakePage, columns: list[dict[str, object]]
) -> None:
    pages = [a_page(**some) for some in columns]

    with TemporaryDirectory() as folder:
        sink = kind(Path(folder) / "file")
        for row, page in [a_page(), *pages]:
            sink.append(row, page)
        sink.close()
        [_, *read] = kind.read(Path(folder) / "file", COLUMNS)

    assert read == [msgspec.structs.asdict(row) for row, _ in pages]


#: What files lacked that were written before there was such a column.
YOUNG = (
    "text_source", "headings", "published", "modified", "author", "site_name", "kind", "image", "paywalled",
)  # fmt: skip


def test_a_file_from_before_the_columns_of_metadata_reads_as_none_there(kind: type[Sink]) -> None:
    [row] = kind.read(ROOT / f"tests/data/old_pages/before_metadata{kind.suffix}", COLUMNS)

    assert [row.pop(name) for name in YOUNG] == [None] * len(YOUNG)
    assert row["text"] == "old words"
    assert row["fetched_at"] == datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    assert row["fields"] == {"price": ["1 €"]}
    assert list(row) == [name for name in COLUMNS if name not in YOUNG]


def test_the_memory_of_rows_with_many_links_is_bounded(tmp_path: Path, a_page: MakePage) -> None:
    links = [f"http://a.test/{number:0100d}" for number in range(5000)]
    sink = ParquetSink(tmp_path / "file")

    for _ in range(20):
        sink.append(*a_page(link_urls=links))
    written = sink.bytes_written
    sink.abandon()

    assert written > 10_000


def test_a_failure_comes_back_with_nothing_in_its_empty_columns(
    kind: type[Sink], store: Store, a_failure: tuple[PageRow, Page]
) -> None:
    [read] = kind.read(store(a_failure), COLUMNS)

    assert read == msgspec.structs.asdict(a_failure[0])
    assert read["text"] is None


def test_a_text_that_is_empty_is_not_a_text_that_is_missing(
    kind: type[Sink], store: Store, a_page: MakePage
) -> None:
    path = store(a_page(text=""), a_page(text=None), a_page(text="", status=204))

    assert [row["text"] for row in kind.read(path, ["text"])] == ["", None, ""]


def test_thousands_of_rows_come_back_in_order(kind: type[Sink], store: Store, a_page: MakePage) -> None:
    pages = [a_page(f"http://a.test/{number}") for number in range(2500)]

    urls = [row["url"] for row in kind.read(store(*pages), ["url"])]

    assert urls == [row.url for row, _ in pages]


def test_only_the_columns_asked_for_come_in_their_order(
    kind: type[Sink], store: Store, a_page: MakePage
) -> None:
    [row] = kind.read(store(a_page()), ["text", "url", "fields"])

    assert list(row) == ["text", "url", "fields"]
    assert row["fields"] == {"price": ["1 €", "2 €"], "none": []}


def test_bytes_written_are_those_in_the_file(kind: type[Sink], tmp_path: Path, a_page: MakePage) -> None:
    path = tmp_path / "file"
    sink = kind(path)
    for number in range(1200):
        sink.append(*a_page(text=f"{number} " * 200))
    open_bytes, open_size = sink.bytes_written, path.stat().st_size
    sink.close()

    assert open_bytes == open_size > 0
    assert sink.bytes_written == path.stat().st_size >= open_bytes


def test_no_file_is_written_over(kind: type[Sink], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"mine")

    with pytest.raises(FileExistsError):
        kind(path)
    assert path.read_bytes() == b"mine"


def test_an_abandoned_file_gets_no_more_bytes(kind: type[Sink], tmp_path: Path, a_page: MakePage) -> None:
    path = tmp_path / "file"
    sink = kind(path)
    sink.append(*a_page())
    size = path.stat().st_size

    sink.abandon()
    sink.abandon()
    del sink

    assert path.stat().st_size == size


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_is_damaged(kind: type[Sink], store: Store, a_page: MakePage, keep: float) -> None:
    path = store(*(a_page(f"http://a.test/{number}") for number in range(100)))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])

    with pytest.raises(DAMAGE):
        list(kind.read(path, COLUMNS))


def test_a_flipped_bit_in_the_text_is_damage(kind: type[Sink], store: Store, a_page: MakePage) -> None:
    # Text that does not compress, so that most of the file is text.
    path = store(*(a_page(text=Random(number).randbytes(2000).hex()) for number in range(20)))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    path.write_bytes(damaged)

    with pytest.raises(DAMAGE):
        list(kind.read(path, COLUMNS))


def test_a_sink_without_room_says_so_and_can_be_let_go(kind: type[Sink], tmp_path: Path) -> None:
    # In a process of its own, whose files may not grow beyond 20,000 bytes.
    program = f"""
import errno, random, resource
from datetime import UTC, datetime, timedelta
from pathlib import Path
from crawlproj.model.records import Page
from crawlproj.storage.row import PageRow
from crawlproj.storage.sink import SINKS

[kind] = [kind for kind in SINKS.values() if kind.suffix == {kind.suffix!r}]
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sink = kind(Path({str(tmp_path / "file")!r}))
random = random.Random(1)
try:
    for number in range(3000):
        url, text = f"http://a.test/{{number}}", random.randbytes(500).hex()
        row = PageRow(url=url, final_url=url, domain="a.test", depth=0, status=200, latency_ms=0, shard=0,
                      attempt=1, fetched_at=datetime.now(UTC), text=text)
        sink.append(row, Page(url, "web", "a.test", 0, 200, 0, 0, body=text.encode()))
    sink.close()
except OSError as exc:
    assert exc.errno == errno.EFBIG, exc
    sink.abandon()
    print("abandoned")
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert (done.stdout, done.stderr) == ("abandoned\n", "")
    assert (tmp_path / "file").stat().st_size <= 20_000
