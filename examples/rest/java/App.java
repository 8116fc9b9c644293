// SPDX-License-Identifier: Apache-2.0

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Sends an order over REST. It needs no SDK. */
public class App {
    public static void main(String[] args) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(args[0] + "/rest-orders/messages"))
            .header("BrokerProperties", "{\"MessageId\": \"order-2\", \"TimeToLive\": 3600}")
            .header("overdue-within", "\"2s\"") // a custom property: a string in quotation marks
            .POST(HttpRequest.BodyPublishers.ofString("one tea")).build();
        HttpResponse<Void> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding());
        System.out.println("order-2: " + answer.statusCode());
    }
}
