package scan

// What things are called in the languages that are read.

// processCalls start a program that they are given as words, shellCalls one that a shell
// reads.
var (
	processCalls = []string{
		"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput",
		"os.execv", "os.execve", "os.execvp", "os.execl", "os.execlp", "os.execvpe", "os.spawnv", "os.spawnl", "os.spawnlp", "os.posix_spawn", "pty.spawn",
		"asyncio.create_subprocess_exec", "pexpect.spawn", "multiprocessing.Process",
		"child_process.spawn", "child_process.spawnSync", "child_process.execFile", "child_process.execFileSync", "child_process.fork", "Bun.spawn", "Deno.Command", "execa", "execa()",
		"exec.Command", "exec.CommandContext", "syscall.Exec", "Command.new", "process.Command.new", "ProcessBuilder", "*.ProcessBuilder", "*.getRuntime", "Runtime.getRuntime",
		"execl", "execlp", "execle", "execv", "execvp", "execve", "posix_spawn", "posix_spawnp", "proc_open", "pcntl_exec", "spawn", "Open3.capture2", "Open3.capture3", "Process.spawn", "system2",
	}
	shellCalls = []string{
		"os.system", "os.popen", "commands.getoutput", "asyncio.create_subprocess_shell", "subprocess.getoutput", "subprocess.getstatusoutput",
		"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
		"child_process.exec", "child_process.execSync", "shelljs.exec", "system", "popen", "shell_exec", "passthru", "os.execute", "io.popen", "IO.popen", "`", "Kernel.system", "exec",
	}
	networkCalls = []string{
		"requests.*", "urllib.request.*", "urllib.urlopen", "urllib2.urlopen", "http.client.*", "httpx.*", "aiohttp.*", "urllib3.*", "socket.create_connection", "socket.socket", "*.create_connection",
		"ftplib.*", "smtplib.*", "telnetlib.*", "paramiko.*", "websockets.connect", "websocket.create_connection", "xmlrpc.client.*", "asyncio.open_connection", "socket.getaddrinfo", "socket.gethostbyname", "dns.resolver.*", "pycurl.*", "boto3.*",
		"fetch", "axios", "axios.*", "http.request", "http.get", "https.request", "https.get", "net.connect", "net.createConnection", "net.Socket", "net.Socket()", "tls.connect", "dgram.createSocket", "dns.lookup", "dns.resolve", "WebSocket", "XMLHttpRequest", "got", "got.*", "node-fetch", "request.*", "undici.*", "ws",
		"net.Dial", "net.DialTimeout", "http.Get", "http.Post", "http.NewRequest", "http.NewRequestWithContext", "http.PostForm", "TcpStream.connect", "net.TcpStream.connect", "UdpSocket.bind", "reqwest.*", "ureq.*",
		"Net.HTTP.*", "TCPSocket.new", "TCPSocket.open", "URI.open", "open-uri", "fsockopen", "curl_init", "curl_exec", "stream_socket_client", "LWP.*", "IO.Socket.*", "HttpClient.*", "download.file", "getaddrinfo",
	}
	networkCommands = []string{"curl", "wget", "nc", "ncat", "netcat", "telnet", "ssh", "scp", "sftp", "rsync", "ftp", "socat", "dig", "nslookup", "ping", "aria2c"}
	dynamicCalls    = []string{"eval", "exec", "execfile", "Function", "vm.runInThisContext", "vm.runInNewContext", "vm.runInContext", "vm.Script", "*.constructor.constructor", "setTimeout", "setInterval", "instance_eval", "class_eval", "create_function", "loadstring", "code.interact", "runpy.run_path", "types.FunctionType", "execScript"}
	decodeCalls     = []string{"base64.*", "*.b64decode", "b64decode", "codecs.decode", "zlib.decompress", "bz2.decompress", "lzma.decompress", "gzip.decompress", "binascii.*", "bytes.fromhex", "bytearray.fromhex", "marshal.loads", "atob", "Buffer.from", "String.fromCharCode", "unescape", "zlib.inflateSync", "zlib.gunzipSync", "chr", "*.decode", "base64_decode", "gzinflate", "str_rot13", "gzuncompress", "decodeURIComponent"}
	fetchCalls      = append([]string{"urlopen", "*.urlopen", "file_get_contents"}, networkCalls...)
	nativeImports   = []string{"ctypes", "ctypes.*", "cffi", "cffi.*", "ffi-napi", "ref-napi", "ffi", "koffi", "ffi.*", "fiddle"}
	nativeCalls     = []string{"ctypes.*", "cffi.*", "ffi.Library", "ffi-napi.*", "koffi.*", "process.dlopen", "bun:ffi.dlopen", "Deno.dlopen", "dlopen", "Fiddle.dlopen", "FFI.cdef", "ffi.cdef", "ffi.load", "System.load", "System.loadLibrary", "plugin.Open", "libloading.*", "dyn.load", "mprotect", "process.binding"}
	unsafeLoads     = []string{"pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.loads", "_pickle.loads", "dill.load", "dill.loads", "cloudpickle.load", "cloudpickle.loads", "marshal.load", "marshal.loads", "shelve.open", "joblib.load", "yaml.unsafe_load", "yaml.full_load", "jsonpickle.decode", "node-serialize.unserialize", "*.unserialize", "unserialize", "serialize-javascript.*", "Marshal.load", "ObjectInputStream", "*.readObject", "YAML.unsafe_load", "Storable.thaw", "v8.deserialize", "pandas.read_pickle", "readRDS"}
	openCalls       = []string{"open", "io.open", "os.open", "pathlib.Path", "Path", "os.listdir", "os.walk", "os.scandir", "glob.glob", "shutil.copy", "shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree", "os.remove", "os.unlink", "os.rename", "os.chmod", "os.chown", "os.symlink", "os.link", "os.readlink", "linecache.getlines", "codecs.open", "fileinput.input", "zipfile.ZipFile", "tarfile.open", "os.chdir", "os.rmdir", "os.makedirs", "os.mkdir", "fs.*", "fs/promises.*", "fs.promises.*", "os.Open", "os.ReadFile", "os.WriteFile", "os.OpenFile", "os.Create", "os.RemoveAll", "os.ReadDir", "fopen", "File.open", "File.read", "File.write", "IO.read", "file_get_contents", "file_put_contents", "io.lines", "fs.read_to_string", "fs.read", "fs.write", "File.new", "Paths.get", "FileReader", "FileInputStream", "readLines", "Dir.glob", "unlink", "opendir", "readfile", "pandas.read_csv", "File.open", "std.fs.*", "Files.readString"}
	fileCommands    = []string{"cat", "cp", "mv", "rm", "ln", "tee", "chmod", "chown", "head", "tail", "less", "more", "tar", "zip", "find", "ls", "touch", "dd", "cd", "source", ".", "grep", "sed", "awk", "xxd", "base64", "strings", "shred", "truncate", "install", "mkdir"}
)

