"""Decode gzip and deflate bodies as they arrive (RFC 9110, 8.4), with limits for each layer. Pure.

libcurl could do it, but accepts a gzip stream that ends early, and refuses an unknown coding even if the body is not
read. A hostile stream ends in NotInCodingError.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator

ACCEPTED = "gzip, deflate"

_PIECE = 65_536  # limits what one step inflates a few bytes to
_MOST_CODINGS = 2
# A layer inside another can decode to nothing forever, and empty streams cost time and no bytes.
_MOST_BYTES = 1024 * 1024 + _PIECE
_MOST_STREAMS = 1_000
# Bytes between two codings: a few KB on the wire expand to all of them at once, and inflating may take 60 ms per MiB.
_MOST_BETWEEN = 512 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_KNOWN = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate"}


class NotInCodingError(ValueError):
    """The bytes are not in the coding that was declared for them."""


class TooMuchError(ValueError):
    """The body decodes to more than is read."""


class _Inflater:
    """One coding. A gzip body may be several streams in a row; what follows its last one is padding."""

    def __init__(self, coding: str, *, most: int) -> None:
        self._coding = coding
        self._most = most  # bytes that it may decode to
        self._stream: zlib._Decompress | None = None
        self._head = b""  # the first bytes of a stream, until there are enough to see what it is
        self._streams = 0
        self._given = 0
        self._padding = False

    @property
    def whole(self) -> bool:
        """Return whether the body may end here. An empty one, as of HEAD and 204, may."""
        if self._padding or not (self._streams or self._head):
            return True
        return self._streams > 0 and self._stream is None

    def undo(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            data = piece
            while data and not self._padding:
                if self._stream is None:
                    data = self._open(self._head + data)
                    if self._stream is None:
                        break
                data = yield from self._inflate(self._stream, data)

    def _open(self, data: bytes) -> bytes:
        """Begin a stream with `data`, and return what to feed to it."""
        if len(data) < len(_GZIP_MAGIC):
            self._head = data
            return b""
        self._head = b""
        if self._streams and not (self._coding == "gzip" and data.startswith(_GZIP_MAGIC)):
            self._padding = True
            return b""
        self._streams += 1
        if self._streams > _MOST_STREAMS:
            raise TooMuchError
        self._stream = zlib.decompressobj(self._window(data))
        return data

    def _window(self, data: bytes) -> int:
        if self._coding == "gzip":
            return _GZIP
        # "deflate" means the zlib format, yet some servers send bare deflate data (RFC 9110, 8.4.1.2).
        zlib_header = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return _ZLIB if zlib_header else _RAW

    def _inflate(self, stream: zlib._Decompress, data: bytes) -> Generator[bytes, None, bytes]:
        """Yield the decoded bytes, and return those after the end of the stream."""
        while True:
            try:
                out = stream.decompress(data, _PIECE)
            except zlib.error as error:
                raise NotInCodingError(self._coding) from error
            self._given += len(out)
            if out:
                yield out
            if self._given > self._most:
                raise TooMuchError
            if stream.eof:
                self._stream = None
                return stream.unused_data
            data = stream.unconsumed_tail
            # A full piece may have left more inside the stream, with no input left over.
            if not data and len(out) < _PIECE:
                return b""


class Decoder:
    """Decodes one body."""

    def __init__(self, codings: list[str]) -> None:
        *outer, inner = reversed(codings)
        self._inflaters = [
            *(_Inflater(coding, most=_MOST_BETWEEN) for coding in outer),
            _Inflater(inner, most=_MOST_BYTES),
        ]

    @property
    def whole(self) -> bool:
        """Return whether every stream is complete if the body ends now."""
        return all(inflater.whole for inflater in self._inflaters)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes, in pieces of at most 64 KiB. Raises NotInCodingError and TooMuchError."""
        pieces: Iterable[bytes] = (chunk,)
        for inflater in self._inflaters:
            pieces = inflater.undo(pieces)
        return iter(pieces)


def decoder_for(content_encoding: bytes) -> tuple[Decoder | None, str | None]:
    """Return the decoder of a Content-Encoding, and the first unknown coding in it.

    With an unknown coding the decoder is None and the bytes stay encoded, as in browsers: some servers declare charsets
    here, and codings that were not requested.
    """
    named = [name.strip().lower() for name in content_encoding.split(b",")]
    names = [name for name in named if name not in {b"", b"identity"}]
    unknown = next((name for name in names if name not in _KNOWN), None)
    if unknown is not None or len(names) > _MOST_CODINGS:
        return None, (unknown if unknown is not None else content_encoding).decode("latin-1")
    return (Decoder([_KNOWN[name] for name in names]) if names else None), None
