# SPDX-License-Identifier: Apache-2.0
"""Messages for later."""

from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from harness import bodies, equal, fails_with, receive, scenario


def soon(seconds):
    """A time to the millisecond, which is what the wire can carry."""
    at = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def not_before(at):
    now = datetime.now(timezone.utc)
    equal(now >= at - timedelta(milliseconds=50), True, f"came at {now}, not before {at}:")


@scenario("schedule")
def schedule(scene):
    at = soon(15)  # opening a receiver takes this SDK seconds on a busy machine
    numbers = scene.sender().schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], at)
    peeked = scene.receiver().peek_messages(10)
    state = ServiceBusMessageState.SCHEDULED
    equal([(m.sequence_number, m.state) for m in peeked], [(n, state) for n in numbers], "peeked")
    receiver = scene.receiver()
    got = receive(receiver, 2)
    not_before(at)
    equal(sorted(bodies(got)), ["a", "b"], "bodies")
    for m in got:
        equal(m.scheduled_enqueue_time_utc, at, "scheduled enqueue time")
        receiver.complete_message(m)


@scenario("schedule-by-property")
def schedule_by_property(scene):
    at = soon(3)
    scene.sender().send_messages(ServiceBusMessage("later", scheduled_enqueue_time_utc=at))
    receiver = scene.receiver()
    [m] = receive(receiver, 1)
    not_before(at)
    receiver.complete_message(m)


@scenario("cancel")
def cancel(scene):
    sender = scene.sender()
    numbers = sender.schedule_messages([ServiceBusMessage(text) for text in "abc"], soon(60))
    sender.cancel_scheduled_messages([numbers[0], numbers[2]])
    equal(bodies(scene.receiver().peek_messages(10)), ["b"], "what is left")
    sender.cancel_scheduled_messages(numbers[1])
    equal(scene.receiver().peek_messages(10), [], "what is left")
    fails_with(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(numbers[1]))
