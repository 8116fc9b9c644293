# SPDX-License-Identifier: Apache-2.0
#
# A client on proton-c: it sends messages to a queue, receives them, and drains the link. It prints how each
# was settled and what came. Its arguments are a URL and the address of the queue, and "plain" if the broker
# knows neither annotations of a delivery nor how to drain.

import os
import sys
import uuid

from proton import Message, byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort
from proton.handlers import MessagingHandler
from proton.reactor import Container

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

PROPERTIES = {
    "bool": True, "ubyte": ubyte(200), "ushort": ushort(60000), "uint": uint(4000000000), "ulong": ulong(2**64 - 1),
    "byte": byte(-100), "short": short(-30000), "int": int32(-2000000000), "long": -2**63, "float": float32(0.5),
    "double": 2.25, "char": char("ß"), "timestamp": timestamp(1700000000123), "uuid": ID, "text": "grüße",
    "symbol": symbol("sym"), "binary": b"\x00\xff",
}

MESSAGES = [
    Message(body=b"bytes", inferred=True),
    Message(body="text"),
    Message(body=["a", 1, True], inferred=True),
    Message(body={"key": [1, {"deep": None}]}),
    Message(body=b"value that is binary"),
    Message(body=None),
    Message(body="header", durable=True, priority=7, ttl=3600.0, first_acquirer=True),
    Message(body="properties", id="id", user_id=b"guest", address="to", subject="subject", reply_to="reply", correlation_id=ID,
            content_type="text/plain", content_encoding="gzip", expiry_time=1700000000.5, creation_time=1700000000.25,
            group_id="group", group_sequence=3, reply_to_group_id="other"),
    Message(body="application properties", properties=PROPERTIES),
    Message(body="annotations", annotations={symbol("x-opt-a"): 1}, instructions={symbol("x-opt-b"): "hop"}),
    Message(body=b"x" * 200000, inferred=True),
]


class Client(MessagingHandler):
    def __init__(self, url, address, plain=""):
        super().__init__(prefetch=0, auto_settle=True)
        self.url, self.address = url, address
        self.plain = plain == "plain"
        self.to_send = [m for m in MESSAGES if not (self.plain and m.instructions)]
        self.count = len(self.to_send)
        self.settled = 0
        self.got = 0

    def on_start(self, event):
        self.connection = event.container.connect(self.url, reconnect=False, heartbeat=20)
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event):
        while self.sender.credit and self.to_send:
            self.sender.send(self.to_send.pop(0))

    def on_settled(self, event):
        if event.link.is_receiver:
            return
        print("sent", event.delivery.remote_state)
        self.settled += 1
        if self.settled == self.count:
            self.receiver = event.container.create_receiver(self.connection, self.address)
            self.receiver.flow(self.count)

    def on_message(self, event):
        print("got", event.message.properties, str(event.message.body)[:100])
        self.got += 1
        if self.got < self.count:
            return
        if self.plain:
            self.done(event)
        else:
            self.receiver.drain(10)

    def on_link_flow(self, event):
        if event.link.is_receiver and self.got == self.count and not event.link.draining():
            print("drained, credit left", event.link.credit)
            self.done(event)

    def done(self, event):
        print("done")
        event.connection.close()

    def on_transport_error(self, event):
        self.fail("transport: %s" % event.transport.condition)

    def on_link_error(self, event):
        self.fail("link: %s" % event.link.remote_condition)

    def on_session_error(self, event):
        self.fail("session: %s" % event.session.remote_condition)

    def fail(self, why):
        print(why, file=sys.stderr, flush=True)
        os._exit(1)


Container(Client(*sys.argv[1:])).run()
