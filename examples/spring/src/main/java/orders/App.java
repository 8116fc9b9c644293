// SPDX-License-Identifier: Apache-2.0

package orders;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Sends an order that nobody receives, and reads it from the dead-letter queue. application.yaml has the connection. */
@SpringBootApplication
public class App implements CommandLineRunner {
    private final ServiceBusSenderClient sender;
    private final ServiceBusReceiverClient deadLetters;

    App(ServiceBusSenderClient sender, ServiceBusReceiverClient deadLetters) {
        this.sender = sender;
        this.deadLetters = deadLetters;
    }

    public static void main(String[] args) {
        SpringApplication.run(App.class, args).close();
    }

    @Override
    public void run(String... args) {
        sender.sendMessage(new ServiceBusMessage("one coffee").setMessageId("order-1").setTimeToLive(Duration.ofSeconds(2)));
        System.out.println("sent order-1");
        deadLetters.receiveMessages(1, Duration.ofSeconds(10)).forEach(message -> {
            System.out.println(message.getMessageId() + " " + message.getBody() + " " + message.getDeadLetterReason());
            deadLetters.complete(message);
        });
    }
}
