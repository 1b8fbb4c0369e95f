"""An uploaded picture becomes one of ours: decoded within bounds, made small, encoded anew. Pure.

Of what came nothing is kept but the pixels: no metadata, no second file that hides behind the picture, no script.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from PIL import Image, ImageOps

MAX_BYTES = 1024 * 1024
MAX_SIDE = 4_096
SIDE = 512
CONTENT_TYPE = "image/webp"
TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")

# What Pillow's decoders raise for broken and hostile files.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    struct.error,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Picture:
    image: bytes
    width: int
    height: int


def encode(data: bytes) -> Picture:
    """Raises ValueError, saying why, for what is no picture, or one that is too large."""
    if len(data) > MAX_BYTES:
        raise ValueError("is larger than 1 MiB.")
    try:
        found = _decode(data)
        out = io.BytesIO()
        found.save(out, "WEBP", quality=90, method=4, exif=b"", icc_profile=b"", xmp=b"")
    except (_TooLarge, Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"is more than {MAX_SIDE} pixels wide or high.") from None
    except _BROKEN:
        raise ValueError("is no picture that can be read; send PNG, JPEG, WebP or GIF.") from None
    return Picture(out.getvalue(), found.width, found.height)


def _decode(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        # Nothing is decoded yet: a small file may be a picture of gigabytes.
        if max(opened.size) > MAX_SIDE:
            raise _TooLarge
        found = ImageOps.exif_transpose(opened)
        found = found.convert("RGBA" if found.has_transparency_data else "RGB")
    found.thumbnail((SIDE, SIDE))
    return found


class _TooLarge(Exception):
    pass
