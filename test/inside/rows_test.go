//go:build linux

package inside

// row is one thing that programs find or are refused, and a program that shows it.
type row struct {
	what  string // as the page says it
	says  string
	needs string // a command without which the host cannot show it
	code  string // in bash
	want  string // a regular expression for all that it prints; {HOST_USR} is the size of the host's /usr in KiB
}

// found is what there is.
var found = []row{
	{
		"processors", "As many as `limits.cpus`, rounded up, at most the host's: `/proc/cpuinfo`, `/proc/stat`, `/sys/devices/system/cpu/online`, Node's `os.cpus()`, Python's `os.cpu_count()`, R's `detectCores()`, `lscpu`, `top`.", "python3",
		`python3 -c 'import os; print(os.cpu_count())'; grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online`, `1\n1\n0`,
	},
	{
		"processors that the scheduler may use", "As many as `limits.cpus`, rounded up: a process starts on those of the host's that the fewest busy sandboxes use. So say `sched_getaffinity` and what goes by it: `nproc`, Go's `NumCPU`, Node's `os.availableParallelism()`, Java's `availableProcessors`. A program may ask for others; what it may use of all together is `limits.cpus`. `/sys/devices/system/cpu/possible` is the host's. For the languages of the table `GOMAXPROCS`, `OMP_NUM_THREADS`, `RAYON_NUM_THREADS` and `-XX:ActiveProcessorCount` say it.", "",
		`cat /sys/devices/system/cpu/possible; env -u OMP_NUM_THREADS nproc`, `[0-9,-]+\n1`,
	},
	{
		"memory", "`MemTotal` is `limits.memory_bytes`; `MemFree` and `MemAvailable` follow what the programs use, to 0.2 s. Files are not part of it: they are on the disk. `sysinfo(2)`, and with it `sysconf(_SC_PHYS_PAGES)` and Java's `getTotalMemorySize()`, still says what the host has (`TestHostIsSeen`).", "",
		`head -c 27 /proc/meminfo; free | awk '/^Mem/ {print " " $2}'`, `MemTotal:         262144 kB 262144`,
	},
	{
		"disk", "`limits.disk_bytes` is what is available in `/tmp` and the home directory, less the program's own files. The size that `df`, `statfs` and Java say is a little larger: what is in use from the beginning, for `/etc` and `/proc`, is on the same disk. Those of `/usr` are the host's.", "",
		`for dir in /tmp ~; do df -k --output=size,used,avail $dir | tail -1 | awk -v own=$(du -k main* | cut -f1) '{print $3 + own, $1 == $2 + $3}'; done; stat -f -c '%b %S' /usr | awk '{print $1 * $2 / 1024}'`, `262144 1\n262144 1\n{HOST_USR}`,
	},
	{
		"time and load", "`/proc/uptime`, `uptime`, `ps` and `/proc/stat` count from the sandbox's start; the load in `/proc/loadavg`, which `uptime` and `top` show, is what the sandbox used, and the number of the last process there is always 0. But `getloadavg` of C, Python and PHP and Java's `getSystemLoadAverage()` ask `sysinfo(2)`, which says the host's load (`TestHostIsSeen`). All of the CPU time is shown as user time, and each processor has its share. They are written while a program runs, five times a second; the uptime is up to a second ahead. `top -bn1` looks twice within a shorter time and often finds nothing used; the second answer of `top -bn2` is right.", "",
		`uptime | sed 's/.*up/up/; s/[0-9.]\+/N/g'; cut -d ' ' -f 5 /proc/loadavg; while :; do :; done & top -bn2 -d1 | grep '^%Cpu' | tail -1 | awk '{print ($2 > 0)}'; kill %1`, `up.*load average: N, N, N\n0\n1`,
	},
	{
		"limits of the control group", "`/sys/fs/cgroup/memory.max` and `cpu.max`; where `/proc/self/cgroup` shows version 1, `memory/memory.limit_in_bytes` and `cpu/cpu.cfs_quota_us`. Node and Rust go by them. The JVM wants a real mount there, so give it `-Xmx` where you start it yourself.", "",
		`cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null`, `268435456`,
	},
	{
		"names in /proc", "Processes, `self`, and `cpuinfo filesystems loadavg meminfo mounts net stat sys uptime version`. `ls /proc` lists processes only. Every other name fails with ENOENT. `filesystems` names the four kinds that a sandbox is made of: `proc`, `tmpfs`, `devpts` and `overlay`.", "",
		`cut -f 2 /proc/filesystems; cat /proc/cpuinfo | head -c 9; ls -d /proc/mounts /proc/net; cat /proc/cmdline`, `proc\ntmpfs\ndevpts\noverlay\nprocessor/proc/mounts\n/proc/net\ncat: /proc/cmdline: No such file or directory`,
	},
	{
		"settings of the kernel", "`/proc/sys` has `kernel/{pid_max,ngroups_max,osrelease,random/uuid,random/boot_id}`, `vm/{overcommit_memory,max_map_count}`, `fs/file-max` and `net/core/somaxconn`. None can be set.", "",
		`cat /proc/sys/kernel/random/uuid | wc -c; echo 1 2>&1 >/proc/sys/vm/overcommit_memory`, `37\n.*(Read-only file system|Permission denied)`,
	},
	{
		"certificates and keys", "`openssl req`, `x509` and the like, with settings of our own: the host's `openssl.cnf` may hold PINs.", "openssl",
		`openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 2 -subj /CN=x 2>/dev/null; echo $?; openssl x509 -in c.pem -noout -subject`, `0\nsubject=CN = x`,
	},
	{
		"types of files", "`/etc/mime.types`, where the host has it.", "python3",
		`python3 -c 'import mimetypes, os; print(mimetypes.guess_type("a.webp") == (("image/webp" if os.path.exists("/etc/mime.types") else None), None))'`, `True`,
	},
	{
		"sanitizers", "AddressSanitizer and UndefinedBehaviorSanitizer work. Leaks are not looked for, which takes `ptrace`: `LSAN_OPTIONS=detect_leaks=0` is set.", "gcc",
		"echo 'int main(int c, char **v) { int a[2] = {1, 2}; return a[c + 1] != v[0][0]; }' >a.c; gcc -fsanitize=address -g a.c -o a 2>/dev/null && ./a 2>&1 | grep -o 'stack-buffer-overflow' | head -1; echo 'int main(void) { return 0; }' >b.c; gcc -fsanitize=address b.c -o b && ./b; echo $?", `stack-buffer-overflow\n0`,
	},
	{
		"shared memory, semaphores, threads, processes, pipes, Unix and loopback sockets", "As on any Linux, within the limits.", "python3",
		`python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'`, `\[1, 2\]`,
	},
	{
		"open files", "`limits.open_files`, 256 where none is given: beyond it EMFILE, \"Too many open files\". Every descriptor of every process is the host's memory, so the default is what programs need, not what hosts allow; ask for more.", "",
		`ulimit -n`, `256`,
	},
}

