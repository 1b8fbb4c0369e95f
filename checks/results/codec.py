"""The bytes of many checks of one monitor: columns of small integers. Pure, and nothing is rounded.

Column by column, what repeats is removed first: `checked_at` is stored as the number of the slot and the time in it, in
the largest unit that is exact, claims as steps, the time to the first byte as the rest of the latency. A constant
column takes up to three bytes. Others take as many bits per value as most of their values need, and the longer ones are
listed; or, if that is shorter, zlib compresses their bytes (ADR 62). Whole planes of bits are moved at a time, so no
step loops over bits in Python.

    version and unit: 1 byte | checksum of all others: 4 bytes | count, time, period, claim: varints
    | how each of the ten columns is stored: 5 bytes | a block for each column that needs one
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

VERSION = 1
SECOND = 1_000_000
MOST = 4_000_000
"""How many checks are decoded at most, which is more than anyone stores."""
_CHECKSUM = 4
_UNITS = (SECOND, 1_000, 1)
# Below this zlib's own header costs more than it saves.
_LEAST_FOR_ZLIB = 200
_NULLS, _ZEROS, _ONES, _CONSTANT, _BITS, _LONG_BITS, _DEFLATED = range(7)
_NULLABLE = 8
_OK = 200  # the usual status, which is then a zero

Integers = Sequence[int]
Nullable = Sequence[int | None]


class DamagedHistory(ValueError):
    """Bytes that are not what `encode` returned, or are of a newer version."""


class Checks(NamedTuple):
    """Checks of one monitor as columns, by time and claim. `at` is in epoch microseconds.

    `kind` is a small number that the caller defines; all others as in CheckResult.
    """

    at: Integers
    claim: Integers
    latency_ms: Nullable
    connect_ms: Nullable
    ttfb_ms: Nullable
    location_id: Nullable
    http_status: Nullable
    loss: Nullable
    kind: Integers


def joined(parts: Iterable[Checks]) -> Checks:
    """Return the checks of all parts, by time and claim, as they are in each part.

    Columns that a narrow part lacks stay empty.
    """
    columns: list[list[Any]] = [[] for _ in Checks._fields]
    in_order = True
    for part in parts:
        in_order = in_order and not (columns[0] and part.at and columns[0][-1] >= part.at[0])
        for column, more in zip(columns, part, strict=True):
            column += more
    if not in_order:
        at, claim = columns[:2]
        order = sorted(range(len(at)), key=lambda number: (at[number], claim[number]))
        columns = [[column[number] for number in order] if column else [] for column in columns]
    return Checks(*columns)


def encode(checks: Checks, *, start: int) -> bytes:
    """Return the bytes of at least one check. `start` is a time near the first one, in epoch microseconds."""
    at, claim = checks.at, checks.claim
    steps = sorted(_steps(at))
    period = (steps[len(steps) // 2] + SECOND // 2) // SECOND * SECOND if steps else 0
    period = period or SECOND
    slots = [(moment - at[0] + period // 2) // period for moment in at]
    rest = [moment - slot * period for moment, slot in zip(at, slots, strict=True)]
    first = min(rest)
    unit = next(unit for unit in _UNITS if not any((moment - first) % unit for moment in rest))
    tail = [
        None if ttfb is None else (latency or 0) - ttfb
        for latency, ttfb in zip(checks.latency_ms, checks.ttfb_ms, strict=True)
    ]
    columns: tuple[Nullable, ...] = (
        _steps(slots),
        [(moment - first) // unit for moment in rest],
        _steps(claim),
        checks.kind,
        checks.latency_ms,
        checks.location_id,
        checks.connect_ms,
        tail,
        [None if status is None else status - _OK for status in checks.http_status],
        checks.loss,
    )
    blocks = [_block(column) for column in columns]
    data = bytearray([VERSION | _UNITS.index(unit) << 4])
    for number in (len(at), _zigzag(first - start), period // SECOND, _zigzag(claim[0])):
        _put(data, number)
    modes = [mode for mode, _ in blocks]
    data += bytes(mode | other << 4 for mode, other in zip(modes[::2], modes[1::2], strict=True))
    for _, block in blocks:
        data += block
    data[1:1] = checksum(bytes(data))
    return bytes(data)


def checksum(data: bytes) -> bytes:
    """Return four bytes that any change of four neighboring bytes changes."""
    return zlib.crc32(data).to_bytes(_CHECKSUM, "little")


def decode(data: bytes, *, start: int, narrow: bool = False) -> Checks:
    """Reverse `encode`. Raises DamagedHistory.

    With `narrow`, only `at`, `claim`, `kind` and `latency_ms` are read, and the others are empty.
    """
    if not data or data[0] & 15 != VERSION:
        raise DamagedHistory(f"packed checks of the unknown version {data[0] & 15 if data else None}")
    body = 1 + _CHECKSUM
    if checksum(data[:1] + data[body:]) != data[1:body]:
        raise DamagedHistory("packed checks whose checksum is wrong")
    try:
        return _decoded(_Reader(data, body), start, _UNITS[data[0] >> 4], narrow=narrow)
    except (ValueError, IndexError, OverflowError, zlib.error) as error:
        raise DamagedHistory(f"packed checks that cannot be read: {error}") from error


def _decoded(reader: _Reader, start: int, unit: int, *, narrow: bool) -> Checks:
    count = reader.number()
    if not 0 < count <= MOST:
        raise ValueError(f"{count} checks")
    first, period, first_claim = start + reader.signed(), reader.number() * SECOND, reader.signed()
    reader.read_modes()
    slots = _summed(reader.integers(count - 1), first, period)
    rest = reader.integers(count)
    at = [slot + since * unit for slot, since in zip(slots, rest, strict=False)]  # their lengths are known
    claim = list(_summed(reader.integers(count - 1), first_claim, 1))
    kind = reader.integers(count)
    latency = reader.column(count)
    if narrow:
        return Checks(at, claim, latency, (), (), (), (), (), kind)
    location, connect, tail, statuses, loss = (reader.column(count) for _ in range(5))
    ttfb = [None if late is None else (whole or 0) - late for whole, late in zip(latency, tail, strict=True)]
    status = [None if number is None else number + _OK for number in statuses]
    return Checks(at, claim, latency, connect, ttfb, location, status, loss, kind)


def _summed(steps: list[int], first: int, each: int) -> Iterable[int]:
    """Return `first`, and the sums of it and the steps so far, each of which counts for `each`."""
    if steps and steps[0] and steps.count(steps[0]) == len(steps):
        each *= steps[0]
        return range(first, first + each * (len(steps) + 1), each)
    return accumulate(steps if each == 1 else [step * each for step in steps], initial=first)


def _steps(values: Integers) -> list[int]:
    return [after - before for before, after in pairwise(values)]


def _block(column: Nullable) -> tuple[int, bytes]:
    """Return how a column is stored, and its bytes."""
    found = [value for value in column if value is not None]
    if not found:
        return _NULLS, b""
    least = min(found)
    block = bytearray()
    _put(block, _zigzag(least))
    nullable = len(found) < len(column)
    if not nullable and least == max(found):
        return (_CONSTANT, bytes(block)) if least not in (0, 1) else ((_ZEROS, _ONES)[least], b"")
    # Zero stands for null.
    values = [0 if value is None else value - least + 1 for value in column] if nullable else [v - least for v in found]
    mode, packed = _shortest(values)
    return mode | nullable * _NULLABLE, bytes(block + packed)


def _shortest(values: list[int]) -> tuple[int, bytes]:
    lengths = sorted(Counter(map(int.bit_length, values)).items())
    count = len(values)
    # A long value costs the bytes of its index, and of its upper bits.
    index_bytes = 1 if count <= 128 else 2
    costs = {
        width: (count * width + 7) // 8
        + sum(many * (index_bytes + (length - width + 6) // 7) for length, many in lengths if length > width)
        for width in range(lengths[-1][0] + 1)
    }
    width = min(costs, key=lambda width: costs[width])
    if count >= _LEAST_FOR_ZLIB:
        size = _size(lengths[-1][0])
        raw = array(_TYPES[size], values).tobytes()
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        block = deflate.compress(b"".join(raw[plane::size] for plane in range(size))) + deflate.flush()
        if len(block) + 2 < costs[width]:
            head = bytearray([size])
            _put(head, len(block))
            return _DEFLATED, bytes(head + block)
    return _bits(values, width)


def _bits(values: list[int], width: int) -> tuple[int, bytes]:
    block = bytearray([width])
    long = [(index, value >> width) for index, value in enumerate(values) if value >> width]
    if long:
        _put(block, len(long))
        before = 0
        for index, upper in long:
            _put(block, index - before)
            _put(block, upper)
            before = index
    if width:
        size = _size(width)
        lower = [value & (1 << width) - 1 for value in values] if long else values
        raw = array(_TYPES[size], lower).tobytes()
        for plane in range(width // 8):
            block += raw[plane::size]
        top = raw[width // 8 :: size]
        for bits, shift in _pieces(width % 8):
            block += _squeezed(top.translate(_FIELDS[bits, shift]), bits)
    return (_LONG_BITS if long else _BITS), bytes(block)


class _Reader:
    """Read numbers and columns from bytes. Raises ValueError or IndexError if they end too early."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place
        self._modes: Iterator[int] = iter(())

    def number(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._place]
            self._place += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7

    def signed(self) -> int:
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def read_modes(self) -> None:
        self._modes = iter([mode for byte in self._take(5) for mode in (byte & 15, byte >> 4)])

    def _take(self, length: int) -> bytes:
        end = self._place + length
        if end > len(self._data):
            raise ValueError("it is too short")
        found = self._data[self._place : end]
        self._place = end
        return found

    def integers(self, count: int) -> list[int]:
        mode = next(self._modes)
        found = self._column(mode, count)
        if (mode == _NULLS or mode & _NULLABLE) and None in found:
            raise ValueError("a number is missing")
        return found  # type: ignore[return-value]

    def column(self, count: int) -> list[int | None]:
        return self._column(next(self._modes), count)

    def _column(self, mode: int, count: int) -> list[int | None]:
        if mode == _NULLS:
            return [None] * count
        if mode in (_ZEROS, _ONES):
            return [mode - _ZEROS] * count
        least = self.signed()
        if mode == _CONSTANT:
            return [least] * count
        how = mode & ~_NULLABLE
        if how == _DEFLATED:
            values = self._deflated(count)
        elif how in (_BITS, _LONG_BITS):
            values = self._bits(count, long=how == _LONG_BITS)
        else:
            raise ValueError(f"a column is stored as {mode}")
        if len(values) != count:
            raise ValueError("a column has another length")
        if mode & _NULLABLE:
            least -= 1
            return [value + least if value else None for value in values]
        return [value + least for value in values] if least else values  # type: ignore[return-value]

    def _deflated(self, count: int) -> list[int]:
        size = self._take(1)[0]
        planes = zlib.decompress(self._take(self.number()), -15)
        return _values([planes[plane * count : (plane + 1) * count] for plane in range(size)], count)

    def _bits(self, count: int, *, long: bool) -> list[int]:
        width = self._take(1)[0]
        exceptions = self._exceptions(self.number()) if long else []
        planes = [self._take(count) for _ in range(width // 8)]
        if pieces := _pieces(width % 8):
            top = 0
            for bits, shift in pieces:
                squeezed = self._take((count * bits + 7) // 8)
                # No carry: each field has its own bits in each byte.
                top |= int.from_bytes(_spread(squeezed, bits, count), "little") << shift
            planes.append(top.to_bytes(count, "little"))
        values = _values(planes, count) if planes else [0] * count
        index = 0
        for step, upper in exceptions:
            index += step
            values[index] |= upper << width
        return values

    def _exceptions(self, count: int) -> Iterable[tuple[int, int]]:
        """Return the distances of the longer values, and their upper bits."""
        numbers: Sequence[int] = self._data[self._place : self._place + 2 * count]
        if max(numbers, default=0) < 128:  # nearly always
            self._take(2 * count)
        else:
            numbers = [self.number() for _ in range(2 * count)]
        return zip(numbers[::2], numbers[1::2], strict=True)


_TYPES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _size(width: int) -> int:
    """Return how many bytes, as in _TYPES, a number of that many bits takes."""
    return next((size for size in _TYPES if width <= 8 * size), 8)


def _values(planes: list[bytes], count: int) -> list[int]:
    size = _size(8 * len(planes))
    raw = bytearray(count * size)
    for plane, found in enumerate(planes):
        raw[plane::size] = found
    return array(_TYPES[size], bytes(raw)).tolist()


def _pieces(bits: int) -> list[tuple[int, int]]:
    """Return the (bits, shift) of the fields of 4, 2 and 1 bits that make up a number of less than 8 bits."""
    found, shift = [], 0
    for piece in (4, 2, 1):
        if bits & piece:
            found.append((piece, shift))
            shift += piece
    return found


# By (bits, shift): the field of each byte, for bytes.translate.
_FIELDS = {
    (bits, shift): bytes(byte >> shift & (1 << bits) - 1 for byte in range(256))
    for bits in (1, 2, 4)
    for shift in range(8)
}


def _squeezed(fields: bytes, bits: int) -> bytes:
    """Put 8 / `bits` fields, one in each byte, into a byte."""
    each = 8 // bits
    length = -(-len(fields) // each)
    found = 0
    for number in range(each):
        found |= int.from_bytes(fields[number::each], "little") << number * bits
    return found.to_bytes(length, "little")


def _spread(squeezed: bytes, bits: int, count: int) -> bytes:
    """Reverse `_squeezed`."""
    each = 8 // bits
    found = bytearray(len(squeezed) * each)
    for number in range(each):
        found[number::each] = squeezed.translate(_FIELDS[bits, number * bits])
    return bytes(found[:count])


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


def _put(body: bytearray, number: int) -> None:
    """Append a number that is not negative, seven bits a byte."""
    while number > 127:
        body.append(number & 127 | 128)
        number >>= 7
    body.append(number)
