# SPDX-License-Identifier: Apache-2.0
"""Sends an order that nobody receives, and reads it from the dead-letter queue."""

import sys
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

with ServiceBusClient.from_connection_string(sys.argv[1]) as client:
    with client.get_queue_sender("sidecar-orders") as sender:
        sender.send_messages(ServiceBusMessage("one coffee", message_id="order-1", time_to_live=timedelta(seconds=2)))
    print("sent order-1", flush=True)

    with client.get_queue_receiver("sidecar-orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        for message in receiver.receive_messages(max_message_count=1, max_wait_time=10):
            print(message.message_id, str(message), message.dead_letter_reason)
            receiver.complete_message(message)
