"""Decode uploaded pictures in a process with limits, scale them down and encode them again.

Only the pixels are kept: no metadata, no second file behind the picture, no script.
"""

from __future__ import annotations

import logging
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from audit import origin
from core.shares import Shares
from core.turns import paused, take_time

logger = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
CONTENT_TYPE = "image/webp"
DECODE_SEC = 20.0  # elapsed time; `logo_decoder` limits the CPU time

_TOO_LONG = "takes too long to decode."
shares = Shares(at_once=1, most_waiting=8, most_present=2, patience_sec=10.0)
"""Decoders of a web process: more would multiply its memory."""


def encode(data: bytes) -> dict[str, Any]:
    """Return the fields of a PageLogo: `image`, `width` and `height`.

    Raises ValueError, with the reason, if it is broken or too large, and TooManyRequests if the decoder is busy.
    """
    if len(data) > MAX_BYTES:
        raise ValueError("is larger than 1 MiB.")
    take_time()
    try:
        with paused(), shares.turn(*origin.users()):
            done = subprocess.run(  # noqa: S603 - our own file, by our own interpreter
                [sys.executable, "-I", Path(__file__).with_name("logo_decoder.py")],
                input=data,
                capture_output=True,
                env={},  # the decoder reads hostile files and needs none of our secrets
                timeout=DECODE_SEC,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise ValueError(_TOO_LONG) from None
    if done.returncode == -signal.SIGXCPU:
        raise ValueError(_TOO_LONG)
    from statuspages.logo_decoder import MAX_SIDE, TOO_LARGE  # only here: workers do not load Pillow

    if done.returncode == TOO_LARGE:
        raise ValueError(f"is wider or higher than {MAX_SIDE} pixels, or has more than 4 million pixels.")
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        logger.info("a picture was refused: status %d, %s", done.returncode, reason)
        raise ValueError("is not a readable picture; send PNG, JPEG, WebP or GIF.")
    width, height = struct.unpack_from(">HH", done.stdout)
    return {"image": done.stdout[4:], "width": width, "height": height}
