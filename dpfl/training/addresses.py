# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Where workers of other programs listen, as the flag says it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from dpfl import checks


class Address(NamedTuple):
    """Where a worker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address(text: str) -> Address:
    """Returns the address that is written as HOST:PORT.

    Args:
      text: A name or an IPv4 address, or an IPv6 address in brackets, and the port.

    Raises:
      ValueError: If it is not written so.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon and port.isascii() and port.isdigit()):
        raise ValueError(checks.message("workers", "HOST:PORT each", text))
    checks.integer("the port of a worker", int(port), 1, 65535)
    return Address(host, int(port))


def addresses(text: Optional[str]) -> tuple[Address, ...]:
    """Returns the addresses that are written with commas between them.

    Args:
      text: None or "" for none.

    Raises:
      ValueError: If one is not written as HOST:PORT, or is there twice.
    """
    found = tuple(address(part.strip()) for part in (text or "").split(",") if part)
    for i, place in enumerate(found):
        if place in found[:i]:
            raise ValueError(checks.message("workers", "different ones", str(place)))
    return found
