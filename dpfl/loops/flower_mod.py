# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The clients' half of a private strategy in Flower, and what they are sent.

app = ClientApp(mods=[private_mod])
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from dpfl import checks, mechanisms
from dpfl.loops import encode

# Name of the record with the mechanism, and of that with the update.
RECORD = "dpfl"


def private_mod(message: Message, context: Any, call_next: Callable) -> Message:
    """Encodes what a client has trained, less what it received, as a mod of ClientApp.

    The reply has the mechanism's bytes alone, and no metrics. Arrays of other dtypes
    than floats stay as they are at the server. An error here is a failed client there.

    Args:
      message: A message of the server; those that do not train pass as they are.
      context: Flower's, passed on.
      call_next: The app, or the next mod.
    """
    if message.metadata.message_type.partition(".")[0] != "train":
        return call_next(message, context)
    records = dict(message.content)
    sent = records.pop(RECORD, None)
    checks.require(sent is not None, "strategy", "a PrivateStrategy", [*records])
    message.content = RecordDict(records)
    received = floats(*message.content.array_records.values())
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    trained = floats(*reply.content.array_records.values())
    shapes, found = ({k: v.shape for k, v in x.items()} for x in (received, trained))
    checks.require(found == shapes, "arrays", f"of the shapes {shapes}", found)
    update = {name: trained[name] - start for name, start in received.items()}
    mechanism = mechanisms.MECHANISMS[sent["name"]](**json.loads(sent["fields"]))
    data = encode(mechanism, update, sent.get("message", b""))
    reply.content = RecordDict({RECORD: ConfigRecord({"update": data})})
    return reply


def request(mechanism: mechanisms.Mechanism, message: bytes) -> ConfigRecord:
    """The record that a round's clients are sent, for `private_mod`."""
    fields = json.dumps(dataclasses.asdict(mechanism))
    own = {"name": mechanism.name, "fields": fields, "message": message}
    return ConfigRecord({key: value for key, value in own.items() if value})


def floats(*records: ArrayRecord) -> dict[str, np.ndarray]:
    """The arrays of floats in records, by name."""
    arrays = {name: x.numpy() for record in records for name, x in record.items()}
    return {name: x for name, x in arrays.items() if x.dtype.kind == "f"}
