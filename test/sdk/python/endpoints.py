# SPDX-License-Identifier: Apache-2.0
"""The other ways in: TLS, WebSocket, and the administration API over HTTPS."""

import time
from datetime import datetime, timedelta, timezone

from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

from harness import (
    ADMIN_CONNECTION_STRING,
    CA_FILE,
    TLS_CONNECTION_STRING,
    Scene,
    body,
    equal,
    fails_with,
    receive,
    scenario,
)


# This SDK goes to ports 5671 and 443 whatever the connection string says, unless it has a custom endpoint.
ENDPOINT = TLS_CONNECTION_STRING.split(";")[0].removeprefix("Endpoint=")


def secure_scene(queue, transport, connection_string, credential=None):
    options = {"transport_type": transport} if transport else {}
    return Scene(
        queue, connection_string, credential, connection_verify=CA_FILE, custom_endpoint_address=ENDPOINT, **options
    )


def send_and_receive(queue, transport, connection_string=TLS_CONNECTION_STRING, credential=None):
    scene = secure_scene(queue, transport, connection_string, credential)
    try:
        # A custom endpoint means WebSocket where nothing else is said.
        equal(scene.client._config.transport_type, transport or TransportType.AmqpOverWebsocket, "transport")
        scene.sender().send_messages([ServiceBusMessage("a"), ServiceBusMessage(b"b" * 200_000)])
        receiver = scene.receiver()
        for m in receive(receiver, 2):
            receiver.complete_message(m)
    finally:
        scene.close()


@scenario("tls")
def tls(scene):
    send_and_receive(scene.queue, TransportType.Amqp)


@scenario("websocket")
def websocket(scene):
    send_and_receive(scene.queue, TransportType.AmqpOverWebsocket)
    send_and_receive(scene.queue, None)


@scenario("custom-endpoint")
def custom_endpoint(scene):
    """The connection string is that of a namespace elsewhere, and so is the audience of every token."""
    elsewhere = TLS_CONNECTION_STRING.replace(ENDPOINT, "sb://contoso.servicebus.windows.net/")
    send_and_receive(scene.queue, TransportType.Amqp, elsewhere)
    send_and_receive(scene.queue, TransportType.AmqpOverWebsocket, elsewhere)
    wrong = elsewhere.partition(";SharedAccessKey=")[0] + ";SharedAccessKey=d3Jvbmc="
    refused = secure_scene(scene.queue, TransportType.Amqp, wrong)
    try:
        # This SDK does not say why a token was refused, only that it was not taken.
        fails_with(ServiceBusConnectionError, lambda: refused.sender())
    finally:
        refused.close()


class StaticCredential:
    """The token is for Service Bus, whatever the endpoint is."""

    def get_token(self, *scopes, **_):
        equal(scopes, ("https://servicebus.azure.net//.default",), "scopes")
        return AccessToken("eyJhbGciOiJub25lIn0.e30.", int(time.time()) + 3600)


@scenario("entra")
def entra(scene):
    """An app that signs in with Entra ID has the name of its namespace and a credential, whose token passes the
    endpoint."""
    send_and_receive(scene.queue, TransportType.Amqp, credential=StaticCredential())
    send_and_receive(scene.queue, TransportType.AmqpOverWebsocket, credential=StaticCredential())


@scenario("administration")
def administration(scene):
    with ServiceBusAdministrationClient.from_connection_string(
        ADMIN_CONNECTION_STRING, connection_verify=CA_FILE
    ) as admin:
        administer(scene, admin)


def administer(scene, admin):
    created = admin.create_queue(
        "made-queue",
        lock_duration=timedelta(seconds=45),
        max_delivery_count=7,
        requires_session=True,
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live=timedelta(hours=2),
        user_metadata="<made & marked>",
    )
    equal(created.lock_duration, timedelta(seconds=45), "lock duration")
    equal(created.requires_session, True, "requires session")
    queue = admin.get_queue("made-queue")
    equal(queue.max_delivery_count, 7, "max delivery count")
    equal(queue.default_message_time_to_live, timedelta(hours=2), "time to live")
    equal(queue.user_metadata, "<made & marked>", "user metadata")
    queue.max_delivery_count = 9
    admin.update_queue(queue)
    equal(admin.get_queue("made-queue").max_delivery_count, 9, "max delivery count after the update")
    names = [q.name for q in admin.list_queues()]
    equal({"made-queue", scene.queue} <= set(names), True, f"queues {names} have both:")
    fails_with(ResourceExistsError, lambda: admin.create_queue("made-queue"))

    scene.sender().send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    scene.sender().schedule_messages(ServiceBusMessage("c"), datetime.now(timezone.utc) + timedelta(minutes=1))
    runtime = admin.get_queue_runtime_properties(scene.queue)
    counts = (runtime.active_message_count, runtime.scheduled_message_count, runtime.total_message_count)
    equal(counts, (2, 1, 3), "counts")

    admin.create_topic("made-topic")
    admin.create_subscription("made-topic", "s")
    admin.delete_rule("made-topic", "s", "$Default")
    admin.create_rule("made-topic", "s", "r", filter=SqlRuleFilter("a = @x", {"x": 1}))
    admin.create_rule(
        "made-topic",
        "s",
        "c",
        filter=CorrelationRuleFilter(correlation_id="x", properties={"n": 1}),
        action=SqlRuleAction("SET b = 2"),
    )
    equal(sorted(rule.name for rule in admin.list_rules("made-topic", "s")), ["c", "r"], "rules")
    rule = admin.get_rule("made-topic", "s", "c")
    equal((rule.filter.correlation_id, rule.filter.properties), ("x", {"n": 1}), "filter")
    equal(rule.action.sql_expression, "SET b = 2", "action")
    sender = scene.topic_sender("made-topic")
    sender.send_messages([ServiceBusMessage("in", application_properties={"a": 1}), ServiceBusMessage("out")])
    receiver = scene.subscription("s", topic="made-topic")
    [m] = receive(receiver, 1)
    equal(body(m), "in", "body")
    receiver.complete_message(m)
    equal(admin.get_subscription_runtime_properties("made-topic", "s").total_message_count, 0, "messages left")

    admin.delete_rule("made-topic", "s", "c")
    admin.delete_subscription("made-topic", "s")
    admin.delete_topic("made-topic")
    admin.delete_queue("made-queue")
    fails_with(ResourceNotFoundError, lambda: admin.get_queue("made-queue"))
    fails_with(ResourceNotFoundError, lambda: admin.get_topic("made-topic"))
    equal(bool(admin.get_namespace_properties().name), True, "the namespace has a name:")
