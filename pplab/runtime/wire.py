"""Messages between the notebook, the supervisor of a run and its ranks.

A message is a JSON object and any number of byte strings ("blobs": arrays, a pickled payload on its
way *to* the ranks). Nothing that comes back from a rank is ever unpickled.

Frame: 8 bytes big-endian (length of the JSON), the JSON with ``"blobs": [lengths]``, the blobs.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Message = tuple[dict[str, Any], list[bytes]]
_HEAD = struct.Struct(">Q")


def pack(event: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """One frame."""
    head = json.dumps({**event, "blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join((_HEAD.pack(len(head)), head, *blobs))


def send(sock: socket.socket, event: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Write one message; raises OSError when the other side is gone."""
    sock.sendall(pack(event, blobs))


class Inbox:
    """Collects bytes and hands out the messages that are complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add bytes as they came; yields every message they complete."""
        self._bytes += data
        while True:
            if len(self._bytes) < _HEAD.size:
                return
            (length,) = _HEAD.unpack_from(self._bytes)
            if len(self._bytes) < _HEAD.size + length:
                return
            event = json.loads(bytes(self._bytes[_HEAD.size : _HEAD.size + length]))
            sizes = event.pop("blobs")
            end = _HEAD.size + length + sum(sizes)
            if len(self._bytes) < end:
                return
            blobs, at = [], _HEAD.size + length
            for size in sizes:
                blobs.append(bytes(self._bytes[at : at + size]))
                at += size
            del self._bytes[:end]
            yield event, blobs


def receive(sock: socket.socket) -> Message | None:
    """Read exactly one message, blocking; None when the other side closed."""
    head = _exactly(sock, _HEAD.size)
    if head is None:
        return None
    body = _exactly(sock, _HEAD.unpack(head)[0])
    if body is None:
        return None
    event = json.loads(body)
    blobs = []
    for size in event.pop("blobs"):
        blob = _exactly(sock, size)
        if blob is None:
            return None
        blobs.append(blob)
    return event, blobs


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(1 << 20, size - len(data)))
        if not part:
            return None
        data += part
    return bytes(data)


def array_to_blob(array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """An array as (description, bytes): dtype and shape travel in the JSON."""
    array = np.ascontiguousarray(array)
    return {"dtype": array.dtype.str, "shape": list(array.shape)}, array.tobytes()


def array_from_blob(about: dict[str, Any], blob: bytes) -> NDArray[Any]:
    """The array `array_to_blob` described."""
    dtype = np.dtype(about["dtype"])
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are not accepted from a rank")
    return np.frombuffer(blob, dtype=dtype).reshape(about["shape"])
