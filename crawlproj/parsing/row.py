"""A page and what was extracted from it, as a row of the page store."""

from __future__ import annotations

from datetime import UTC, datetime

from crawlproj.model.records import Page
from crawlproj.parsing.dates import in_utc
from crawlproj.parsing.extract import Extract
from crawlproj.storage.row import PageRow


def row_of(page: Page, found: Extract, *, store_links: bool) -> PageRow:
    return PageRow(
        url=page.url,
        final_url=page.url,
        redirected_from=page.redirected_from or None,
        canonical_url=found.canonical_url,
        domain=page.domain,
        depth=page.depth,
        status=page.status,
        fetched_at=datetime.fromtimestamp(page.fetched_at_ms / 1000, UTC),
        latency_ms=page.latency_ms,
        content_type=found.content_type,
        charset=found.charset,
        language=found.language,
        title=found.title,
        description=found.description,
        text=found.text,
        text_source=found.text_source,
        full_text=found.full_text,
        headings=found.headings,
        published=in_utc(found.metadata.published),
        modified=in_utc(found.metadata.modified),
        author=found.metadata.author,
        site_name=found.metadata.site_name,
        kind=found.metadata.kind,
        image=found.metadata.image,
        paywalled=found.metadata.paywalled,
        links=len(found.links),
        link_urls=found.links if store_links else None,
        body_bytes=found.body_bytes,
        truncated=found.truncated,
        content_hash=found.content_hash,
        simhash=found.simhash,
        shard=page.shard,
        attempt=page.attempt,
        error=page.error or found.error,
        fields=found.fields or None,
    )
