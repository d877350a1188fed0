"""The steps between a lease and a published segment, by name: tests kill a process at each of them.

A step that talks to Redis is passed when its answer has arrived. Nothing in a crawl sets a watcher.
"""

from __future__ import annotations

from collections.abc import Callable

#: Where a shard can die.
SHARD_POINTS = {
    "shard_claimed": "The shard number is claimed.",
    "partition_acquired": "A partition is acquired, and the leases of its last owner are back in the queue.",
    "leased": "URLs are leased, in Redis but not in memory yet.",
    "handed_out": "A lease is handed out to be fetched.",
    "request_sent": "A request is written to its connection.",
    "response_received": "A response has arrived.",
    "rested": "The domain of a fetched URL rests, in memory only.",
    "robots_learnt": "The rules of a robots.txt are known, in memory only.",
    "robots_published": "They are in Redis.",
    "settlement_queued": "The settlement of a lease, with its page, waits for the feed.",
    "candidates_admitted": "Candidates are admitted: redirects of a shard, links of a parser.",
    "settled": "Leases are closed and their pages queued.",
    "parked": "Domains in trouble are parked.",
    "partitions_released": "Partitions are released.",
    "shard_dropped": "The shard number is free again.",
}
#: Where a parser can die.
PARSER_POINTS = {
    "pages_taken": "A batch of pages is on the parser's own list.",
    "page_extracted": "A page is parsed.",
    "candidates_admitted": SHARD_POINTS["candidates_admitted"],
    "row_appended": "A page is in the open segment.",
    "page_failed": "A page that cannot be parsed is back in the queue, or a dead letter.",
    "commit_begun": "The open segment is about to be committed.",
    "file_closed": "One file of the segment is complete and flushed, once per sink.",
    "file_uploaded": "One file of the segment is in the store, under a key that no reader lists.",
    "files_synced": "All its files are durable, and their names.",
    "segment_recorded": "The segment is recorded and its pages are acknowledged.",
    "file_renamed": "One file has its final name, once per sink.",
    "file_copied": "One file has its final key in the store, and still the other one.",
    "segment_published": "All files have, and that is flushed.",
    "pages_reclaimed": "The pages of a parser that died or leaves are back in the queue.",
    "file_recovered": "A file that a dead parser left is finished or removed.",
    "object_recovered": "The same in the store.",
}
#: Where a process that merges segments can die.
MERGE_POINTS = {
    "merge_built": "The files of a merged segment are complete and flushed, where no reader looks.",
    "merge_noted": "What it replaces is noted beside them.",
    "segments_merged": "It is recorded, and what it replaces is not any more.",
    "merge_published": "Its files have their final names.",
    "replaced_moved": "What it replaces is where only readers that have begun look.",
    "replaced_dropped": "What was replaced long ago is deleted.",
}
#: Where the leader of a run can die.
LEADER_POINTS = {
    "lead_taken": "The process leads the run.",
    "counters_read": "The counters that decide about the end are read.",
    "commit_asked": "Parsers are asked to commit their last segments.",
    "run_ended": "The run is recorded as ended.",
}

#: Called with every point that is passed, if a test has set it.
watcher: Callable[[str], None] | None = None


def passed(point: str) -> None:
    if watcher is not None:
        watcher(point)
