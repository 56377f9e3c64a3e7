# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fields of serialised `tf.train.Example` records, without TensorFlow.

    fields = records.fields(record)    # {"pixels": float32[784], "label": int64[1]}

A record is a message of protocol buffers (developers.google.com, 'Encoding'): an
Example has Features, a map from names to lists of bytes, floats or integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

# The values of a field, as one list of a kind.
Values = Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


class DamagedExampleError(ValueError):
    """A record is not a serialised `tf.train.Example`."""


def fields(record: bytes) -> dict[str, Values]:
    """The fields of a record: lists of bytes, float32[n] or int64[n] by name.

    Raises:
      DamagedExampleError: If the record cannot be parsed.
    """
    found = {}
    try:
        for _, features in _messages(record, 1):
            for _, entry in _messages(features, 1):
                parts = dict(_messages(entry))
                found[bytes(parts[1]).decode()] = _values(parts.get(2, b""))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedExampleError(
            f"a record must be a serialised tf.train.Example, found {record[:20]!r}"
        ) from error
    return found


def _values(feature: Any) -> Values:
    """The values of a Feature, which has one list of a kind."""
    for kind, values in _messages(feature):
        if kind == 1:
            return [bytes(value) for _, value in _messages(values)]
        if kind == 2:
            floats = b"".join(bytes(value) for _, value in _messages(values))
            return np.frombuffer(floats, "<f4").astype(np.float32)
        if kind == 3:
            return np.array(list(_integers(values)), np.int64)
    return []


def _integers(values: Any) -> Iterator[int]:
    """The integers of an Int64List, packed or not."""
    for _, value in _messages(values):
        if isinstance(value, int):
            yield _signed(value)
            continue
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            yield _signed(number)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _messages(message: Any, only: int = 0) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field, or of those of one number."""
    place = 0
    value: Any
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
        else:
            length = _WIDTHS.get(kind, 0)
            if kind == _BYTES:
                length, place = _varint(message, place)
            elif not length:
                raise ValueError(f"wire type {kind}")
            value = message[place : place + length]
            place += length
            if len(value) != length:
                raise ValueError("cut off")
        if only in (0, number):
            yield number, value


def _varint(message: Any, place: int) -> tuple[int, int]:
    """The integer at a place, of 7 bits a byte, and the place behind it."""
    number = shift = 0
    while True:
        byte = message[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & ((1 << 64) - 1), place
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
