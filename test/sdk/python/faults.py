# SPDX-License-Identifier: Apache-2.0
"""What is refused, and what is survived."""

import urllib.request

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from harness import (
    CUT_URL,
    FORWARDED_CONNECTION_STRING,
    Scene,
    bodies,
    equal,
    fails_with,
    receive,
    scenario,
)


@scenario("entity-not-found")
def entity_not_found(scene):
    # The service says so on $cbs, which to this SDK means a problem of authentication.
    error = ServiceBusAuthenticationError
    fails_with(error, lambda: scene.sender("nowhere").send_messages(ServiceBusMessage("x")))
    fails_with(error, lambda: scene.receiver("nowhere").receive_messages(max_wait_time=1))
    fails_with(error, lambda: scene.receiver("nowhere").peek_messages())


@scenario("reconnect")
def reconnect(scene):
    cut = Scene(scene.queue, FORWARDED_CONNECTION_STRING)
    try:
        sender, receiver = cut.sender(), cut.receiver()
        for text in ("before", "after the first", "after the second"):
            sender.send_messages(ServiceBusMessage(text))
            got = receive(receiver, 1)
            equal(bodies(got), [text], "bodies")
            receiver.complete_message(got[0])
            with urllib.request.urlopen(urllib.request.Request(CUT_URL, method="POST")) as answer:
                equal(answer.status, 204, "status of the cut")
    finally:
        cut.close()
