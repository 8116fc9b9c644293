# SPDX-License-Identifier: Apache-2.0
#
# A broker on proton-c: a queue exists from the moment a link names it, and keeps messages as the
# bytes they came in. Its argument is the address to listen on; it serves until it is killed.
#
# Some names are special: "missing…" does not exist, and what is sent to "reject…", "release…" and
# "modify…" gets that outcome.

import collections
import itertools
import sys

from proton import Condition, Delivery, Handler, Terminus
from proton.reactor import Container

CREDIT = 20  # messages that a sender may have under way


class Queue:
    def __init__(self):
        self.waiting = collections.deque()
        self.receivers = []


class Broker(Handler):
    def __init__(self, address):
        super().__init__()
        self.address = address
        self.queues = collections.defaultdict(Queue)
        self.count = itertools.count(1)

    def on_reactor_init(self, event):
        event.reactor.listen(self.address)

    def on_connection_remote_open(self, event):
        event.connection.container = "proton"
        event.connection.open()

    def on_session_remote_open(self, event):
        event.session.open()

    def on_link_remote_open(self, event):
        link = event.link
        theirs = link.remote_source if link.is_sender else link.remote_target
        name = "dynamic-%d" % next(self.count) if theirs.dynamic else theirs.address
        if not name or name.startswith("missing"):
            (link.source if link.is_sender else link.target).type = Terminus.UNSPECIFIED
            link.condition = Condition("amqp:not-found", "there is no %s" % name)
            link.open()
            link.close()
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        (link.source if link.is_sender else link.target).address = name
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        link.node, link.partial = name, b""
        link.open()
        if link.is_receiver:
            link.flow(CREDIT)
        else:
            self.queues[name].receivers.append(link)

    def on_link_flow(self, event):
        link = event.link
        if link.is_sender and link in self.queues[link.node].receivers:
            self.dispatch(link.node)

    def on_link_remote_detach(self, event):
        self.gone(event.link)
        event.link.detach()

    def on_link_remote_close(self, event):
        self.gone(event.link)
        event.link.close()

    def on_session_remote_close(self, event):
        for queue in self.queues.values():
            for link in [r for r in queue.receivers if r.session == event.session]:
                self.gone(link)
        event.session.close()

    def on_connection_remote_close(self, event):
        event.connection.close()

    def on_transport_closed(self, event):
        for queue in self.queues.values():
            queue.receivers = [r for r in queue.receivers if r.connection != event.connection]

    def on_delivery(self, event):
        delivery, link = event.delivery, event.link
        if link.is_receiver:
            self.arrived(link, delivery)
        elif delivery.updated and (delivery.settled or delivery.remote_state):
            self.settled(link, delivery)

    def arrived(self, link, delivery):
        """Takes what has come of a message."""
        if delivery.aborted:
            link.partial = b""
            link.advance()
            delivery.settle()
            link.flow(1)
            return
        while delivery.pending:
            link.partial += link.recv(delivery.pending)
        if delivery.partial or link.current != delivery:
            return
        raw, link.partial = link.partial, b""
        link.advance()
        if link.node.startswith("reject"):
            delivery.local.condition = Condition("proton:no", "the queue rejects")
            delivery.update(Delivery.REJECTED)
        elif link.node.startswith("release"):
            delivery.update(Delivery.RELEASED)
        elif link.node.startswith("modify"):
            delivery.local.failed = True
            delivery.local.undeliverable = True
            delivery.update(Delivery.MODIFIED)
        else:
            delivery.update(Delivery.ACCEPTED)
            self.queues[link.node].waiting.append(raw)
        delivery.settle()
        link.flow(1)
        self.dispatch(link.node)

    def settled(self, link, delivery):
        """Takes back what a receiver does not want."""
        if delivery.remote_state in (Delivery.RELEASED, Delivery.MODIFIED):
            self.queues[link.node].waiting.appendleft(delivery.raw)
        delivery.settle()
        self.dispatch(link.node)

    def gone(self, link):
        if link.is_sender and hasattr(link, "node"):
            receivers = self.queues[link.node].receivers
            if link in receivers:
                receivers.remove(link)

    def dispatch(self, name):
        """Gives what waits to those who have credit, and ends drains."""
        queue = self.queues[name]
        for link in queue.receivers:
            while queue.waiting and link.credit > 0:
                delivery = link.delivery("%d" % next(self.count))
                delivery.raw = queue.waiting.popleft()
                link.stream(delivery.raw)
                if link.remote_snd_settle_mode == link.SND_SETTLED:
                    delivery.settle()
                link.advance()
            if link.drain_mode:
                link.drained()


Container(Broker(sys.argv[1])).run()
