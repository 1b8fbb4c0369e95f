"""Content codings decoded piece by piece: the result does not depend on how the body is split."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.probes.http.decoding import NotInCodingError, TooMuchError, decoder_for

TEXT = b"hello world, " * 20_000


def packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)  # the same bytes in every process that collects the cases


def raw_deflate(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


def undo(content_encoding: str, body: bytes, *, step: int = 16_384) -> tuple[bytes, bool]:
    decoder, unknown = decoder_for(content_encoding.encode())
    assert decoder is not None
    assert unknown is None
    decoded = b"".join(
        piece for start in range(0, len(body), step) for piece in decoder.feed(body[start : start + step])
    )
    return decoded, decoder.whole


WHOLE = [
    ("gzip", packed(TEXT), TEXT),
    ("x-gzip", packed(TEXT), TEXT),
    ("deflate", zlib.compress(TEXT), TEXT),
    ("deflate", raw_deflate(TEXT), TEXT),
    ("gzip", packed(TEXT) + packed(b"more"), TEXT + b"more"),
    ("gzip", packed(TEXT) + b"\0" * 700, TEXT),
    ("gzip", packed(TEXT) + b"\x1f", TEXT),
    ("deflate", zlib.compress(TEXT) + b"trailing", TEXT),
    ("gzip, deflate", zlib.compress(packed(TEXT)), TEXT),
    ("gzip,gzip", packed(packed(TEXT)), TEXT),
    ("identity, GZIP", packed(TEXT), TEXT),
    ("gzip", packed(b""), b""),
    ("gzip", b"", b""),
]


@pytest.mark.parametrize("step", [1, 7, 16_384, 10**9])
@pytest.mark.parametrize(("coding", "body", "text"), WHOLE)
def test_undoes(coding: str, body: bytes, text: bytes, step: int) -> None:
    assert undo(coding, body, step=step) == (text, True)


@pytest.mark.parametrize("step", [1, 16_384])
@pytest.mark.parametrize("missing", [1, 8, 9, 100])
@pytest.mark.parametrize("body", [packed(TEXT), packed(b"a") + packed(TEXT)])
def test_a_stream_that_ends_early_is_not_whole(body: bytes, missing: int, step: int) -> None:
    decoded, whole = undo("gzip", body[:-missing], step=step)
    assert not whole
    assert (b"a" + TEXT).endswith(decoded) or TEXT.startswith(decoded) or decoded.startswith(b"a")


@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_beginning_alone_is_not_whole(length: int) -> None:
    assert undo("gzip", packed(TEXT)[:length]) == (b"", False)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"plain text"),
        ("gzip", zlib.compress(TEXT)),
        ("gzip", packed(TEXT)[:-8] + b"\0" * 8),
        ("deflate", b"plain text"),
        ("gzip, gzip", packed(TEXT)),
    ],
)
def test_names_a_lie(coding: str, body: bytes) -> None:
    with pytest.raises(NotInCodingError):
        undo(coding, body)


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip"])
def test_a_bomb_comes_in_small_pieces(coding: str) -> None:
    body = b"\0" * (32 * 1024 * 1024)
    for _ in coding.split(","):
        body = packed(body)
    decoder, _ = decoder_for(coding.encode())
    assert decoder is not None
    sizes: list[int] = []
    with pytest.raises(TooMuchError):
        sizes.extend(len(piece) for piece in decoder.feed(body))
    assert 0 < max(sizes) <= 65_536
    assert sum(sizes) <= 1024 * 1024 + 2 * 65_536


EMPTY_BLOCKS = packed(b"")[:10] + b"\0\0\0\xff\xff" * 4_000_000


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", packed(b"") * 2_000),
        ("gzip, gzip", packed(packed(b"") * 1_000_000)),
        ("gzip, gzip", packed(EMPTY_BLOCKS)),
        ("gzip, deflate", zlib.compress(EMPTY_BLOCKS)),
    ],
    ids=["empty streams", "empty streams inside", "empty blocks inside", "the same in deflate"],
)
def test_what_decodes_to_nothing_is_not_decoded_for_ever(coding: str, body: bytes) -> None:
    with pytest.raises(TooMuchError):
        undo(coding, body)


@pytest.mark.parametrize(
    ("content_encoding", "unknown"),
    [
        (b"br", "br"),
        (b"UTF-8", "utf-8"),
        (b"gzip, br", "br"),
        (b"\xff", "ÿ"),
        (b"gzip,gzip,gzip", "gzip,gzip,gzip"),
        (b"identity", None),
        (b" , ", None),
    ],
)
def test_what_cannot_be_undone_is_left_as_it_is(content_encoding: bytes, unknown: str | None) -> None:
    assert decoder_for(content_encoding) == (None, unknown)


@given(st.sampled_from(["gzip", "deflate", "gzip, deflate"]), st.lists(st.binary(max_size=200), max_size=20))
def test_random_bytes_are_decoded_or_refused(coding: str, chunks: list[bytes]) -> None:
    decoder, _ = decoder_for(coding.encode())
    assert decoder is not None
    try:
        for chunk in chunks:
            assert all(decoder.feed(chunk))
    except NotInCodingError:
        return
    assert decoder.whole in {True, False}


@given(st.binary(max_size=5000), st.integers(1, 500))
def test_compressed_bodies_are_restored(body: bytes, step: int) -> None:
    assert undo("gzip", packed(body), step=step) == (body, True)
    assert undo("deflate", zlib.compress(body), step=step) == (body, True)
