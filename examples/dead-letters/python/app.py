# SPDX-License-Identifier: Apache-2.0
"""Handles the dead letters of a queue: orders that came too late go to one queue, orders that consumers could not
handle go to another."""

import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

LATE = {"TTLExpiredException", "DeadlineExceeded"}

with ServiceBusClient.from_connection_string(sys.argv[1]) as client:
    senders = {queue: client.get_queue_sender(queue) for queue in ("late-orders", "failed-orders")}
    with client.get_queue_receiver("handled-orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        for message in receiver:  # for ever
            queue = "late-orders" if message.dead_letter_reason in LATE else "failed-orders"
            # The copy keeps the message-id, so that a second copy after a crash can be recognised.
            senders[queue].send_messages(ServiceBusMessage(b"".join(message.body), message_id=message.message_id))
            receiver.complete_message(message)
            print(f"{message.message_id}: {message.dead_letter_reason}, now in {queue}", flush=True)
