# SPDX-License-Identifier: Apache-2.0
"""Puts on the wire whatever the Python SDK can write.

Arguments, each QUEUE=KIND: `whole` sends messages with ids and times to live to the queue, and `bare` without; both
then receive them and complete them. `late` sends three that nobody receives within their second. Prints `done` at
the end.
"""

import datetime
import os
import sys
import uuid

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

HOUR = datetime.timedelta(hours=1)
FAR = 4102542245678  # in 2100, milliseconds
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

APPLICATION = {
    "text": "a", "empty": "", "int": 7, "negative": -1, "double": 1.5, "yes": True, "no": False, "nothing": None,
    "uuid": ID, "when": datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc),
}


def messages(whole):
    """What there is of sections and bodies, with ids and times to live where they are asked for."""
    ids = (f"id-{i}" for i in range(100))

    def message(body, **fields):
        if whole:
            fields.update(message_id=next(ids), time_to_live=HOUR)
        return ServiceBusMessage(body, **fields)

    def annotated(header=None, properties=None, **sections):
        header, properties = header or {}, properties or {}
        if whole:
            header["time_to_live"], properties["message_id"] = 3600000, next(ids)
        return AmqpAnnotatedMessage(
            header=AmqpMessageHeader(**header) if header else None,
            properties=AmqpMessageProperties(**properties) if properties else None,
            **sections,
        )

    return [
        message("žluťoučký kůň", subject="created", application_properties=APPLICATION),
        message(b"\x00\xff", partition_key="p"),
        annotated(data_body=[b"\x00\x01", b"\xfe\xff"]),
        annotated(value_body={b"answer": 42, b"list": [1, b"two", None]}),
        annotated(value_body="text"),
        annotated(value_body=None),
        annotated(sequence_body=[[1, 2], [b"three"]]),
        annotated(
            data_body=b"everything",
            header={"durable": True, "priority": 7, "first_acquirer": True, "delivery_count": 2},
            delivery_annotations={"x-opt-hop": 1},
            annotations={"x-opt-partition-key": "group", "x-note": "n"},
            properties={
                "user_id": b"me", "to": "there", "subject": "s", "reply_to": "back", "correlation_id": "c",
                "content_type": "text/plain", "content_encoding": "gzip", "creation_time": FAR,
                "absolute_expiry_time": FAR, "group_id": "group", "group_sequence": 3, "reply_to_group_id": "other",
            },
            application_properties=APPLICATION,
            footer={"x-sum": "1234"},
        ),
    ]


def exchange(client, queue, whole):
    count = 0
    with client.get_queue_sender(queue) as sender:
        for m in messages(whole):
            sender.send_messages(m)
            count += 1
        batch = sender.create_message_batch()
        for m in messages(whole)[:3]:
            batch.add_message(m)
            count += 1
        sender.send_messages(batch)
    with client.get_queue_receiver(queue) as receiver:
        while count:
            some = receiver.receive_messages(count, max_wait_time=10)
            if not some:
                raise RuntimeError(f"{count} messages of {queue} have not come")
            for m in some:
                receiver.complete_message(m)
            count -= len(some)


with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as service:
    for name, kind in (a.split("=") for a in sys.argv[1:]):
        if kind == "late":
            second = datetime.timedelta(seconds=1)
            with service.get_queue_sender(name) as late:
                late.send_messages([ServiceBusMessage("x", message_id=f"{name}-{i}", time_to_live=second) for i in (1, 2, 3)])
        else:
            exchange(service, name, kind == "whole")
print("done")
