"""``python -m tests.chaos``: one tormented run, judged. Where a promise broke, its files are kept."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from crawlproj.simweb.process import SimwebProcess
from tests.chaos import disks, offspring
from tests.chaos.crawl import Crawl, world_of
from tests.chaos.proxy import Proxy
from tests.chaos.redis import RedisUnderTest
from tests.chaos.schedule import Fault, Kind, draw
from tests.chaos.tormentor import Tormentor
from tests.chaos.verdict import Judgement, judge

_PAGES_PER_FAULT = 350
_SHOW_EVERY_S = 5.0
#: A crawl that fetches and stores nothing for this long hangs.
_STALLED_S = 75.0


def main() -> int:
    options = _options(sys.argv[1:])
    disks.enter_own_mounts("tests.chaos", sys.argv[1:])
    offspring.adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{options.seed}-"))
    # A schedule that is drawn may not depend on this machine, so what it cannot do is left out afterwards.
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: sys.exit(130))
    run = Chaos(options, folder)
    try:
        is_ok = asyncio.run(run.run())
    except KeyboardInterrupt:
        print(f"interrupted; see {folder}")
        return 130
    finally:
        offspring.end_all()
        run.keep_files()
    if is_ok:
        shutil.rmtree(folder)
        return 0
    seed = [] if "--seed" in sys.argv else ["--seed", str(options.seed)]
    print(f"to reproduce: python -m tests.chaos {' '.join([*sys.argv[1:], *seed])}")
    print(f"its files: {folder}")
    return 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=int, default=20_000, help="about so many pages")
    parser.add_argument("--faults", type=int, help=f"how many (default: one in {_PAGES_PER_FAULT} pages)")
    parser.add_argument("--set-backs", type=int, metavar="N", help="exactly so many of them are set-backs")
    parser.add_argument(
        "--only", type=_kinds, default=set(Kind), metavar="KINDS", help=f"of {','.join(Kind)}"
    )
    parser.add_argument("--without", type=_kinds, default=set(), metavar="KINDS", help="all but these")
    parser.add_argument("--seconds", type=float, default=1800.0, help="the run must end within so long")
    parser.add_argument(
        "--sin", choices=("lose", "double"), help="spoil the store before it is judged, which must be noticed"
    )
    return parser.parse_args(arguments)


def _kinds(text: str) -> set[Kind]:
    try:
        return {Kind(word) for word in text.split(",")}
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"{exc}; the kinds are {', '.join(Kind)}") from exc


class Chaos:
    """A run with everything it needs in *folder*."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._began_s = time.monotonic()
        self._log = (folder / "chaos.log").open("w")
        self._data, self._redis_folder = folder / "data", folder / "redis"
        for disk in (self._data, self._redis_folder):
            disk.mkdir()
            if disks.can_mount():
                disks.mount(disk)

    async def run(self) -> bool:
        controls = self._folder / "controls"
        controls.mkdir()
        shim = self._compile()
        faults = self._draw(has_shim=shim is not None)
        spec = world_of(self._options.seed, self._options.pages)
        redis = RedisUnderTest(self._redis_folder, shim, controls / "redis")
        proxy = Proxy(redis.socket)
        with SimwebProcess(spec, self._folder) as simweb:
            await redis.start()
            port = await proxy.start()
            environment = {"LD_PRELOAD": str(shim), "CHAOS_CONTROL": f"{controls}/%d"} if shim else {}
            crawl = Crawl(self._folder, self._data, simweb, f"redis://127.0.0.1:{port}/0", environment)
            tormentor = Tormentor(crawl, redis, proxy, self._redis_folder, self._say)
            watching = asyncio.create_task(redis.watch())
            began_ms, self._began_s = time.time() * 1000, time.monotonic()
            crawl.start()
            try:
                ended = await self._torment(crawl, redis, tormentor, faults)
            finally:
                watching.cancel()
                await redis.close()
                await proxy.close()
            self._spoil(crawl.paths.pages)
            self._print("judging")
            judgement = judge(simweb.referee(), crawl.paths.pages, began_ms)
        judgement.violations |= ended
        self._report(tormentor, judgement)
        return judgement.is_ok

    async def _torment(
        self, crawl: Crawl, redis: RedisUnderTest, tormentor: Tormentor, faults: Sequence[Fault]
    ) -> dict[str, list[str]]:
        """Run the crawl to its end, or until it hangs; returns what was wrong with its end."""
        supervising = asyncio.create_task(crawl.supervise())
        tormenting = asyncio.create_task(tormentor.torment(faults))
        shown_s = moved_s = time.monotonic()
        before = (0, 0)
        last_fault_s: float | None = None
        while not supervising.done():
            await asyncio.sleep(0.1)
            now_s = time.monotonic()
            if not crawl.requests:
                redis.floor_s = now_s + 1
            now = (crawl.read_progress(), _files(crawl.paths.pages))
            if now != before:
                before, moved_s = now, now_s
            if tormenting.done() and last_fault_s is None:
                last_fault_s = now_s
            if now_s - shown_s > _SHOW_EVERY_S:
                shown_s = now_s
                self._print(f"{crawl.requests:,} requests, {tormentor.done.total()} of {len(faults)} faults")
            is_stalled = last_fault_s is not None and now_s - max(moved_s, last_fault_s) > _STALLED_S
            if is_stalled or now_s - self._began_s > self._options.seconds:
                break
        state = supervising.result() if supervising.done() else "still running"
        for task in (supervising, tormenting):
            task.cancel()
        await asyncio.gather(supervising, tormenting, return_exceptions=True)
        after_s = time.monotonic() - last_fault_s if last_fault_s is not None else 0.0
        self._print(f"{state}, {after_s:.1f} s after the last fault")
        left = crawl.left_behind() if state == "finished" else []
        return {
            "not ended": [] if state == "finished" else [state],
            "gave up": crawl.gave_up,
            "left behind": [f"process {pid}" for pid in left],
        }

    def _draw(self, *, has_shim: bool) -> list[Fault]:
        options = self._options
        count = options.faults or max(5, options.pages // _PAGES_PER_FAULT)
        kinds = options.only - options.without
        faults = draw(options.seed, kinds, options.pages, count, options.set_backs)
        left_out = [fault for fault in faults if not _is_possible(fault, has_shim=has_shim)]
        if left_out:
            self._print(f"left out, for want of a C compiler or of root: {', '.join(map(str, left_out))}")
        faults = [fault for fault in faults if fault not in left_out]
        self._print(f"seed {options.seed}: {len(faults)} faults")
        for fault in faults:
            print(f"  at {fault.at_pages:>7,} requests: {fault}", file=self._log)
        return faults

    def _compile(self) -> Path | None:
        source, shim = Path(__file__).with_name("shim.c"), self._folder / "shim.so"
        if shutil.which("cc") is None:
            return None
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl", "-lpthread"], check=True
        )
        return shim

    def _spoil(self, pages: Path) -> None:
        """Commit a sin of which the verdict must speak."""
        if self._options.sin is None:
            return
        segment = max(pages.glob("*.parquet"), key=lambda file: file.stat().st_size)
        if self._options.sin == "lose":
            segment.unlink()
        else:
            shutil.copy(segment, segment.with_name("0" + segment.name))

    def _report(self, tormentor: Tormentor, judgement: Judgement) -> None:
        kinds = "  ".join(f"{kind} {tormentor.done[kind]}" for kind in Kind if tormentor.done[kind])
        self._print(f"faults: {kinds}")
        if tormentor.set_back:
            lost = sum(count > 0 for count in tormentor.set_back)
            self._print(f"set-backs that lost writes: {lost} of {len(tormentor.set_back)}")
        for error in tormentor.errors:
            self._print(f"not carried out: {error}")
        self._print(judgement.report())
        self._print("no violations" if judgement.is_ok else "VIOLATIONS")

    def keep_files(self) -> None:
        """Copy what is on the small disks, which end with this process, beside them."""
        self._log.close()
        if disks.can_mount():
            for disk in (self._data, self._redis_folder):
                disks.unfill(disk)
                kept = disk.with_name(f"{disk.name}-kept")
                shutil.copytree(disk, kept, ignore=shutil.ignore_patterns("*.sock"))
                subprocess.run(["umount", "--lazy", str(disk)], check=False)
                disk.rmdir()
                kept.rename(disk)

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", flush=True)
        self._say(text)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", file=self._log, flush=True)


def _files(pages: Path) -> int:
    return len(list(pages.glob("*"))) if pages.is_dir() else 0


def _is_possible(fault: Fault, *, has_shim: bool) -> bool:
    if fault.kind is Kind.CLOCK or fault.how == "slow fsync":
        return has_shim
    return fault.kind not in (Kind.DISK, Kind.MACHINE) or disks.can_mount()


if __name__ == "__main__":
    sys.exit(main())
