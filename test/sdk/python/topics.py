# SPDX-License-Identifier: Apache-2.0
"""Topics: who gets what. This SDK changes rules by the administration API only: see endpoints.py."""

from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from harness import bodies, body, equal, receive, receive_nothing, scenario


def order(text, subject, **properties):
    return ServiceBusMessage(text, subject=subject, application_properties=properties)


@scenario("topic")
def topic(scene):
    sender = scene.topic_sender()
    sender.send_messages(
        [
            order("small-red", "order", color="red", amount=5),
            order("large-red", "order", color="red", amount=20, secret="x"),
            order("blue", "order", color="blue", amount=1),
            order("blue-note", "note", color="blue", amount=1),
            order("vip", "vip-order", amount=1),
        ]
    )
    for name, want in {
        "all": ["small-red", "large-red", "blue", "blue-note", "vip"],
        "none": [],
        "sql": ["large-red", "vip"],
        "correlation": ["blue"],
    }.items():
        receiver = scene.subscription(name)
        got = receive(receiver, len(want))
        equal(bodies(got), want, name)
        if name == "sql":
            # An action leaves its rule's name on the copy.
            after = {b"color": b"red", b"amount": 20, b"seen": 21, b"RuleName": b"large-red"}
            equal(got[0].application_properties, after, "after the action")
        for m in got:
            receiver.complete_message(m)
        receive_nothing(receiver)
    receiver = scene.subscription("all")
    sender.send_messages(ServiceBusMessage("bad"))
    [m] = receive(receiver, 1)
    receiver.dead_letter_message(m, reason="Bad")
    dead = scene.subscription("all", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal(d.dead_letter_reason, "Bad", "reason")
    dead.complete_message(d)


@scenario("topic-schedule")
def topic_schedule(scene):
    sender = scene.topic_sender()
    at = datetime.now(timezone.utc) + timedelta(seconds=4)  # a busy machine cancels late
    [cancelled] = sender.schedule_messages(ServiceBusMessage("never"), at)
    sender.schedule_messages(ServiceBusMessage("later"), at)
    sender.cancel_scheduled_messages(cancelled)
    receiver = scene.subscription("all")
    [m] = receive(receiver, 1)
    equal(datetime.now(timezone.utc) >= at - timedelta(milliseconds=50), True, "it comes at its time:")
    equal(body(m), "later", "body")
    receiver.complete_message(m)


@scenario("duplicate")
def duplicate(scene):
    sender = scene.sender()
    for text in ("first", "second"):
        sender.send_messages(ServiceBusMessage(text, message_id="same"))
    sender.send_messages(ServiceBusMessage("other", message_id="other"))
    receiver = scene.receiver()
    got = receive(receiver, 2)
    equal(bodies(got), ["first", "other"], "bodies")
    for m in got:
        receiver.complete_message(m)


@scenario("forward")
def forward(scene):
    scene.sender().send_messages(ServiceBusMessage("passed on"))
    receiver = scene.receiver("forward-to")
    [m] = receive(receiver, 1)
    equal(body(m), "passed on", "body")
    equal(m.enqueued_sequence_number > 0, True, f"enqueued sequence number {m.enqueued_sequence_number} above zero:")
    receiver.complete_message(m)
