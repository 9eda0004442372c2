import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** Threads, children, servers, files: what ordinary Java programs do. */
public class All {
    public static void main(String[] args) throws Exception {
        var pool = Executors.newFixedThreadPool(8);
        pool.submit(() -> 1).get();
        pool.shutdown();
        IntStream.range(0, 10000).parallel().sum();
        var child = new ProcessBuilder("sh", "-c", "echo child").start();
        if (!new String(child.getInputStream().readAllBytes()).equals("child\n") || child.waitFor() != 0) throw new Error("child");
        try (var server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
             var client = new Socket(server.getInetAddress(), server.getLocalPort())) {
            server.accept().getOutputStream().write(1);
            if (client.getInputStream().read() != 1) throw new Error("socket");
        }
        InetAddress.getByName("localhost");
        try (var s = Selector.open(); var c = ServerSocketChannel.open()) {
            c.bind(new InetSocketAddress("127.0.0.1", 0)).configureBlocking(false).register(s, SelectionKey.OP_ACCEPT);
            s.selectNow();
        }
        HttpClient.newHttpClient();
        NetworkInterface.getNetworkInterfaces().hasMoreElements();
        Path dir = Files.createTempDirectory("benign");
        Path a = Files.write(dir.resolve("a"), new byte[1 << 16]);
        Files.copy(a, dir.resolve("b"));
        try (var in = FileChannel.open(a); var out = FileChannel.open(dir.resolve("c"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            in.transferTo(0, in.size(), out);
            in.map(FileChannel.MapMode.READ_ONLY, 0, 10);
        }
        Files.createSymbolicLink(dir.resolve("l"), a);
        Files.setLastModifiedTime(a, Files.getLastModifiedTime(dir));
        try (var list = Files.walk(dir)) { list.sorted(java.util.Comparator.reverseOrder()).forEach(p -> p.toFile().delete()); }
        new java.security.SecureRandom().nextInt();
        System.gc();
        System.out.println("benign");
    }
}
