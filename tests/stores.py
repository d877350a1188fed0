"""An S3 server for tests, and a proxy in front of it that cuts, refuses and fails."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.patience import PATIENCE_S

SERVER = Path(sys.executable).with_name("moto_server")
BUCKET = "bucket"
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_CHUNK_BYTES = 1 << 16


class S3Server:
    """A process of its own, with one bucket. What it holds ends with it."""

    def __init__(self, log: Path) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [SERVER, "-H", "127.0.0.1", "-p", "0"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not (match := _ADDRESS.search(log.read_bytes())):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.01)
        self.port = int(match[1])
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def environment(port: int) -> dict[str, str]:
    """What a crawler needs to find the server, or a proxy, at *port*."""
    return {
        "AWS_ACCESS_KEY_ID": "crawler",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


class FaultyProxy:
    """Forwards connections to *upstream*, a port, in threads; what is set counts for new connections."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        #: Answered in place of the server.
        self.answer = ""
        #: A connection ends once this many bytes were sent.
        self.cut_after: int | None = None
        #: How many connections were made.
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def mend(self) -> None:
        self.answer, self.cut_after = "", None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Wakes the thread that waits in it, which closing alone does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if self.answer:
                client.recv(_CHUNK_BYTES)
                client.sendall(self.answer.encode())
                return
            with socket.create_connection(("127.0.0.1", self._upstream)) as server:
                back = threading.Thread(target=_pump, args=(server, client, None), daemon=True)
                back.start()
                _pump(client, server, self.cut_after)
                # Both ends at once, so that a cut looks like one.
                for end in (client, server):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join()


def answer(status: str, code: str) -> str:
    """Return an answer of S3 with an error."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )


def _pump(source: socket.socket, target: socket.socket, most: int | None) -> None:
    sent = 0
    with suppress(OSError):
        while (most is None or sent < most) and (data := source.recv(_CHUNK_BYTES)):
            target.sendall(data if most is None else data[: most - sent])
            sent += len(data)
