import java.nio.file.*;

// Prints what Java finds: how many processors, of which type the file system is, whether
// /usr is among all that are mounted, and the first one's size in KiB.
class Facts {
    public static void main(String[] args) throws Exception {
        FileStore store = Files.getFileStore(Path.of("/tmp"));
        boolean usr = false;
        for (FileStore s : FileSystems.getDefault().getFileStores())
            usr |= s.toString().startsWith("/usr ");
        System.out.printf("[%d, \"%s\", %b, %d]%n", Runtime.getRuntime().availableProcessors(), store.type(), usr, store.getTotalSpace() / 1024);
    }
}
