# SPDX-License-Identifier: Apache-2.0
"""An app that sends and receives all the time. See steady.js.

A receiver of this SDK ends when its retries are over, so what receives is begun again, as its samples do."""

import os
import sys
import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

RETRIES = {"retry_total": 20, "retry_backoff_factor": 0.2, "retry_backoff_max": 1, "retry_mode": "fixed"}


def client():
    return ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"], **RETRIES)


queue = sys.argv[1]
got = set()
over = threading.Event()


def receive():
    while not over.is_set():
        try:
            with client() as c, c.get_queue_receiver(queue, max_wait_time=1) as receiver:
                while not over.is_set():
                    for message in receiver.receive_messages(max_message_count=20, max_wait_time=1):
                        got.add(str(message))
                        receiver.complete_message(message)
        except Exception as err:  # what was received and not completed comes again
            print(f"receiving: {type(err).__name__}", file=sys.stderr)


stopping = threading.Event()


def watch():
    for _ in sys.stdin:
        sent.clear()
    stopping.set()


sent = []
threading.Thread(target=watch, daemon=True).start()
receiver_thread = threading.Thread(target=receive)
receiver_thread.start()
n = 0
with client() as c, c.get_queue_sender(queue) as sender:
    while not stopping.is_set():
        try:
            sender.send_messages(ServiceBusMessage(f"m{n}", message_id=f"m{n}", application_properties={"overdue-within": "1h"}))
            sent.append(f"m{n}")
            if len(sent) == 1:
                print("sends", flush=True)
        except Exception as err:
            print(err, file=sys.stderr)
            continue
        n += 1
        time.sleep(0.005)
until = time.time() + 60
while set(sent) - got and time.time() < until:
    time.sleep(0.1)
print(f"sent {len(sent)}")
print(f"missing {len(set(sent) - got)}")
over.set()
receiver_thread.join()
