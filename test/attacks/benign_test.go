//go:build linux

package attacks

import (
	"testing"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

func requestOf(s sandbox.Spec) runs.Request { return runs.Request{Spec: s} }

// benign are ordinary programs. A sandbox that shuts every door would pass every
// attack; it must not pass these.
var benign = []Twin{
	{"threads and locks", Payload{Code: "import threading\nn = 0; l = threading.Lock()\ndef f():\n    global n\n    for i in range(1000):\n        with l: n += 1\nts = [threading.Thread(target=f) for i in range(8)]\nfor t in ts: t.start()\nfor t in ts: t.join()\nsay('n', n)"}, "n 8000"},
	{"subprocess with pipes", Payload{Code: "import subprocess\nprint(subprocess.run(['tr', 'a-z', 'A-Z'], input='text', capture_output=True, text=True).stdout)"}, "TEXT"},
	{"multiprocessing with semaphores in /dev/shm", Payload{Code: "import multiprocessing as m\nif __name__ == '__main__':\n    q = m.Queue(); ps = [m.Process(target=q.put, args=(i,)) for i in range(4)]\n    for p in ps: p.start()\n    print(sorted(q.get() for p in ps))\n    for p in ps: p.join()\n    with m.Pool(2) as p: print(sum(p.map(abs, range(10))))"}, `\[0, 1, 2, 3\]\n45`},
	{"shared memory", Payload{Code: "from multiprocessing import shared_memory as s\na = s.SharedMemory(create=True, size=10); a.buf[0] = 7; b = s.SharedMemory(name=a.name); say('byte', b.buf[0]); b.close(); a.close(); a.unlink()"}, "byte 7"},
	{"sqlite with a journal", Payload{Code: "import sqlite3\nc = sqlite3.connect('x.db'); c.execute('pragma journal_mode=wal'); c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(100)]); c.commit(); print(c.execute('select sum(a) from t').fetchone())"}, "4950"},
	{"temporary files", Payload{Code: "import tempfile\nwith tempfile.NamedTemporaryFile() as f, tempfile.TemporaryDirectory() as d: f.write(b'x'); say('in', f.name.startswith('/tmp'))"}, "in True"},
	{"asyncio with processes", Payload{Code: "import asyncio\nasync def main():\n    p = await asyncio.create_subprocess_exec('echo', 'async', stdout=-1); print((await p.communicate())[0])\nasyncio.run(main())"}, "async"},
	{"memory maps and large numbers", Payload{Code: "import mmap\nm = mmap.mmap(-1, 1 << 20); m[5] = 1; print(sum(m[:]), (7 ** 20000).bit_length())"}, "1 56148"},
	{"time zones, locale, user", Payload{Code: "import getpass, pwd, datetime, locale\nprint(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, datetime.datetime(2026, 1, 1).isoformat(), sys.getfilesystemencoding())"}, "user /home/user 2026-01-01T00:00:00 utf-8"},
	{"signals and alarms", Payload{Code: "signal.signal(signal.SIGALRM, lambda *a: say('rang', 1)); signal.setitimer(signal.ITIMER_REAL, .05); signal.pause()"}, "rang 1"},
	{"pip", Payload{Language: "shell", Code: "python3 -m pip --version"}, "pip [0-9]"},
	{"node: child processes", Payload{Language: "javascript", Code: "console.log(require('child_process').execSync('echo child').toString())"}, "child"},
	{"node: worker threads", Payload{Language: "javascript", Code: "const w = require('worker_threads'); if (w.isMainThread) new w.Worker(__filename).on('message', m => console.log('got', m)); else w.parentPort.postMessage(42)", Limits: sandbox.Limits{MemoryBytes: 512 << 20}}, "got 42"},
	{"node: http on loopback", Payload{Language: "javascript", Code: "const h = require('http'); const s = h.createServer((q, r) => r.end('served')).listen(0, '127.0.0.1', () => h.get({port: s.address().port, host: '127.0.0.1'}, r => r.on('data', d => { console.log(d.toString()); s.close() })))"}, "served"},
	{"git", Payload{Language: "shell", Code: "git init -q r && cd r && git config user.email a@b && git config user.name n && echo 1 > f && git add f && git commit -qm first && git log --oneline"}, "first"},
	{"standard streams by their names", Payload{Language: "shell", Code: "echo out > /dev/stdout; echo err > /dev/stderr; echo piped | cat /dev/stdin; echo teed | tee /dev/stderr; python3 -c 'open(\"/proc/self/fd/1\", \"a\").write(\"fd\\n\")'"}, "out\npiped\nteed\nfd"},
	{"tar and gzip", Payload{Language: "shell", Code: "mkdir d; echo in > d/f; tar czf a.tgz d; rm -r d; tar xzf a.tgz; cat d/f"}, "in"},
	{"shell pipes, globs, here documents", Payload{Language: "shell", Code: "touch a.x b.x; ls *.x | wc -l; cat <<X\nhere\nX\n(echo b; echo a) | sort | head -1"}, "2\nhere\na"},
	{"gcc, static and threads", Payload{Language: "shell", Code: "printf '#include <pthread.h>\n#include <stdio.h>\nvoid *f(void *x) { return x; }\nint main() { pthread_t t; void *r; pthread_create(&t, 0, f, \"joined\"); pthread_join(t, &r); puts(r); }' > a.c; gcc -O2 -pthread -o a a.c && ./a"}, "joined"},
	{"java", Payload{Language: "java", Code: `public class Main { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join(); } }`, Limits: sandbox.Limits{MemoryBytes: 1 << 30}}, "thread"},
	{"perl", Payload{Language: "perl", Code: "use POSIX; my $p = fork; if (!$p) { exit 3 } waitpid $p, 0; print 'child ', $? >> 8"}, "child 3"},
	{"deep recursion that stays within the stack", Payload{Code: "sys.setrecursionlimit(20000)\ndef f(n): return n and 1 + f(n - 1)\nsay('depth', f(10000))"}, "depth 10000"},
}

func TestBenign(t *testing.T) {
	ledger.Check(t)
	a := newArena(t, readPrelude(t))
	for _, w := range benign {
		t.Run(w.What, func(t *testing.T) {
			here := *a
			here.T = t
			if wrong := here.twin(&w); wrong != "" {
				t.Fatal(wrong)
			}
		})
	}
}

func TestBenignAsOrdinaryUser(t *testing.T) {
	asuser.Rerun(t, "TestBenign", []string{"pinfold/cmd/pinfold-agent"}, []string{preludeEnv + "=" + readPrelude(t)})
}