// Places in file systems.
var (
	secretPlaces = []string{
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/.ssh", ".ssh/", "id_rsa", "id_ed25519", ".aws/credentials", ".aws/config", "/.aws", ".netrc", ".git-credentials", ".kube/config", ".docker/config.json", ".npmrc", ".pypirc", ".config/gcloud", ".azure/",
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/secrets/", "/var/run/secrets/", "/proc/1/", "/proc/self/environ", "/proc/kcore", "/dev/mem", "/dev/kmem", "Login Data", "cookies.sqlite", "logins.json", "wallet.dat", ".gnupg", ".bash_history", ".zsh_history", ".password-store", "/etc/kubernetes/admin.conf", ".config/gh/hosts.yml",
	}
	lastingPlaces = []string{
		"/etc/cron", "/var/spool/cron", ".bashrc", ".bash_profile", ".zshrc", "/.profile", "~/.profile", "/etc/profile", "/etc/systemd/", ".config/systemd/", "/lib/systemd/system", "authorized_keys", "/etc/ld.so.preload", "/etc/rc.local", "/etc/init.d/", "sitecustomize.py", "usercustomize.py", "/etc/passwd-", ".config/autostart", "LaunchAgents", "LaunchDaemons", ".git/hooks/", "/etc/environment", "/etc/sudoers.d", "/etc/pam.d", "/etc/inittab",
	}
	usualPlaces = []string{"/tmp", "/var/tmp", "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/urandom", "/dev/random", "/home/user", "/workspace", "/usr/bin", "/bin", "/usr/share", "/proc/self/status", "/proc/cpuinfo", "/proc/meminfo", "/etc/os-release", "/dev/shm", "/dev/tcp", "/dev/udp", "/dev/fd"}
	cloudPlaces = []string{"169.254.169.254", "metadata.google.internal", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "168.63.129.16"}
)
