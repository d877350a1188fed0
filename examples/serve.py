"""Serves the site of the examples on this machine: python3 examples/serve.py [PORT]; Ctrl-C ends it."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SITE = Path(__file__).parent / "site"


class Handler(SimpleHTTPRequestHandler):
    """Files of the site; requests are not printed."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 28421
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(SITE)))
    except OSError as exc:
        sys.exit(f"Port {port} of 127.0.0.1 cannot be used: {exc.strerror}.")
    print(f"Nettlewick Tea is open at http://127.0.0.1:{port}/ until Ctrl-C.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("closed")


if __name__ == "__main__":
    main()
