# SPDX-License-Identifier: Apache-2.0
"""An app whose broker is killed again and again. See killed.js."""

import os
import sys
import threading
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage

queue = sys.argv[1]
AHEAD = 20  # messages that are sent before the first of them is received
latest = {"a": 0, "b": 0}
over = threading.Event()
lock = threading.Lock()


def say(*words):
    with lock:
        print(*words, flush=True)


def again(work):
    """Does work with a new client each time, until the end."""
    while not over.is_set():
        try:
            with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"], retry_total=0) as client:
                work(client)
        except Exception as err:  # nobody listens, or the connection is cut
            print(type(err).__name__, err, file=sys.stderr)
            time.sleep(0.02)


def send(session):
    n = 1

    def work(client):
        nonlocal n
        with client.get_queue_sender(queue) as sender:
            while not over.is_set():
                sender.send_messages(ServiceBusMessage(f"{session} {n}", message_id=f"{session}-{n}", session_id=session))
                say("sent", session, n)
                n += 1
                time.sleep(0.01)
                while n > latest[session] + AHEAD and not over.is_set():
                    time.sleep(0.01)

    again(work)


def receive(session):
    def work(client):
        with client.get_queue_receiver(queue, session_id=session, max_wait_time=1) as receiver:
            while not over.is_set():
                for message in receiver.receive_messages(max_message_count=1, max_wait_time=1):
                    latest[session] = int(str(message).split()[1])
                    say("got", str(message), message.sequence_number)
                    receiver.complete_message(message)
                    say("done", str(message))

    again(work)


workers = [threading.Thread(target=what, args=(session,)) for what in (send, receive) for session in ("a", "b")]
for worker in workers:
    worker.start()
sys.stdin.read()
over.set()
for worker in workers:
    worker.join()
