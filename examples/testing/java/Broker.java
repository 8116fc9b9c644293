// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;

/** The broker at BROKER_ADDRESS, such as a container. Without that variable: a process on any free port. */
class Broker implements AutoCloseable {
    private final HttpClient http = HttpClient.newHttpClient();
    private Process overdue;
    private String address = System.getenv("BROKER_ADDRESS"); // host:port

    Broker(String config) throws Exception {
        if (address != null && !address.isEmpty()) {
            await(Instant.now().plus(Duration.ofMinutes(1)));
            return;
        }
        overdue = new ProcessBuilder("overdue", "broker", "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", config,
            "--broker-auto-create=false", "--broker-isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String start = "Endpoint=sb://";
        address = overdue.inputReader().lines().filter(line -> line.startsWith(start)).findFirst().orElseThrow()
            .substring(start.length()).split(";")[0];
    }

    private void await(Instant deadline) throws Exception {
        while (true) {
            try {
                if (send("GET", "health", "").statusCode() == 200) {
                    return;
                }
            } catch (IOException e) {
                // It does not listen yet.
            }
            if (Instant.now().isAfter(deadline)) {
                throw new IOException("no broker at " + address);
            }
            Thread.sleep(100);
        }
    }

    /** Each name, such as that of a test, is a namespace of its own with the queues of the configuration. */
    String connectionString(String name) {
        return "Endpoint=sb://" + address + ";SharedAccessKeyName=" + name + ";SharedAccessKey=any;UseDevelopmentEmulator=true";
    }

    /** Reads or changes the state of a namespace over HTTP. */
    String control(String name, String method, String path, String body) throws Exception {
        HttpResponse<String> response = send(method, "_overdue/" + path + "?namespace=" + name, body);
        if (response.statusCode() >= 300) {
            throw new IOException(path + ": " + response.statusCode() + " " + response.body());
        }
        return response.body();
    }

    private HttpResponse<String> send(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + address + "/" + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        return http.send(request, HttpResponse.BodyHandlers.ofString());
    }

    @Override
    public void close() throws IOException {
        if (overdue != null) {
            overdue.getOutputStream().close(); // its input: it also ends when this process is killed
        }
    }
}
