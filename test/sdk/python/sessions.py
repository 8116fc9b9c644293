# SPDX-License-Identifier: Apache-2.0
"""Sessions: one holder at a time, in order, with a state."""

import time
from datetime import datetime, timedelta, timezone

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from harness import bodies, body, equal, fails_with, receive, receive_nothing, scenario
from locks import sleep_past


def in_session(session, *texts):
    return [ServiceBusMessage(text, session_id=session) for text in texts]


@scenario("session")
def session(scene):
    scene.sender().send_messages(in_session("a", "a1", "a2", "a3") + in_session("b", "b1"))
    receiver = scene.receiver(session_id="a")
    equal(receiver.session.session_id, "a", "session id")
    equal(receiver.session.locked_until_utc > datetime.now(timezone.utc), True, "it is locked:")
    equal(bodies(receiver.peek_messages(10)), ["a1", "a2", "a3"], "peeked")
    got = receive(receiver, 3)
    equal([(body(m), m.session_id) for m in got], [("a1", "a"), ("a2", "a"), ("a3", "a")], "received")
    receiver.complete_message(got[0])
    receiver.defer_message(got[1])
    receiver.dead_letter_message(got[2], reason="Bad")
    receive_nothing(receiver)
    [deferred] = receiver.receive_deferred_messages(got[1].sequence_number)
    equal(body(deferred), "a2", "body of the deferred message")
    receiver.complete_message(deferred)

    equal(receiver.session.get_state(), None, "state")
    receiver.session.set_state(b"step 2")
    equal(receiver.session.get_state(), b"step 2", "state")
    fails_with(SessionCannotBeLockedError, lambda: scene.receiver(session_id="a"))
    receiver.close()
    equal(scene.receiver(session_id="a").session.get_state(), b"step 2", "state to the next holder")

    dead = scene.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal((body(d), d.session_id), ("a3", "a"), "dead-lettered")
    dead.complete_message(d)


@scenario("session-next")
def session_next(scene):
    scene.sender().send_messages(in_session("a", "a1") + in_session("b", "b1"))
    receivers = [scene.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) for _ in range(2)]
    equal(sorted(r.session.session_id for r in receivers), ["a", "b"], "sessions")
    for receiver in receivers:
        [m] = receive(receiver, 1)
        equal(body(m), receiver.session.session_id + "1", "body")
        receiver.complete_message(m)
        receiver.close()
    fails_with(
        OperationTimeoutError,
        lambda: scene.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1),
    )


@scenario("session-renew")
def session_renew(scene):
    scene.sender().send_messages(in_session("a", "a1"))
    receiver = scene.receiver(session_id="a")
    [m] = receive(receiver, 1)
    first = receiver.session.locked_until_utc
    time.sleep(8)
    renewed = receiver.session.renew_lock()
    equal(renewed >= first + timedelta(seconds=7.9), True, f"renewed to {renewed}, 8 s after {first}:")
    sleep_past(first, 0.5)
    receiver.complete_message(m)


@scenario("session-lock-lost")
def session_lock_lost(scene):
    scene.sender().send_messages(in_session("a", "a1"))
    receiver = scene.receiver(session_id="a")
    [m] = receive(receiver, 1)
    sleep_past(receiver.session.locked_until_utc, 0.3)
    fails_with(SessionLockLostError, lambda: receiver.complete_message(m))
    again = scene.receiver(session_id="a")
    [n] = receive(again, 1)
    equal(n.delivery_count, 1, "delivery count")


@scenario("session-topic")
def session_topic(scene):
    scene.topic_sender().send_messages([*in_session("a", "a1"), ServiceBusMessage("none")])
    receiver = scene.subscription("s", session_id=NEXT_AVAILABLE_SESSION)
    equal(receiver.session.session_id, "a", "session id")
    [m] = receive(receiver, 1)
    equal(body(m), "a1", "body")
    receiver.complete_message(m)
    dead = scene.subscription("s", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    [d] = receive(dead, 1)
    equal((body(d), d.dead_letter_reason), ("none", "Session id is null."), "dead-lettered")
    dead.complete_message(d)


@scenario("session-list")
def session_list(scene):
    ids = [f"s{i:03}" for i in range(120)]  # more than one page
    scene.sender().send_messages([ServiceBusMessage("x", session_id=i) for i in ids])
    equal(sorted(scene.client.list_queue_sessions(scene.queue)), ids, "sessions")
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    scene.receiver(session_id="s042").session.set_state(b"seen")
    changed = scene.client.list_queue_sessions(scene.queue, state_updated_after=before)
    equal(list(changed), ["s042"], "sessions whose state has changed")
