// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * An app that sends and receives all the time. See steady.js.
 *
 * <p>The processor of this SDK stops for good when its link ends at the wrong moment. After each message it waits for the
 * outcome of its settlement, without a limit (MessagePump.complete of azure-messaging-servicebus 7.17). The link promises an
 * end of that wait: it answers what is unanswered when it closes, and until then a timer does so after the try timeout
 * (ReceiverUnsettledDeliveries of azure-core-amqp 2.12). But sendDisposition checks that the link is open on one thread and
 * notes the settlement on another, and in between the link can close. Such a settlement is never sent and never answered.
 * The processor receives nothing more, reports no error and even renews the lock. So an app has to notice that and to begin
 * a new processor, as the SDK recommends.
 */
public final class Steady {
    private Steady() {}

    private static final Duration TRY_TIMEOUT = Duration.ofSeconds(10);

    /** The timer of the SDK ends what waits for an outcome within twice the try timeout. */
    private static final Duration HANGS = TRY_TIMEOUT.multipliedBy(3);

    private static volatile boolean stopping;

    /** The call that does not return, as in a dump of the threads. Anything else that keeps messages from coming is no excuse. */
    private static boolean settles() {
        return Thread.getAllStackTraces().values().stream().flatMap(Arrays::stream).anyMatch(call ->
            call.getClassName().equals("com.azure.messaging.servicebus.MessagePump") && call.getMethodName().equals("complete"));
    }

    /** What the threads of the SDK are doing. */
    private static void dump() {
        Thread.getAllStackTraces().forEach((thread, calls) -> {
            if (Arrays.stream(calls).anyMatch(call -> call.getClassName().startsWith("com.azure."))) {
                System.err.println(thread.getName() + ": " + Arrays.toString(calls));
            }
        });
    }

    public static void main(String[] args) throws Exception {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(20)
            .setDelay(Duration.ofMillis(200)).setTryTimeout(TRY_TIMEOUT);
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING")).retryOptions(retries);
        Set<String> got = ConcurrentHashMap.newKeySet();
        AtomicInteger handled = new AtomicInteger();
        List<String> sent = new CopyOnWriteArrayList<>();
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    sent.clear();
                }
            } catch (java.io.IOException e) {
                System.err.println(e);
            }
            stopping = true;
        });
        watch.setDaemon(true);
        watch.start();
        var processors = builder.processor().queueName(args[0])
            .processMessage(context -> {
                got.add(context.getMessage().getBody().toString());
                handled.incrementAndGet();
            })
            .processError(context -> System.err.println(context.getException())); // it recovers from most
        ServiceBusProcessorClient processor = processors.buildProcessorClient();
        processor.start();
        try (var sender = builder.sender().queueName(args[0]).buildClient()) {
            for (int n = 0; !stopping; n++) {
                var message = new ServiceBusMessage("m" + n).setMessageId("m" + n);
                message.getApplicationProperties().put("overdue-within", "1h");
                try {
                    sender.sendMessage(message);
                    sent.add("m" + n);
                    if (sent.size() == 1) {
                        System.out.println("sends");
                    }
                } catch (RuntimeException e) {
                    System.err.println(e);
                    n--;
                }
                Thread.sleep(5);
            }
            long now = System.currentTimeMillis(), until = now + 120_000, since = now;
            for (int seen = 0; !got.containsAll(sent) && now < until; Thread.sleep(100), now = System.currentTimeMillis()) {
                if (handled.get() != seen || !settles()) {
                    seen = handled.get();
                    since = now;
                } else if (now - since > HANGS.toMillis()) {
                    System.out.println("began a new processor: the old one has waited " + HANGS.toSeconds() + " s for an outcome");
                    processor.close();
                    processor = processors.buildProcessorClient();
                    processor.start();
                    since = now;
                }
            }
        }
        if (!got.containsAll(sent)) {
            dump();
        }
        processor.close();
        System.out.println("sent " + sent.size());
        System.out.println("missing " + sent.stream().filter(id -> !got.contains(id)).count());
        System.exit(0);
    }
}
