# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Updates of any structure as vectors, and messages of codecs as bytes.

    layout = UpdateLayout({"w": np.zeros([3, 2]), "b": np.zeros(2)})
    mean = layout.restore(np.ones(layout.dimension, np.float32))
    data = encode(mechanism, update, message)    # at a client

A part of a message takes as many bits as its mechanism claims: those of its residues,
one for a truth value, or those of its dtype.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np

from dpfl import checks, codecs, fields, mechanisms
from dpfl.arrays import in_numpy, philox
from dpfl.codecs.base import Codec, Encoded, Fields, Structure

# Arrays of any library that numpy takes, or mappings, lists and tuples of them.
Update = Any
# Bytes as sockets and files have them.
Data = Union[bytes, bytearray, memoryview]
# Numbers that are packed together, into as many words of this width as each has bits.
_WORD = 64
# The name of a message that is one array.
_WHOLE = ""


class UpdateLayout:
    """The layout of an update's arrays in one flat vector.

    Keys of mappings are sorted, as in the layouts of TFF's aggregators and of JAX.

    Attributes:
      dimension: Length d of the vector.
      text: The structure, shapes and dtypes.
    """

    def __init__(self, template: Union[int, Update]):
        """Initializes the layout.

        Args:
          template: The length of updates that are vectors, or an update.

        Raises:
          TypeError: If an array is not of floats.
          ValueError: If there are no numbers.
        """
        if not isinstance(template, (Mapping, list, tuple)) and not np.ndim(template):
            length = checks.dimension("template", template)
            template = np.broadcast_to(np.float32(0), [length])
        # Without the template's memory.
        made = iter(
            [_empty(name, part) for name, part in _leaves(template, "template")]
        )
        self._tree = _mapped(lambda part: next(made), template)
        parts = list(_leaves(self._tree))
        self.dimension = sum(part.size for _, part in parts)
        checks.require(self.dimension, "template", "of at least one number", parts)
        self.text = ", ".join(f"{name} {p.dtype}{list(p.shape)}" for name, p in parts)

    def restore(self, vector: np.ndarray) -> Update:
        """An update of numpy's arrays, in the dtypes of the template."""
        ends = np.cumsum([part.size for _, part in _leaves(self._tree)])
        pieces = iter(np.split(vector, ends[:-1]))
        return _mapped(
            lambda part: next(pieces).reshape(part.shape).astype(part.dtype), self._tree
        )


def _empty(name: str, array: np.ndarray) -> np.ndarray:
    if "float" not in array.dtype.name:
        raise TypeError(checks.message(name, "an array of floats", array.dtype))
    return np.broadcast_to(np.zeros([], array.dtype), array.shape)


