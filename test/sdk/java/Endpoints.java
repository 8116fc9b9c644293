// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenCredential;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import java.io.FileInputStream;
import java.net.MalformedURLException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import reactor.core.publisher.Mono;

/** The other ways in: TLS, WebSocket, and the administration API over HTTPS. */
final class Endpoints {
    private static final URI ENDPOINT = endpoint(Harness.TLS_CONNECTION_STRING);
    private static final URI ADMIN_ENDPOINT = endpoint(Harness.ADMIN_CONNECTION_STRING);

    private Endpoints() {}

    static void add() {
        Harness.scenario("tls", scene -> sendAndReceive(scene, AmqpTransportType.AMQP));
        Harness.scenario("websocket", scene -> sendAndReceive(scene, AmqpTransportType.AMQP_WEB_SOCKETS));
        Harness.scenario("custom-endpoint", Endpoints::customEndpoint);
        Harness.scenario("entra", Endpoints::entra);
        Harness.scenario("administration", Endpoints::administration);
    }

    /** Makes this process trust the authority in CA_FILE. Before anything uses TLS. */
    static void trust() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (var pem = new FileInputStream(Harness.CA_FILE)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        Path file = Files.createTempFile("trust", ".p12");
        try (var out = Files.newOutputStream(file)) {
            store.store(out, "changeit".toCharArray());
        }
        file.toFile().deleteOnExit();
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    private static URI endpoint(String connectionString) {
        return URI.create(connectionString.split(";")[0].substring("Endpoint=".length()));
    }

    private static void sendAndReceive(Harness.Scene scene, AmqpTransportType transport) throws Exception {
        sendAndReceive(scene, transport, Harness.TLS_CONNECTION_STRING);
    }

    private static void sendAndReceive(Harness.Scene scene, AmqpTransportType transport, String connectionString)
            throws Exception {
        try (var secure = new Harness.Scene(scene.queue, connectionString)) {
            sendAndReceive(secure, transport, secure.builder);
        }
    }

    /** An app that signs in with Entra ID has the name of its namespace and a credential, whose token passes the endpoint. */
    private static void entra(Harness.Scene scene) throws Exception {
        TokenCredential credential = request -> {
            // The token is for Service Bus, whatever the endpoint is.
            Harness.equal(request.getScopes(), List.of("https://servicebus.azure.net/.default"), "scopes");
            return Mono.just(new AccessToken("eyJhbGciOiJub25lIn0.e30.", OffsetDateTime.now().plusHours(1)));
        };
        for (AmqpTransportType transport : List.of(AmqpTransportType.AMQP, AmqpTransportType.AMQP_WEB_SOCKETS)) {
            try (var secure = new Harness.Scene(scene.queue, Harness.TLS_CONNECTION_STRING)) {
                sendAndReceive(secure, transport, secure.builder.credential("contoso.servicebus.windows.net", credential));
            }
        }
    }

    private static void sendAndReceive(Harness.Scene secure, AmqpTransportType transport, ServiceBusClientBuilder builder)
            throws Exception {
        // This SDK takes the port from here, and from a connection string for the emulator only.
        builder.transportType(transport).customEndpointAddress("https://" + ENDPOINT.getAuthority());
        secure.sender().sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage(new byte[200_000])));
        ServiceBusReceiverClient receiver = secure.receiver();
        Harness.receive(receiver, 2).forEach(receiver::complete);
    }

    /** The connection string is that of a namespace elsewhere, and so is the audience of every token. */
    private static void customEndpoint(Harness.Scene scene) throws Exception {
        String elsewhere = Harness.TLS_CONNECTION_STRING.replace(ENDPOINT.toString(), "sb://contoso.servicebus.windows.net/");
        sendAndReceive(scene, AmqpTransportType.AMQP, elsewhere);
        sendAndReceive(scene, AmqpTransportType.AMQP_WEB_SOCKETS, elsewhere);
        String wrong = elsewhere.replaceAll("SharedAccessKey=.*", "SharedAccessKey=d3Jvbmc=");
        try {
            sendAndReceive(scene, AmqpTransportType.AMQP, wrong);
        } catch (ServiceBusException e) {
            Harness.equal(e.getReason(), ServiceBusFailureReason.UNAUTHORIZED, "reason");
            Harness.check(e.getMessage().contains("InvalidSignature"), "it says why: " + e.getMessage());
            return;
        }
        throw new AssertionError("sent with a wrong key");
    }

    /** This SDK administers on port 443 alone: requests are sent where the namespace is. */
    private static final class ToEndpoint implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            try {
                context.getHttpRequest().setUrl(UrlBuilder.parse(context.getHttpRequest().getUrl())
                    .setPort(ADMIN_ENDPOINT.getPort()).toUrl());
            } catch (MalformedURLException e) {
                return Mono.error(e);
            }
            return next.process();
        }
    }

    private static void administration(Harness.Scene scene) {
        ServiceBusAdministrationClient admin = new ServiceBusAdministrationClientBuilder()
            .connectionString(Harness.ADMIN_CONNECTION_STRING.replace(":" + ADMIN_ENDPOINT.getPort(), ""))
            .addPolicy(new ToEndpoint()).buildClient();
        QueueProperties created = admin.createQueue("made-queue", new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(45)).setMaxDeliveryCount(7).setSessionRequired(true)
            .setDeadLetteringOnMessageExpiration(true).setDefaultMessageTimeToLive(Duration.ofHours(2))
            .setUserMetadata("<made & marked>"));
        Harness.equal(created.getLockDuration(), Duration.ofSeconds(45), "lock duration");
        Harness.equal(created.isSessionRequired(), true, "requires session");
        QueueProperties queue = admin.getQueue("made-queue");
        Harness.equal(queue.getMaxDeliveryCount(), 7, "max delivery count");
        Harness.equal(queue.getDefaultMessageTimeToLive(), Duration.ofHours(2), "time to live");
        Harness.equal(queue.getUserMetadata(), "<made & marked>", "user metadata");
        Harness.equal(admin.updateQueue(queue.setMaxDeliveryCount(9)).getMaxDeliveryCount(), 9, "max delivery count after the update");
        List<String> names = admin.listQueues().stream().map(QueueProperties::getName).toList();
        Harness.check(names.containsAll(List.of("made-queue", scene.queue)), "queues " + names);
        try {
            admin.createQueue("made-queue");
            throw new AssertionError("made a queue twice");
        } catch (ResourceExistsException e) {
            Harness.equal(e.getResponse().getStatusCode(), 409, "status");
        }

        scene.sender().sendMessages(List.of(Harness.messages("a", "b")));
        scene.sender().scheduleMessage(new ServiceBusMessage("c"), OffsetDateTime.now().plusMinutes(1));
        var runtime = admin.getQueueRuntimeProperties(scene.queue);
        Harness.equal(List.of(runtime.getActiveMessageCount(), runtime.getScheduledMessageCount()), List.of(2, 1), "counts");
        Harness.equal(runtime.getTotalMessageCount(), 3L, "total");

        admin.createTopic("made-topic");
        admin.createSubscription("made-topic", "s", "r", new CreateSubscriptionOptions(),
            new CreateRuleOptions(new SqlRuleFilter("a = 1")));
        CorrelationRuleFilter correlation = new CorrelationRuleFilter("x");
        correlation.getProperties().put("n", 1);
        admin.createRule("made-topic", "c", "s", new CreateRuleOptions(correlation).setAction(new SqlRuleAction("SET b = 2")));
        Harness.equal(admin.listRules("made-topic", "s").stream().map(RuleProperties::getName).sorted().toList(), List.of("c", "r"), "rules");
        RuleProperties rule = admin.getRule("made-topic", "s", "c");
        Harness.equal(((CorrelationRuleFilter) rule.getFilter()).getCorrelationId(), "x", "correlation id");
        // This SDK reads every value as text.
        Harness.equal(((CorrelationRuleFilter) rule.getFilter()).getProperties(), Map.of("n", "1"), "properties");
        Harness.equal(((SqlRuleAction) rule.getAction()).getSqlExpression(), "SET b = 2", "action");
        ServiceBusMessage in = new ServiceBusMessage("in");
        in.getApplicationProperties().put("a", 1);
        scene.topicSender("made-topic").sendMessages(List.of(in, new ServiceBusMessage("out")));
        ServiceBusReceiverClient receiver = scene.subscription("made-topic", "s");
        ServiceBusReceivedMessage m = Harness.receiveOne(receiver);
        Harness.equal(m.getBody().toString(), "in", "body");
        receiver.complete(m);
        Harness.equal(admin.getSubscriptionRuntimeProperties("made-topic", "s").getTotalMessageCount(), 0L, "messages left");

        admin.deleteRule("made-topic", "s", "c");
        admin.deleteSubscription("made-topic", "s");
        admin.deleteTopic("made-topic");
        admin.deleteQueue("made-queue");
        Harness.equal(admin.getQueueExists("made-queue"), false, "the queue exists");
        Harness.equal(admin.getTopicExists("made-topic"), false, "the topic exists");
        Harness.check(!admin.getNamespaceProperties().getName().isEmpty(), "the namespace has no name");
    }
}
