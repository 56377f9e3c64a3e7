# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a client does: it trains. The mod makes its reply private."""

import model
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from dpfl.loops.flower import private_mod

app = ClientApp(mods=[private_mod])


@app.train()
def train(message, context):
    arrays = message.content["arrays"]
    weights = [arrays[name].numpy() for name in model.NAMES]
    client = context.node_config["partition-id"]
    number = message.content["config"]["server-round"] - 1
    ends = model.trained(weights, client, number)
    trained = {name: Array(w) for name, w in zip(model.NAMES, ends)}
    number = int(model.task().clients.sizes[client])
    metrics = MetricRecord({"num-examples": number})
    content = RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics})
    return Message(content, reply_to=message)
