# SPDX-License-Identifier: Apache-2.0
"""Sends one message and a batch of two with the SDK's tracing on, by OpenTelemetry. The SDK puts the
context of a span of its own into each message."""

import datetime
import os

from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
settings.tracing_implementation = OpenTelemetrySpan


def message(name):
    return ServiceBusMessage("hello", message_id=name, time_to_live=datetime.timedelta(seconds=1))


with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(message("single"))
        batch = sender.create_message_batch()
        for name in ("first", "second"):
            batch.add_message(message(name))
        sender.send_messages(batch)
