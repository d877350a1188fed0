"""A certificate authority of our own, so that crawlers verify what they are shown, as they do on the web."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_DAYS = ("-days", "30")


@dataclass(frozen=True, slots=True)
class Certificates:
    #: What a client trusts: SSL_CERT_FILE.
    authority: Path
    #: Key and certificate of the server.
    server: Path


def make_certificates(folder: Path, addresses: Iterable[str]) -> Certificates:
    """Make an authority, and a certificate by it for a server at *addresses*, of the kind most sites have."""
    authority, server, request = folder / "authority.pem", folder / "server.pem", folder / "server.csr"
    _openssl(
        *("req", "-x509", *_KEY, *_DAYS, "-subj", "/CN=bench authority"),
        *("-keyout", folder / "authority.key", "-out", authority),
    )
    _openssl("req", *_KEY, "-subj", "/CN=bench", "-keyout", folder / "server.key", "-out", request)
    names = folder / "names.cnf"
    names.write_text("subjectAltName=" + ",".join(f"IP:{address}" for address in addresses))
    _openssl(
        *("x509", "-req", "-in", request, "-CA", authority, "-CAkey", folder / "authority.key"),
        *("-CAcreateserial", *_DAYS, "-extfile", names, "-out", server),
    )
    with server.open("a") as file:
        file.write((folder / "server.key").read_text())
    return Certificates(authority, server)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
