"""The process that decodes one uploaded picture: from standard input to a small WebP on standard output.

`statuspages.logos` runs this file as a script, so it imports none of our modules. Decoders are C code that reads
hostile files, and no header limits their memory and time: the kernel does it here, outside the web process.
"""

from __future__ import annotations

import io
import resource
import struct
import sys

from PIL import Image, ImageOps

MAX_SIDE = 4_096
MAX_PIXELS = 4 * 1024 * 1024
SIDE = 512
CPU_SEC = 2
MEMORY_BYTES = 384 * 1024 * 1024  # address space; four megapixels of WebP take 130 MB, more than any other format
TOO_LARGE = 3  # the exit status
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


def main() -> None:
    """Write the width, the height and the picture. SIGXCPU ends the process at the CPU limit."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SEC, CPU_SEC + 1))
    if sys.platform == "linux":  # other systems do not enforce it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        found = _decode(sys.stdin.buffer.read())
    except Image.DecompressionBombError:
        sys.exit(TOO_LARGE)
    found.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    found.save(out, "WEBP", quality=90, method=4, exif=b"", icc_profile=b"", xmp=b"")
    sys.stdout.buffer.write(struct.pack(">HH", found.width, found.height) + out.getvalue())


def _decode(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
        # So far Pillow has read the header only.
        if max(opened.size) > MAX_SIDE or opened.width * opened.height > MAX_PIXELS:
            sys.exit(TOO_LARGE)
        found = ImageOps.exif_transpose(opened)
        return found.convert("RGBA" if found.has_transparency_data else "RGB")


if __name__ == "__main__":
    main()
