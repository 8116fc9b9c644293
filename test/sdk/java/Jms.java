// SPDX-License-Identifier: Apache-2.0

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/** The same broker with a client that is no SDK of Azure: Qpid JMS. Arguments: the names of the scenarios to run. */
public final class Jms {
    private static final long PATIENCE = 10_000; // ms

    private Jms() {}

    public static void main(String[] args) throws Exception {
        Endpoints.trust();
        Harness.scenario("jms-tls", scene -> with(scene, Harness.TLS_CONNECTION_STRING, "amqps://", "", Jms::sendReceive));
        Harness.scenario("jms-send-receive", scene -> with(scene, "", Jms::sendReceive));
        Harness.scenario("jms-browse", scene -> with(scene, "", Jms::browse));
        Harness.scenario("jms-selector", scene -> with(scene, "", Jms::selector));
        Harness.scenario("jms-temporary", scene -> with(scene, "", Jms::temporary));
        Harness.scenario("jms-anonymous", scene -> with(scene, "", Jms::anonymous));
        Harness.scenario("jms-rollback", scene -> with(scene, "", Jms::rollback));
        Harness.scenario("jms-dead-letters",
            scene -> with(scene, "?jms.localMessageExpiry=false", Jms::deadLetters));
        Harness.run(List.of(args));
    }

    private interface Play {
        void run(Connection connection, String queue) throws Exception;
    }

    /** Connects as Microsoft's page on JMS does it: the name of the key and the key are user and password. */
    private static void with(Harness.Scene scene, String options, Play play) throws Exception {
        with(scene, Harness.CONNECTION_STRING, "amqp://", options, play);
    }

    private static void with(Harness.Scene scene, String connectionString, String scheme, String options, Play play)
            throws Exception {
        var parts = new HashMap<String, String>();
        for (String part : connectionString.split(";")) {
            parts.put(part.substring(0, part.indexOf('=')), part.substring(part.indexOf('=') + 1));
        }
        String address = URI.create(parts.get("Endpoint")).getAuthority();
        var factory = new JmsConnectionFactory(
            parts.get("SharedAccessKeyName"), parts.get("SharedAccessKey"), scheme + address + options);
        try (Connection connection = factory.createConnection()) {
            connection.start();
            play.run(connection, scene.queue);
        }
    }

    private static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static void send(Connection connection, String queue, String... texts) throws JMSException {
        try (Session session = session(connection); var producer = session.createProducer(session.createQueue(queue))) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    private static String text(Message m) throws JMSException {
        Harness.check(m != null, "nothing was received in time");
        return m instanceof BytesMessage b ? new String(b.getBody(byte[].class), StandardCharsets.UTF_8) : ((TextMessage) m).getText();
    }

    private static List<String> receive(Connection connection, String queue, int count) throws JMSException {
        List<String> got = new ArrayList<>();
        try (Session session = session(connection); MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            while (got.size() < count) {
                got.add(text(consumer.receive(PATIENCE)));
            }
        }
        return got;
    }

    /** Runs an action that the broker has to refuse as not implemented. */
    private static void notImplemented(Harness.Action action) throws Exception {
        try {
            action.run();
        } catch (JMSException e) {
            Harness.check(e.getMessage().contains("amqp:not-implemented"), "failed with " + e.getMessage() + ", want not-implemented");
            return;
        }
        throw new AssertionError("succeeded, want not-implemented");
    }

    private static void sendReceive(Connection connection, String queue) throws Exception {
        send(connection, queue, "a", "b");
        Harness.equal(receive(connection, queue, 2), List.of("a", "b"), "received");
    }

    private static void browse(Connection connection, String queue) throws Exception {
        send(connection, queue, "a", "b");
        try (Session session = session(connection)) {
            Queue q = session.createQueue(queue);
            notImplemented(() -> Collections.list(session.createBrowser(q).getEnumeration()));
        }
        Harness.equal(receive(connection, queue, 2), List.of("a", "b"), "after browsing received");
    }

    private static void selector(Connection connection, String queue) throws Exception {
        send(connection, queue, "a");
        try (Session session = session(connection)) {
            Queue q = session.createQueue(queue);
            notImplemented(() -> session.createConsumer(q, "color = 'red'"));
        }
        Harness.equal(receive(connection, queue, 1), List.of("a"), "received");
    }

    private static void temporary(Connection connection, String queue) throws Exception {
        try (Session session = session(connection)) {
            notImplemented(session::createTemporaryQueue);
            notImplemented(session::createTemporaryTopic);
        }
    }

    /** Where the peer does not offer senders without an address, Qpid attaches one for each message. */
    private static void anonymous(Connection connection, String queue) throws Exception {
        try (Session session = session(connection); var producer = session.createProducer(null)) {
            producer.send(session.createQueue(queue), session.createTextMessage("a"));
        }
        Harness.equal(receive(connection, queue, 1), List.of("a"), "received");
    }

    private static void rollback(Connection connection, String queue) throws Exception {
        send(connection, queue, "a");
        try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
                MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            Harness.equal(text(consumer.receive(PATIENCE)), "a", "received");
            session.rollback();
            Message again = consumer.receive(PATIENCE); // the lock lasts a minute
            Harness.equal(text(again), "a", "after the rollback received");
            Harness.equal(again.getJMSRedelivered(), true, "redelivered");
            session.commit();
        }
        send(connection, queue, "b");
        Harness.equal(receive(connection, queue, 1), List.of("b"), "after the commit received");
    }

    /** They are past their absolute-expiry-time, and Qpid drops what is unless an option forbids it. */
    private static void deadLetters(Connection connection, String queue) throws Exception {
        try (Session session = session(connection); var producer = session.createProducer(session.createQueue(queue))) {
            producer.setTimeToLive(100);
            producer.send(session.createTextMessage("late"));
        }
        Thread.sleep(300);
        try (Session session = session(connection); MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
            Harness.equal(consumer.receive(500), null, "received"); // and what is overdue is dead-lettered
        }
        Harness.equal(receive(connection, queue + "/$DeadLetterQueue", 1), List.of("late"), "dead letters");
    }
}
