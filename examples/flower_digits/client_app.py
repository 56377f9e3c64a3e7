# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a client does: five passes over its digits. The mod makes its reply private."""

import model
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from dpfl.loops.flower import private_mod
from dpfl.tasks import clients

LEARNING_RATE = 0.1

app = ClientApp(mods=[private_mod])


@app.train()
def train(message, context):
    task = model.task()
    own = np.array([context.node_config["partition-id"]])
    images, labels = task.clients.read(own)
    number = message.content["config"]["server-round"] - 1
    [order] = clients.local_orders(task.clients.sizes, own, number, task.config)
    arrays = message.content["arrays"]
    weights = [arrays[name].numpy() for name in model.NAMES]
    for begin in range(0, len(order), task.config.batch_size):
        batch = order[begin : begin + task.config.batch_size]
        slopes = model.gradient(weights, images[batch], labels[batch])
        weights = [w - LEARNING_RATE * slope for w, slope in zip(weights, slopes)]
    trained = {
        name: Array(w.astype(np.float32)) for name, w in zip(model.NAMES, weights)
    }
    metrics = MetricRecord({"num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics})
    return Message(content, reply_to=message)
