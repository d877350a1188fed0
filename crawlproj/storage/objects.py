"""Objects in a store: S3, Google, Azure, or a directory. The only importer of obstore.

Objects are written whole, in one request each: there is no upload in parts that a dead process could leave
behind. Credentials and endpoint come from the environment, as obstore reads it: ``AWS_*``, ``GOOGLE_*``,
``AZURE_*``.
"""

from __future__ import annotations

import errno
import io
import mmap
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

from crawlproj.errors import StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

#: An object is sent within this time, or the upload fails and is tried again.
_SEND_S = 300
#: Failed requests are repeated this often and this long; then whoever asked waits, and says so.
_RETRIES, _RETRY_S = 3, 10
#: Read ahead: a row group is read column by column.
_READ_BYTES = 1 << 20
_NO_BUCKET = "NoSuchBucket"
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3}[ A-Za-z]*)")
#: What to check, by the scheme of the address.
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL",
    "gs": "GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "file": "that the directory exists and is writable",
}

_Result = TypeVar("_Result")


def is_address(text: object) -> bool:
    """Whether *text* names an object store and not a directory."""
    return "://" in str(text)


@dataclass(frozen=True)
class ObjectStore:
    """The objects under *address*, such as ``s3://bucket/prefix``.

    A store that does not answer, or refuses, raises StoreUnavailable; an object that is not there
    FileNotFoundError.
    """

    address: str

    @cached_property
    def _client(self) -> Client:
        # Not at module level: few runs have a store. Never before a fork: it has threads.
        from obstore.store import from_url

        if self.address.startswith("file:"):
            return from_url(self.address, mkdir=True)
        return from_url(
            self.address,
            # An endpoint without TLS is used only if its URL says so.
            client_options={"allow_http": True, "timeout": timedelta(seconds=_SEND_S)},
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        )

    @property
    def _overwrites(self) -> bool:
        # In a directory a copy is a link, and writing over itself it would leave another name behind.
        return not self.address.startswith("file:")

    async def put(self, key: str, file: Path) -> None:
        """Store the content of *file*, whole or not at all."""
        import obstore

        with _content(file) as content, self._errors():
            await obstore.put_async(self._client, key, content, use_multipart=False)

    async def copy(self, source: str, target: str) -> None:
        """Copy an object within the store; one that is there already may be kept."""
        import obstore

        with self._errors():
            await obstore.copy_async(self._client, source, target, overwrite=self._overwrites)

    async def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        import obstore

        await self._unless_missing(lambda: obstore.delete_async(self._client, key))

    async def exists(self, key: str) -> bool:
        import obstore

        return await self._unless_missing(lambda: obstore.head_async(self._client, key)) is not None

    async def names(self, prefix: str) -> list[str]:
        """Return the names directly under *prefix*, sorted."""
        import obstore

        with self._errors():
            found = await obstore.list_with_delimiter_async(self._client, prefix)
        return sorted(entry["path"].rpartition("/")[2] for entry in found["objects"])

    def path(self, key: str = "") -> StorePath:
        return StorePath(self, key)

    async def _unless_missing(self, work: Callable[[], Awaitable[_Result]]) -> _Result | None:
        try:
            with self._errors():
                return await work()
        except FileNotFoundError:
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except AlreadyExistsError:
            # The same, copied before: names are never used twice.
            return
        except (BaseError, OSError, ValueError) as exc:
            if isinstance(exc, FileNotFoundError) and _NO_BUCKET not in str(exc):
                raise FileNotFoundError(errno.ENOENT, "not in the store", self.address) from None
            remedy = f"Check {_VARIABLES.get(self.address.partition(':')[0], 'its address')}."
            if _NO_BUCKET in str(exc):
                remedy = "Create the bucket, or correct its name."
            raise StoreUnavailable(
                f"Cannot use the store {self.address}: {_reason_of(str(exc))}. {remedy}"
            ) from None


@cache
def store_at(address: str) -> ObjectStore:
    """Return the store at *address*; there is one of each, with its connections."""
    return ObjectStore(address.rstrip("/"))


def place_of(name: str | Place) -> Place:
    """Return the directory, or the prefix in a store, of this *name*."""
    if not isinstance(name, str):
        return name
    if not is_address(name):
        return Path(name)
    parts = urlsplit(name)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return store_at(f"{parts.scheme}://{parts.netloc}").path(parts.path.strip("/"))