// refused is what there is not, and how a program notices.
var refused = []row{
	{"debuggers and tracers: `gdb`, `strace`, `ltrace`, `perf`", "`ptrace` and `perf_event_open` fail with EPERM. Use a sanitizer, `faulthandler`, or `catchsegv`-like tools that look at themselves.", "strace", `strace true 2>&1 | grep -o 'Operation not permitted' | head -1; python3 -c '
import ctypes, os, platform
l = ctypes.CDLL(None, use_errno=True); attr = ctypes.create_string_buffer((112).to_bytes(8, "little"), 112)
print(l.syscall({"x86_64": 298, "aarch64": 241}[platform.machine()], attr, 0, -1, -1, 0), os.strerror(ctypes.get_errno()))'`, `Operation not permitted\n-1 Operation not permitted`},
	{"netlink: `ip`, Node's `os.networkInterfaces()`, `getifaddrs`", "`socket` fails with EAFNOSUPPORT, \"Address family not supported by protocol\". The one interface is `lo`, 127.0.0.1 and ::1.", "python3", `python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)' 2>&1 | tail -1`, `OSError: \[Errno 97\] Address family not supported by protocol`},
	{"the network", "There is none: names do not resolve (EAI_NONAME, \"Name or service not known\"), addresses fail with ENETUNREACH, \"Network is unreachable\".", "python3", `python3 -c 'import socket; socket.create_connection(("example.com", 80), 1)' 2>&1 | tail -1; python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 1)' 2>&1 | tail -1`, `socket.gaierror: \[Errno -2\] Name or service not known\nOSError: \[Errno 101\] Network is unreachable`},
	{"names, as Node looks them up", "`fetch` and `dns.lookup` fail with ENOTFOUND, `dns.resolve` with ECONNREFUSED.", "node", `node -e 'const dns = require("dns"); dns.lookup("example.com", e => { console.log(e.code); dns.resolve("example.com", e => { console.log(e.code); fetch("http://example.com/").catch(e => console.log(e.cause.code)); }); })'`, `ENOTFOUND\nECONNREFUSED\nENOTFOUND`},
	{"System V and POSIX message queues", "`msgget` and `mq_open` fail with EPERM: they are what exploits of the kernel lay out its memory with. Use a pipe, a socket or `multiprocessing.Queue`.", "python3", `python3 -c 'import ctypes, os; l = ctypes.CDLL(None, use_errno=True); print(l.msgget(1, 0o1600), os.strerror(ctypes.get_errno())); ctypes.set_errno(0); print(l.mq_open(b"/queue", os.O_RDWR | os.O_CREAT, 0o600, None), os.strerror(ctypes.get_errno()))'`, `-1 Operation not permitted\n-1 Operation not permitted`},
	{"filters of sockets, keys of TCP, source routes: `SO_ATTACH_FILTER`, `TCP_MD5SIG`, `IP_OPTIONS`, `IP_MINTTL`", "`setsockopt` fails with ENOPROTOOPT, \"Protocol not available\"; the options that servers and clients use are there ([seccomp.md](seccomp.md)).", "python3", `python3 -c 'import socket; s = socket.socket(); s.setsockopt(6, socket.TCP_USER_TIMEOUT, 1000); s.setsockopt(socket.IPPROTO_IP, 21, 255)' 2>&1 | tail -1`, `OSError: \[Errno 92\] Protocol not available`},
	{"more than 64 pseudo-terminals", "ENOSPC, \"No space left on device\".", "python3", `ulimit -n 256; python3 -c 'import os
for i in range(65): os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)' 2>&1 | tail -1`, `OSError: \[Errno 28\] No space left on device: '/dev/ptmx'`},
	{"namespaces, mounts and containers: `unshare`, `mount`, `bwrap`, Docker", "EPERM.", "unshare", `unshare -U true 2>&1`, `unshare: unshare failed: Operation not permitted`},
	{"becoming somebody else: `sudo`, `su`, set-user-id programs", "They stay the user: `no_new_privs` is set.", "", `grep NoNewPrivs /proc/self/status`, `NoNewPrivs:\t1`},
	{"core dumps", "None is written.", "", `ulimit -Hc; (bash -c 'kill -SEGV $$'; echo $?) 2>/dev/null; ls -A | grep -v '^main'; ls -A /tmp | grep core`, `0\n139`},
	{"`man`, `dpkg`, `apt`", "Their settings and databases in `/etc` and `/var` are not shown. `man` says \"can't open the manpath configuration file\"; `dpkg -l` and `apt list` succeed and name no package; `dpkg -s` says \"is not installed\". What is installed is in `/usr/share/doc`.", "dpkg", `dpkg -l; echo $?; apt list 2>/dev/null; dpkg -s dpkg 2>&1 | head -1; ls -d /usr/share/doc`, `0\nListing\.\.\.\ndpkg-query: package 'dpkg' is not installed and no information is available\n/usr/share/doc`},
	{"`vmstat`, `slabtop`, `lsblk`", "They fail: \"Unable to create vmstat structure\", \"Unable to create slabinfo structure\", \"failed to access sysfs directory\". What they read in `/proc` and `/sys` is not there. `free`, `top` and `df` work.", "vmstat", `vmstat 2>&1; slabtop -o 2>&1; lsblk 2>&1`, `vmstat: Unable to create vmstat structure\nslabtop: Unable to create slabinfo structure: No such file or directory\nlsblk: failed to access sysfs directory: /sys/dev/block: No such file or directory`},
	{"Java's `assert`", "Checks nothing without `-ea`, as with plain `java`. Set `JDK_JAVA_OPTIONS=-ea` in `env` (`--env JDK_JAVA_OPTIONS=-ea`); the launcher says on standard error that it picked it up.", "javac", `echo 'class A { public static void main(String[] a) { assert a.length > 0 : "checked"; System.out.println("unchecked"); } }' >A.java; java -Xmx64m -XX:+UseSerialGC A.java; JDK_JAVA_OPTIONS=-ea java -Xmx64m -XX:+UseSerialGC A.java 2>&1 | grep -v '^\sat'`, `unchecked\nNOTE: Picked up JDK_JAVA_OPTIONS: -ea\nException in thread "main" java.lang.AssertionError: checked`},
	{"calls that a newer kernel or library makes and the filter does not know", "ENOSYS, as on an older kernel; [seccomp.md](seccomp.md) has the list. The result's `denied_syscalls` names calls that failed with EPERM, not these, which libraries try all the time (`TestRefusedCallsAreNamed`).", "python3", `python3 -c 'import ctypes, os; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(435, None, 0), os.strerror(ctypes.get_errno())); print(l.syscall(9999), os.strerror(ctypes.get_errno()))'`, `-1 Function not implemented\n-1 Function not implemented`},
}
