# SPDX-License-Identifier: Apache-2.0
"""Locks: kept, renewed by the SDK itself, and lost."""

import threading
import time
from datetime import datetime, timedelta, timezone
from unittest import mock

from azure.servicebus import AutoLockRenewer, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus._pyamqp.performatives import TransferFrame
from azure.servicebus.exceptions import MessageLockLostError

from harness import bodies, equal, fails_with, receive, receive_nothing, scenario


def sleep_past(when, seconds):
    """Sleeps until so long after when."""
    time.sleep(max(0, (when - datetime.now(timezone.utc)).total_seconds() + seconds))


@scenario("renew-lock")
def renew_lock(scene):
    scene.sender().send_messages(ServiceBusMessage("mine"))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    first = m.locked_until_utc
    time.sleep(8)
    renewed = receiver.renew_message_lock(m)
    equal(renewed >= first + timedelta(seconds=7.9), True, f"renewed to {renewed}, 8 s after {first}:")
    equal(m.locked_until_utc, renewed, "locked until")
    sleep_past(first, 0.5)
    receiver.complete_message(m)
    receive_nothing(scene.receiver())


@scenario("auto-renew")
def auto_renew(scene):
    scene.sender().send_messages(ServiceBusMessage("mine"))
    with AutoLockRenewer() as renewer:
        receiver = scene.receiver(auto_lock_renewer=renewer)
        [m] = receive(receiver, 1)
        sleep_past(m.locked_until_utc, 1.5)
        equal(m.auto_renew_error, None, "error of the renewal")
        receiver.complete_message(m)
    receive_nothing(scene.receiver())


@scenario("lock-lost")
def lock_lost(scene):
    scene.sender().send_messages([ServiceBusMessage("slow"), ServiceBusMessage("slower")])
    receiver = scene.receiver()
    slow, slower = receive(receiver, 2)
    sleep_past(slower.locked_until_utc, 0.3)
    # The SDK looks at its own clock first, and asks nobody.
    fails_with(MessageLockLostError, lambda: receiver.complete_message(slow))
    # Without that it hears it from the broker.
    with mock.patch.object(ServiceBusReceivedMessage, "_lock_expired", False):
        fails_with(MessageLockLostError, lambda: receiver.complete_message(slow))
        fails_with(MessageLockLostError, lambda: receiver.renew_message_lock(slower))
    again = receive(scene.receiver(), 2)
    equal([m.delivery_count for m in again], [1, 1], "delivery counts")


@scenario("settle-over-management")
def settle_over_management(scene):
    scene.sender().send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    receiver = scene.receiver()
    a, b = receive(receiver, 2)
    # As if the link of the delivery were gone: the SDK settles by lock token.
    for m in (a, b):
        m._is_deferred_message = True
    receiver.complete_message(a)
    receiver.dead_letter_message(b, reason="Late")
    dead = scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal(d.dead_letter_reason, "Late", "reason")
    dead.complete_message(d)


@scenario("concurrent-requests")
def concurrent_requests(scene):
    # The SDK reads its count of deliveries, writes the frame and counts on, without a lock: threads that
    # renew and peek at a time send several deliveries of one id. Here they always do.
    threads = 4
    scene.sender().send_messages([ServiceBusMessage(str(i)) for i in range(threads)])
    receiver = scene.receiver()
    mine = receive(receiver, threads)
    receiver.peek_messages()  # opens the links
    connection = receiver._handler._connection
    together, write, ids = threading.Barrier(threads), connection._process_outgoing_frame, []

    def written_together(channel, frame):
        if isinstance(frame, TransferFrame):
            ids.append(frame.delivery_id)
            together.wait(20)
        return write(channel, frame)

    failed = []

    def request(message):
        try:
            receiver.renew_message_lock(message)
            equal(bodies(receiver.peek_messages(sequence_number=message.sequence_number)), bodies([message]), "peeked")
        except Exception as err:  # reported below
            failed.append(err)

    with mock.patch.object(connection, "_process_outgoing_frame", written_together):
        asking = [threading.Thread(target=request, args=[m]) for m in mine]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    equal(failed, [], "requests that failed")
    equal(len(set(ids)) < len(ids), True, f"delivery-ids {ids} that repeat:")
    for m in mine:
        receiver.complete_message(m)
    receive_nothing(scene.receiver())
