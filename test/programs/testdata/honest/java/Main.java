import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.stream.LongStream;

// Thread pools by the number of CPUs, a file store, a server and its client.
public class Main {
    public static void main(String[] args) throws Exception {
        int cpus = Runtime.getRuntime().availableProcessors();
        var pool = Executors.newFixedThreadPool(cpus);
        var parts = new ArrayList<Future<Long>>();
        for (int i = 0; i < cpus; i++) {
            final int first = i;
            parts.add(pool.submit(() -> LongStream.iterate(first, n -> n < 100_000, n -> n + cpus).sum()));
        }
        long sum = 0;
        for (var part : parts) sum += part.get();
        System.out.println(sum + " " + LongStream.range(0, 1_000_000).parallel().sum());
        pool.shutdown();

        Path file = Files.writeString(Path.of("note.txt"), "text");
        System.out.println(Files.getFileStore(file).getTotalSpace() > 0);

        var server = HttpServer.create(new InetSocketAddress("localhost", 0), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 5);
            exchange.getResponseBody().write("hello".getBytes());
            exchange.close();
        });
        server.start();
        var uri = URI.create("http://localhost:" + server.getAddress().getPort() + "/");
        System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body());
        server.stop(0);
        System.out.println(Runtime.getRuntime().maxMemory() > 0);
    }
}
