"""SHA-256 of short texts without `hashlib`: loading its OpenSSL takes longer than computing a package's digests."""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # before Python 3.12
    except ImportError:
        from hashlib import sha256


def sha256_hex(text: str) -> str:
    """Return the 64 hexadecimal digits of a text's SHA-256, the text in UTF-8."""
    return str(sha256(text.encode()).hexdigest())
