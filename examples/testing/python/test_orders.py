# SPDX-License-Identifier: Apache-2.0

import unittest
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from broker import Broker


def setUpModule():
    global broker
    broker = Broker("../Config.json")


def tearDownModule():
    broker.stop()


class Orders(unittest.TestCase):
    def setUp(self):
        """A client of a namespace for this test alone."""
        self.name = self._testMethodName
        self.client = ServiceBusClient.from_connection_string(broker.connection_string(self.name), retry_total=0)
        self.addCleanup(self.client.close)

    def send(self, message, queue="test-orders"):
        with self.client.get_queue_sender(queue) as sender:
            sender.send_messages(message)

    def test_order_is_received(self):
        self.send(ServiceBusMessage("one coffee"))
        with self.client.get_queue_receiver("test-orders") as receiver:
            [message] = receiver.receive_messages(max_wait_time=5)
            self.assertEqual(str(message), "one coffee")
            receiver.complete_message(message)
        self.assertEqual(broker.control(self.name, "GET", "messages/test-orders"), [])

    def test_order_expires_after_an_hour(self):
        self.send(ServiceBusMessage("one coffee", time_to_live=timedelta(hours=1)))
        broker.control(self.name, "POST", "clock", {"advance": "2h"})
        [dead] = broker.control(self.name, "GET", "messages/test-orders/$DeadLetterQueue")
        self.assertEqual(dead["deadLetterReason"], "TTLExpiredException")

    def test_full_queue_is_an_error(self):
        broker.control(self.name, "POST", "faults", {"entity": "test-orders", "operation": "send", "error": "full", "times": 1})
        with self.assertRaises(ServiceBusError):
            self.send(ServiceBusMessage("one coffee"))
        self.send(ServiceBusMessage("one coffee"))

    def test_misspelt_queue_is_an_error(self):
        with self.assertRaises(ServiceBusError):  # this SDK does not say more, since it asks for a token first
            self.send(ServiceBusMessage("one coffee"), queue="test-order")


if __name__ == "__main__":
    unittest.main()
