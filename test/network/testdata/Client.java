import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

// Prints what a server answers, or says by WebSocket, as Java's own client gets it.
public class Client {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        URI uri = URI.create(args[0]);
        if (!uri.getScheme().equals("wss")) {
            System.out.println(client.send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString()).body());
            return;
        }
        CompletableFuture<String> said = new CompletableFuture<>();
        client.newWebSocketBuilder().buildAsync(uri, new WebSocket.Listener() {
            public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) {
                said.complete(text.toString());
                return null;
            }

            public void onError(WebSocket socket, Throwable error) {
                said.completeExceptionally(error);
            }
        }).get();
        System.out.println(said.get());
    }
}
