// SPDX-License-Identifier: Apache-2.0

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** An app that sends and receives all the time. See steady.js. */
public final class Steady {
    private Steady() {}

    private static volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(20)
            .setDelay(Duration.ofMillis(200)).setTryTimeout(Duration.ofSeconds(10));
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING")).retryOptions(retries);
        Set<String> got = ConcurrentHashMap.newKeySet();
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
        try (var processor = builder.processor().queueName(args[0])
                .processMessage(context -> got.add(context.getMessage().getBody().toString()))
                .processError(context -> System.err.println(context.getException())) // it recovers from most
                .buildProcessorClient();
            var sender = builder.sender().queueName(args[0]).buildClient()) {
            processor.start();
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
            long until = System.currentTimeMillis() + 120_000; // its processor restarts what has ended every ten seconds
            while (!got.containsAll(sent) && System.currentTimeMillis() < until) {
                Thread.sleep(100);
            }
        }
        System.out.println("sent " + sent.size());
        System.out.println("missing " + sent.stream().filter(id -> !got.contains(id)).count());
        System.exit(0);
    }
}
