# SPDX-License-Identifier: Apache-2.0
"""What is sent comes out as it went in."""

import datetime
import uuid

from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError

from harness import bodies, body, equal, fails_with, receive, receive_nothing, scenario


@scenario("send-receive")
def send_receive(scene):
    properties = {
        "message_id": "m-1",
        "subject": "created",
        "content_type": "text/plain",
        "correlation_id": "c-1",
        "to": "there",
        "reply_to": "back",
        "time_to_live": datetime.timedelta(minutes=1),
    }
    scene.sender().send_messages(
        ServiceBusMessage("žluťoučký kůň", application_properties={"kind": "test"}, **properties)
    )
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    equal(body(m), "žluťoučký kůň", "body")
    equal(m.application_properties, {b"kind": b"test"}, "application properties")
    for name, want in properties.items():
        equal(getattr(m, name), want, name)
    equal(m.delivery_count, 0, "delivery count")
    equal(m.state, ServiceBusMessageState.ACTIVE, "state")
    equal(m.expires_at_utc, m.enqueued_time_utc + properties["time_to_live"], "expires at")
    now = datetime.datetime.now(datetime.timezone.utc)
    equal(abs(now - m.enqueued_time_utc) < datetime.timedelta(seconds=120), True, f"enqueued {m.enqueued_time_utc}, just now:")
    equal(m.locked_until_utc > now, True, f"locked until {m.locked_until_utc}, later than now:")
    equal(m.sequence_number > 0, True, f"sequence number {m.sequence_number} above zero:")
    equal(isinstance(m.lock_token, uuid.UUID), True, "lock token is an UUID:")
    receiver.complete_message(m)


@scenario("property-types")
def property_types(scene):
    properties = {
        "text": "a",
        "empty": "",
        "int": 7,
        "negative": -1,
        "big": 2**31 - 1,  # an int is 32 bits to this SDK
        "double": 1.5,
        "yes": True,
        "no": False,
        "nothing": None,
        "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    }
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.timezone.utc)
    scene.sender().send_messages(ServiceBusMessage("x", application_properties={**properties, "when": when}))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    # This SDK hands text out as bytes, and a timestamp as milliseconds.
    got = {k.decode(): v for k, v in m.application_properties.items()}
    equal(got.pop("when"), int(when.timestamp() * 1000), "when")
    want = {k: v.encode() if isinstance(v, str) else v for k, v in properties.items()}
    equal(got, want, "application properties")
    receiver.complete_message(m)


@scenario("body-types")
def body_types(scene):
    scene.sender().send_messages(
        [
            AmqpAnnotatedMessage(data_body=[b"\x00\x01", b"\xfe\xff"]),
            AmqpAnnotatedMessage(value_body={b"answer": 42, b"list": [1, b"two"]}),
            AmqpAnnotatedMessage(sequence_body=[[1, 2], [b"three"]]),
        ]
    )
    receiver = scene.receiver()
    data, value, sequence = receive(receiver, 3)
    equal((data.body_type, list(data.body)), (AmqpMessageBodyType.DATA, [b"\x00\x01", b"\xfe\xff"]))
    equal((value.body_type, value.body), (AmqpMessageBodyType.VALUE, {b"answer": 42, b"list": [1, b"two"]}))
    equal((sequence.body_type, list(sequence.body)), (AmqpMessageBodyType.SEQUENCE, [[1, 2], [b"three"]]))
    for m in (data, value, sequence):
        receiver.complete_message(m)


@scenario("batch")
def batch(scene):
    sender = scene.sender()
    messages = sender.create_message_batch()
    count = 0
    while True:
        try:
            messages.add_message(ServiceBusMessage(b"x" * 10_000, message_id=f"m-{count}"))
        except MessageSizeExceededError:
            break
        count += 1
        equal(count <= 100, True, "the batch takes no more than its size:")
    equal(count >= 20, True, f"the batch takes 20 messages of 10,000 bytes, it took {count}:")
    sender.send_messages(messages)
    receiver = scene.receiver()
    got = receive(receiver, count)
    equal([m.message_id for m in got], [f"m-{i}" for i in range(count)], "message ids")
    for m in got:
        receiver.complete_message(m)
    receive_nothing(receiver)


@scenario("receive-and-delete")
def receive_and_delete(scene):
    scene.sender().send_messages([ServiceBusMessage(text) for text in "abc"])
    receiver = scene.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    equal(bodies(receive(receiver, 3)), ["a", "b", "c"], "bodies")
    equal(scene.receiver().peek_messages(), [], "what is left")


@scenario("peek")
def peek(scene):
    scene.sender().send_messages([ServiceBusMessage(text) for text in "abcde"])
    receiver = scene.receiver()
    [locked] = receive(receiver, 1)
    peeker = scene.receiver()
    first = peeker.peek_messages(2)
    rest = peeker.peek_messages(10, sequence_number=first[-1].sequence_number + 1)
    equal(bodies(first + rest), ["a", "b", "c", "d", "e"], "peeked")
    equal([m.locked_until_utc is None for m in first], [False, True], "no lock of peeked messages, the first of which is locked")
    receiver.complete_message(locked)


@scenario("large-message")
def large_message(scene):
    content = bytes(i * 31 & 0xFF for i in range(255 * 1024))
    scene.sender().send_messages(ServiceBusMessage(content))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    equal(b"".join(m.body) == content, True, "the body is as it was:")
    receiver.complete_message(m)


@scenario("message-too-large")
def message_too_large(scene):
    sender = scene.sender()
    fails_with(MessageSizeExceededError, lambda: sender.send_messages(ServiceBusMessage(bytes(257 * 1024))))
    sender.send_messages(ServiceBusMessage("small"))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    equal(body(m), "small", "body")
    receiver.complete_message(m)


@scenario("subscribe")
def subscribe(scene):
    count = 50
    scene.sender().send_messages([ServiceBusMessage(str(i)) for i in range(count)])
    got = []
    receiver = scene.receiver(prefetch_count=10)
    for m in receiver:
        got.append(int(body(m)))
        receiver.complete_message(m)
        if len(got) == count:
            break
    equal(got, list(range(count)), "bodies")
    receive_nothing(scene.receiver())


@scenario("send-again")
def send_again(scene):
    sender, receiver = scene.sender(), scene.receiver()
    sender.send_messages(ServiceBusMessage("again", partition_key="p-1"))
    for _ in range(2):  # this SDK sends annotations that it has received back as binary
        [m] = receive(receiver, 1)
        equal((body(m), m.partition_key), ("again", "p-1"), "received")
        sender.send_messages(m)
        receiver.complete_message(m)
    [m] = receive(receiver, 1)
    equal(m.raw_amqp_message.annotations[b"x-opt-partition-key"], b"p-1", "partition key")
    receiver.complete_message(m)
