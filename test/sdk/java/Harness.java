// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * Runs scenarios a few at a time, each with clients of its own on the queue that has its name, and
 * prints {@code ok NAME} or {@code FAIL NAME: why} for each.
 */
final class Harness {
    static final String CONNECTION_STRING = required("SERVICEBUS_CONNECTION_STRING");
    /** The same namespace through a forwarder, whose connections a POST to CUT_URL cuts. */
    static final String FORWARDED_CONNECTION_STRING = required("SERVICEBUS_FORWARDED_CONNECTION_STRING");
    static final String CUT_URL = required("SERVICEBUS_CUT_URL");

    /** The same over TLS, to an authority in CA_FILE. */
    static final String TLS_CONNECTION_STRING = required("SERVICEBUS_TLS_CONNECTION_STRING");
    /** Its administration API, likewise. */
    static final String ADMIN_CONNECTION_STRING = required("SERVICEBUS_ADMIN_CONNECTION_STRING");
    static final String CA_FILE = required("SERVICEBUS_CA_FILE");

    private static final int CONCURRENCY = 10;
    private static final int PATIENCE_SECONDS = 240;

    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    private Harness() {}

    interface Scenario {
        void play(Scene scene) throws Exception;
    }

    interface Action {
        void run() throws Exception;
    }

    static void scenario(String name, Scenario scenario) {
        SCENARIOS.put(name, scenario);
    }

    /**
     * What a scenario works with: the queue or topic of its name, and senders and receivers, which share a
     * connection and are closed behind it.
     */
    static final class Scene implements AutoCloseable {
        final String queue;
        final ServiceBusClientBuilder builder;
        private final Deque<AutoCloseable> open = new ArrayDeque<>();

        Scene(String queue, String connectionString) {
            this.queue = queue;
            this.builder = new ServiceBusClientBuilder()
                .connectionString(connectionString)
                .retryOptions(new AmqpRetryOptions()
                    .setDelay(Duration.ofMillis(200))
                    .setTryTimeout(Duration.ofSeconds(10)));
        }

        <T extends AutoCloseable> T opened(T client) {
            open.push(client);
            return client;
        }

        ServiceBusSenderClient sender() {
            return sender(queue);
        }

        ServiceBusSenderClient sender(String name) {
            return opened(builder.sender().queueName(name).buildClient());
        }

        ServiceBusReceiverClient receiver() {
            return receiver(queue);
        }

        ServiceBusReceiverClient receiver(String name) {
            return opened(builder.receiver().queueName(name).maxAutoLockRenewDuration(Duration.ZERO)
                .disableAutoComplete().buildClient());
        }

        ServiceBusSenderClient topicSender(String topic) {
            return opened(builder.sender().topicName(topic).buildClient());
        }

        ServiceBusReceiverClient subscription(String topic, String name) {
            return opened(builder.receiver().topicName(topic).subscriptionName(name)
                .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
        }

        ServiceBusReceiverClient deleting() {
            return opened(builder.receiver().queueName(queue)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        }

        ServiceBusReceiverClient deadLetters() {
            return opened(builder.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .disableAutoComplete().buildClient());
        }

        @Override
        public void close() throws Exception {
            while (!open.isEmpty()) {
                open.pop().close();
            }
        }
    }

    static ServiceBusMessage[] messages(String... bodies) {
        return Arrays.stream(bodies).map(ServiceBusMessage::new).toArray(ServiceBusMessage[]::new);
    }

    /** Receives exactly count messages, in one or more calls. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> got = new ArrayList<>();
        while (got.size() < count) {
            List<ServiceBusReceivedMessage> some =
                receiver.receiveMessages(count - got.size(), Duration.ofSeconds(60)).stream().toList();
            check(!some.isEmpty(), "received " + got.size() + " messages in time, want " + count);
            got.addAll(some);
        }
        return got;
    }

    static ServiceBusReceivedMessage receiveOne(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    /** Fails unless nothing arrives within half a second. */
    static void receiveNothing(ServiceBusReceiverClient receiver) {
        equal(bodies(receiver.receiveMessages(1, Duration.ofMillis(500)).stream().toList()), List.of(), "what is left");
    }

    static List<String> bodies(List<ServiceBusReceivedMessage> messages) {
        return messages.stream().map(m -> m.getBody().toString()).toList();
    }

    static void equal(Object got, Object want, String what) {
        check(Objects.deepEquals(got, want), what + " " + got + ", want " + want);
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /** Runs an action, which has to fail for that reason. */
    static void failsWith(ServiceBusFailureReason want, Action action) throws Exception {
        try {
            action.run();
        } catch (ServiceBusException e) {
            if (e.getReason() != want) {
                throw new AssertionError("failed for " + e.getReason() + ", want " + want, e);
            }
            return;
        }
        throw new AssertionError("succeeded, want " + want);
    }

    /** The same for what this SDK does not wrap: the condition as the broker has it, somewhere below the exception. */
    static void refusedWith(AmqpErrorCondition want, Action action) throws Exception {
        try {
            action.run();
        } catch (RuntimeException e) {
            for (Throwable t = e; t != null; t = t.getCause()) {
                if (t instanceof AmqpException amqp && amqp.getErrorCondition() == want) {
                    return;
                }
            }
            throw new AssertionError("failed, want " + want, e);
        }
        throw new AssertionError("succeeded, want " + want);
    }

    static void sleepUntil(OffsetDateTime when) throws InterruptedException {
        Thread.sleep(Math.max(0, Duration.between(OffsetDateTime.now(), when).toMillis()));
    }

    static void eventually(String what, BooleanSupplier condition) throws InterruptedException {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120); !condition.getAsBoolean(); Thread.sleep(20)) {
            check(System.nanoTime() < end, what + ": not within 120 s");
        }
    }

    private static void play(String name) throws Exception {
        try (Scene scene = new Scene(name, CONNECTION_STRING)) {
            SCENARIOS.get(name).play(scene);
        }
    }

    /** Runs what was added and exits; the exit code says whether all of it passed. */
    static void run(List<String> only) throws InterruptedException {
        var pool = Executors.newFixedThreadPool(CONCURRENCY);
        Map<String, Future<?>> results = new LinkedHashMap<>();
        for (String name : SCENARIOS.keySet()) {
            if (only.isEmpty() || only.contains(name)) {
                results.put(name, pool.submit(() -> {
                    play(name);
                    return null;
                }));
            }
        }
        // Those in a queue wait for those before them, hence one bound for all.
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS * (1L + results.size() / CONCURRENCY));
        int passed = 0;
        int failed = 0;
        for (var result : results.entrySet()) {
            try {
                result.getValue().get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                System.out.println("ok " + result.getKey());
                passed++;
            } catch (TimeoutException e) {
                System.out.println("FAIL " + result.getKey() + ": not done in time");
                failed++;
            } catch (java.util.concurrent.ExecutionException e) {
                System.out.println("FAIL " + result.getKey() + ": " + trace(e.getCause()));
                failed++;
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.out.flush();
        Runtime.getRuntime().halt(failed == 0 && passed > 0 ? 0 : 1); // threads that hang must not keep it
    }

    private static String trace(Throwable e) {
        var text = new StringWriter();
        e.printStackTrace(new PrintWriter(text));
        return text.toString().strip().replaceAll("\\s*\\n\\s*", " | ");
    }

    private static String required(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            System.err.println(name + " is not set");
            System.exit(2);
        }
        return value;
    }
}