@dataclass(frozen=True)
class _Facts:
    """Of what `Path.stat` returns, what is used."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class StorePath:
    """An object or a prefix in a store, read like a `Path`."""

    store: ObjectStore
    key: str

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        return StorePath(self.store, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.store, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"{self.store.address}/{self.key}".rstrip("/")

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def is_dir(self) -> bool:
        """Whether there is anything under this prefix."""
        return next(self.iterdir(), None) is not None

    def exists(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return self.is_dir()
        return True

    def stat(self) -> _Facts:
        import obstore

        with self.store._errors():
            found = obstore.head(self.store._client, self.key)
        return _Facts(found["size"], int(found["last_modified"].timestamp() * 1e9))

    def iterdir(self) -> Iterator[StorePath]:
        """Yield what is directly under this prefix: objects, and prefixes."""
        import obstore

        with self.store._errors():
            found = obstore.list_with_delimiter(self.store._client, self.key or None)
        names = [entry["path"] for entry in found["objects"]] + [*found["common_prefixes"]]
        return (self / name.rpartition("/")[2] for name in sorted(names))

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open an object for reading, at any position."""
        return io.BufferedReader(cast("io.RawIOBase", _Reader(self)), _READ_BYTES)

    def read_range(self, start: int, end: int) -> Any:
        import obstore

        with self.store._errors():
            return obstore.get_range(self.store._client, self.key, start=start, end=end)

    def rename(self, target: StorePath) -> None:
        """Move an object; repeating it after a crash is safe."""
        import obstore

        with self.store._errors():
            obstore.copy(self.store._client, self.key, target.key, overwrite=self.store._overwrites)
        self.unlink()

    def upload(self, file: Path) -> None:
        """Store the content of *file* here, whole or not at all."""
        import obstore

        with _content(file) as content, self.store._errors():
            obstore.put(self.store._client, self.key, content, use_multipart=False)

    def unlink(self) -> None:
        import obstore

        with self.store._errors():
            obstore.delete(self.store._client, self.key)


Place = Path | StorePath
_AnyPlace = TypeVar("_AnyPlace", bound=Place)


def replaced_place(file: _AnyPlace) -> _AnyPlace:
    """Return where a file of a segment is moved when it is replaced by a merged one."""
    return cast("_AnyPlace", file.parent.parent / "merged" / file.parent.name / file.name)


def open_file(file: Place) -> BinaryIO:
    """Open a file of a segment, also if it was replaced since it was listed."""
    try:
        return file.open("rb")
    except FileNotFoundError:
        return replaced_place(file).open("rb")


def written_ns(file: Place) -> int:
    """Return when a file of a segment was written, also if it was replaced since it was listed."""
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return replaced_place(file).stat().st_mtime_ns


def source_of(file: Place) -> Any:
    """Return what pyarrow reads *file* from, also if it was replaced since it was listed."""
    if isinstance(file, StorePath):
        return open_file(file)
    try:
        return pa.OSFile(str(file))
    except FileNotFoundError:
        return pa.OSFile(str(replaced_place(file)))


class _Reader(io.RawIOBase):
    """An object as a file that can be read and sought in, also if it is replaced meanwhile."""

    def __init__(self, path: StorePath) -> None:
        super().__init__()
        self._path, self._size, self._at = path, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        try:
            data = self._path.read_range(self._at, end)
        except FileNotFoundError:
            self._path = replaced_place(self._path)
            data = self._path.read_range(self._at, end)
        buffer[: len(data)] = memoryview(data)
        self._at += len(data)
        return len(data)


@contextmanager
def _content(file: Path) -> Iterator[bytes | mmap.mmap]:
    """Yield what is in *file*: mapped, so that it is in memory once, and may leave it at any time."""
    with file.open("rb") as opened:
        if not file.stat().st_size:
            yield b""
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


def _reason_of(error: str) -> str:
    """Return why a request failed, in a few words: the whole text may repeat what was signed."""
    if code := _CODE.search(error):
        return f"it answers {code[1]}"
    if status := _STATUS.search(error):
        return f"it answers {status[1].strip()}"
    if "etadata" in error or "redential" in error:
        return "there are no credentials for it"
    head = error.partition("\n")[0]
    return "it does not answer" if "HTTP error" in head else head[:120]
