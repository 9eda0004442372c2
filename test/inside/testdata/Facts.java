import java.nio.file.*;

// Prints what Java finds: how many processors, of which type the file system is, and
// its size in KiB.
class Facts {
    public static void main(String[] args) throws Exception {
        FileStore store = Files.getFileStore(Path.of("/tmp"));
        System.out.printf("[%d, \"%s\", %d]%n", Runtime.getRuntime().availableProcessors(), store.type(), store.getTotalSpace() / 1024);
    }
}
