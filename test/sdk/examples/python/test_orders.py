# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import unittest
import urllib.request
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError


def setUpModule():
    """One broker for all tests of the module, on any free port."""
    global overdue, broker
    overdue = subprocess.Popen(
        ["overdue", "broker", "--broker-listen", "127.0.0.1:0", "--isolate", "--broker-expiry", "eager", "--log-level", "warn"],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = next(line for line in overdue.stdout if line.startswith("Endpoint=sb://"))
    broker = line.removeprefix("Endpoint=sb://").split(";")[0]  # host:port


def tearDownModule():
    overdue.terminate()
    overdue.wait()
    overdue.stdout.close()


class Orders(unittest.TestCase):
    def setUp(self):
        """A client of a namespace for this test alone. The broker creates its queues on first use."""
        self.namespace = self._testMethodName
        self.client = ServiceBusClient.from_connection_string(
            f"Endpoint=sb://{broker};SharedAccessKeyName={self.namespace};SharedAccessKey=any;UseDevelopmentEmulator=true",
            retry_total=0,
        )
        self.addCleanup(self.client.close)

    def control(self, method, path, body=None):
        """Reads or changes the state of the broker over HTTP."""
        url = f"http://{broker}/_overdue/{path}?namespace={self.namespace}"
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as response:
            return json.loads(response.read() or "null")

    def send(self, message):
        with self.client.get_queue_sender("orders") as sender:
            sender.send_messages(message)

    def test_order_is_received(self):
        self.send(ServiceBusMessage("one coffee"))
        with self.client.get_queue_receiver("orders") as receiver:
            [message] = receiver.receive_messages(max_wait_time=5)
            self.assertEqual(str(message), "one coffee")
            receiver.complete_message(message)
        self.assertEqual(self.control("GET", "messages/orders"), [])

    def test_order_expires_after_an_hour(self):
        self.send(ServiceBusMessage("one coffee", time_to_live=timedelta(hours=1)))
        self.control("POST", "clock", {"advance": "2h"})
        self.addCleanup(self.control, "POST", "clock", {"offset": "0s"})
        [dead] = self.control("GET", "messages/orders/$DeadLetterQueue")
        self.assertEqual(dead["deadLetterReason"], "TTLExpiredException")

    def test_full_queue_is_an_error(self):
        self.control("POST", "faults", {"entity": "orders", "operation": "send", "error": "full", "times": 1})
        with self.assertRaises(ServiceBusError):
            self.send(ServiceBusMessage("one coffee"))
        self.send(ServiceBusMessage("one coffee"))
        self.control("POST", "reset")


if __name__ == "__main__":
    unittest.main()
