# SPDX-License-Identifier: Apache-2.0
"""The four settlements, and what each leaves behind."""

import time
from datetime import timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError

from harness import body, equal, fails_with, receive, receive_nothing, scenario


@scenario("complete")
def complete(scene):
    scene.sender().send_messages(ServiceBusMessage("done"))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    receiver.complete_message(m)
    equal(receiver.peek_messages(sequence_number=m.sequence_number), [], "what is left")


@scenario("abandon")
def abandon(scene):
    scene.sender().send_messages(ServiceBusMessage("again", application_properties={"kept": 1}))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    receiver.abandon_message(m)
    [again] = receive(receiver, 1)
    equal(again.delivery_count, 1, "delivery count")
    equal(again.application_properties, {b"kept": 1}, "application properties")
    equal(again.sequence_number, m.sequence_number, "sequence number")
    receiver.complete_message(again)


@scenario("max-delivery-count")
def max_delivery_count(scene):
    scene.sender().send_messages(ServiceBusMessage("poison"))
    receiver = scene.receiver()
    for i in range(3):
        [m] = receive(receiver, 1)
        equal(m.delivery_count, i, "delivery count")
        receiver.abandon_message(m)
    dead = scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [m] = receive(dead, 1)
    equal(m.dead_letter_reason, "MaxDeliveryCountExceeded", "reason")
    dead.complete_message(m)


@scenario("defer")
def defer(scene):
    scene.sender().send_messages([ServiceBusMessage("later"), ServiceBusMessage("now")])
    receiver = scene.receiver()
    later, now = receive(receiver, 2)
    receiver.defer_message(later)
    receiver.complete_message(now)
    receive_nothing(receiver)
    [peeked] = scene.receiver().peek_messages()
    equal(peeked.state, ServiceBusMessageState.DEFERRED, "state")
    [m] = receiver.receive_deferred_messages(later.sequence_number)
    equal(body(m), "later", "body")
    receiver.complete_message(m)
    fails_with(MessageNotFoundError, lambda: receiver.receive_deferred_messages(later.sequence_number))


@scenario("dead-letter")
def dead_letter(scene):
    scene.sender().send_messages(
        ServiceBusMessage("bad", message_id="m-bad", application_properties={"kept": "yes"})
    )
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    receiver.dead_letter_message(m, reason="Unreadable", error_description="It has no head.")
    receive_nothing(receiver)
    dead = scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal(d.message_id, "m-bad", "message id")
    equal(d.dead_letter_reason, "Unreadable", "reason")
    equal(d.dead_letter_error_description, "It has no head.", "description")
    equal(d.application_properties[b"kept"], b"yes", "kept")
    equal(d.sequence_number, m.sequence_number, "sequence number")
    dead.complete_message(d)
    equal(scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER).peek_messages(), [], "what is left")


@scenario("expire")
def expire(scene):
    scene.sender().send_messages(ServiceBusMessage("stale", time_to_live=timedelta(seconds=1)))
    time.sleep(1.1)
    receive_nothing(scene.receiver())
    dead = scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal(d.dead_letter_reason, "TTLExpiredException", "reason")
    dead.complete_message(d)