def _leaves(tree: Update, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a structure of this name, and their own names, in order."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _leaves(tree[key], f"{name}.{key}")
    elif isinstance(tree, (list, tuple)):
        for place, part in enumerate(tree):
            yield from _leaves(part, f"{name}[{place}]")
    else:
        yield name, np.asarray(tree)


def _mapped(function: Any, tree: Update) -> Update:
    """A structure with a function of its arrays in their places, called in order."""
    if isinstance(tree, Mapping):
        made = {key: _mapped(function, tree[key]) for key in sorted(tree)}
        kind: Any = type(tree)
        return kind((key, made[key]) for key in tree)
    if isinstance(tree, (list, tuple)):
        parts = [_mapped(function, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def _flat(update: Update) -> np.ndarray:
    """An update as float32[d]."""
    parts = []
    for name, part in _leaves(update, "update"):
        if "float" not in part.dtype.name and part.dtype.kind not in "iub":
            wanted = "an array of numbers, or a mapping, list or tuple of them"
            raise TypeError(checks.message(name, wanted, part.dtype))
        with np.errstate(over="ignore"):
            parts.append(part.reshape(-1).astype(np.float32))
    return np.concatenate(parts) if parts else np.zeros([0], np.float32)


def encode(
    mechanism: mechanisms.Mechanism,
    update: Update,
    message: Data,
    secret: Optional[int] = None,
) -> bytes:
    """A client's update as the bytes to be sent to the server, clipped and encoded.

    Masks, rounding and shares of noise are drawn from the operating system's entropy.
    An update that is not finite counts as zeros; without a mechanism the server leaves
    it out.

    Args:
      mechanism: `Server.mechanism`.
      update: Arrays in the structure of the server's template, of any library that
        numpy takes.
      message: The `message` of `Server.begin_round`.
      secret: A whole number below 2**126 that all draws follow from, for simulations
        that are to be repeated: another one for each client and round, and known to
        nobody else. None for the operating system's entropy.

    Returns:
      As many bytes as the mechanism's `uplink_bits`, rounded up; those of helpers are
      not among them. With random masks they are as many on average.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table, the update is not
        of numbers, or the message is not bytes.
      ValueError: If a number of the mechanism is still "auto", or the message is not of
        this mechanism and dimension.
    """
    codec, encoded = _encoded(mechanism, update, message, secret)
    content = encoded.message
    if "nonfinite_clients" in codec.needed_sums and not encoded.normed.is_finite:
        content = in_numpy.tree_map(lambda part: np.full_like(part, np.nan), content)
    return pack(content, codec)


def encode_integers(
    mechanism: mechanisms.Mechanism,
    update: Update,
    message: Data,
    secret: Optional[int] = None,
) -> dict[str, np.ndarray]:
    """A client's update as integers for a secure sum of the caller's own.

    The sums of each array over the clients, modulo 2^b with b of `Server.modulus_bits`,
    are for `Server.add_sum`.

    Args:
      mechanism: `Server.mechanism`, one whose server learns a sum alone.
      update: As for `encode`.
      message: As for `encode`.
      secret: As for `encode`.

    Returns:
      Arrays of int32 or int64 by name, each in [0, 2^b).

    Raises:
      TypeError: As for `encode`.
      ValueError: As for `encode`, or if the mechanism trusts the server.
    """
    check_sums_securely(mechanism)
    _, encoded = _encoded(mechanism, update, message, secret)
    return dict(encoded.message)


def check_sums_securely(mechanism: mechanisms.Mechanism) -> None:
    """Raises ValueError for a mechanism whose server is trusted with each message."""
    wanted = "one whose server learns a sum alone"
    checks.require(mechanism.sums_securely, "mechanism", wanted, mechanism.name)


def _encoded(
    mechanism: mechanisms.Mechanism, update: Update, message: Data, secret: Any
) -> tuple[Codec, Encoded]:
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise TypeError(checks.message("message", "bytes", message))
    vector, message = _flat(update), bytes(message)
    codec, shared = _shared(mechanism, len(vector), message)
    seed = None
    if codec.has_private_randomness:
        seed = in_numpy.fresh_seed()
    if secret is not None:
        sent = hashlib.sha256(message).hexdigest()
        about = f"client:{mechanism.identity}:{len(vector)}:{sent}"
        seed = np.array(philox.seed_from_int(secret, about), np.int64)
    padded = np.pad(vector, [0, codec.input_length - len(vector)])
    return codec, codec.encode(padded, shared, seed)


@functools.lru_cache(maxsize=1)
def _shared(
    mechanism: mechanisms.Mechanism, dimension: int, message: bytes
) -> tuple[Codec, Fields]:
    """The codec, and the decoded broadcast, of the last round in this process."""
    codec = _codec(mechanism, dimension)
    example = codec.broadcast(codec.initial_state(), np.zeros([2], np.int64))
    try:
        broadcast = unpack(message, example, codec, {})
    except ValueError as error:
        wanted = "that of Server.begin_round"
        raise ValueError(checks.message("message", wanted, len(message))) from error
    return codec, codec.decode_broadcast(broadcast)


@functools.lru_cache(maxsize=2)
def _codec(mechanism: mechanisms.Mechanism, dimension: int) -> Codec:
    for name in ("bits", "compression_rate"):
        wanted = "a number, as in Server.mechanism"
        value = getattr(mechanism, name, None)
        checks.require(value != fields.AUTO, name, wanted, value)
    return codecs.make_codec(mechanism, dimension)


def pack(
    message: Structure, codec: Codec, modulus_bits: Optional[Mapping[str, int]] = None
) -> bytes:
    """A codec's message or broadcast as bytes.

    Parts of one width stand together, and a part of varying length stands last.

    Args:
      message: Arrays by name, or an array.
      codec: The codec.
      modulus_bits: Bits of the parts that are residues; None for those of a message.
    """
    bits = codec.modulus_bits if modulus_bits is None else modulus_bits
    parts = _parts(message)
    for name, count in codec.counted.items():
        if name in parts:
            parts.setdefault(count, np.array(len(parts[name]), np.int32))
    data = []
    for width, names in _by_width(parts, codec, bits):
        arrays = [np.reshape(parts[name], [-1]) for name in names]
        same = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        data.append(_packed(same, width))
    return b"".join(data)


def unpack(
    data: Data,
    example: Structure,
    codec: Codec,
    modulus_bits: Optional[Mapping[str, int]] = None,
) -> Structure:
    """Inverts `pack`.

    Args:
      data: The bytes.
      example: A message of the same structure, shapes and dtypes.
      codec: The codec.
      modulus_bits: As for `pack`.

    Raises:
      TypeError: If the data are not bytes.
      ValueError: If there are not as many bytes as such a message has.
    """
    data = memoryview(data).cast("B")
    bits = codec.modulus_bits if modulus_bits is None else modulus_bits
    parts, begin = _parts(example), 0
    for name, count in codec.counted.items():
        if name in parts:
            parts.setdefault(count, np.array(0, np.int32))
    found: dict[str, np.ndarray] = {}
    for width, names in _by_width(parts, codec, bits):
        shapes = [list(parts[name].shape) for name in names]
        if names[0] in codec.counted:
            shapes[0][0] = int(found[codec.counted[names[0]]])
        sizes = [math.prod(shape) for shape in shapes]
        end = begin + -(-sum(sizes) * width // 8)
        if not begin <= end <= len(data):
            break
        dtype = parts[names[0]].dtype
        flat = _unpacked(data[begin:end], width, sum(sizes), dtype)
        pieces = np.split(flat, np.cumsum(sizes)[:-1])
        found.update(zip(names, map(np.reshape, pieces, shapes)))
        begin = end
    is_whole = len(found) == len(parts) and begin == len(data)
    checks.require(is_whole, "data", "the bytes of such a message", len(data))
    if list(parts) == [_WHOLE]:
        return found[_WHOLE]
    return collections.OrderedDict((name, found[name]) for name in parts)


def _parts(message: Structure) -> dict[str, np.ndarray]:
    if not isinstance(message, Mapping):
        message = {_WHOLE: message}
    return {name: np.asarray(part) for name, part in message.items()}


def _by_width(
    parts: Mapping[str, np.ndarray], codec: Codec, modulus_bits: Mapping[str, int]
) -> Iterator[tuple[int, list[str]]]:
    """The names of parts by their width in bits, those of varying length at the end."""
    by_width: dict[tuple[bool, int, str], list[str]] = {}
    for name, part in parts.items():
        width = 1 if part.dtype == np.bool_ else 8 * part.dtype.itemsize
        key = (name in codec.counted, modulus_bits.get(name, width), part.dtype.str)
        by_width.setdefault(key, []).append(name)
    for (_, width, _), names in sorted(by_width.items()):
        yield width, names


def _packed(values: np.ndarray, width: int) -> bytes:
    """Numbers of so many bits each, one after the other, the lowest bits first."""
    if 8 * values.dtype.itemsize == width and values.dtype != np.bool_:
        return values.astype(values.dtype.newbyteorder("<")).tobytes()
    groups = -(-len(values) // _WORD)
    padded = np.zeros([groups * _WORD], np.uint64)
    padded[: len(values)] = values
    columns = np.ascontiguousarray(padded.reshape([groups, _WORD]).T)
    words = np.zeros([width, groups], np.uint64)
    for place, column in enumerate(columns):
        word, shift = divmod(place * width, _WORD)
        words[word] |= column << np.uint64(shift)
        if shift + width > _WORD:
            words[word + 1] |= column >> np.uint64(_WORD - shift)
    return words.T.astype("<u8").tobytes()[: -(-len(values) * width // 8)]


def _unpacked(data: Data, width: int, number: int, dtype: np.dtype) -> np.ndarray:
    """Inverts `_packed` for a number of numbers."""
    if 8 * dtype.itemsize == width and dtype != np.bool_:
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    groups = -(-number // _WORD)
    padded = np.zeros([groups * width * 8], np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    words = padded.view("<u8").astype(np.uint64).reshape([groups, width])
    words = np.ascontiguousarray(words.T)
    columns = np.empty([_WORD, groups], np.uint64)
    for place in range(_WORD):
        word, shift = divmod(place * width, _WORD)
        columns[place] = words[word] >> np.uint64(shift)
        if shift + width > _WORD:
            columns[place] |= words[word + 1] << np.uint64(_WORD - shift)
    columns &= np.uint64((1 << width) - 1)
    return columns.T.reshape([-1])[:number].astype(dtype)
