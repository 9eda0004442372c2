package seccomp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBenign runs what ordinary programs do, with a listener: each must print
// "benign" and make no call that is refused.
func TestBenign(t *testing.T) {
	here, err := filepath.Abs("testdata/benign")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		needs  string
		script string
		files  []string // copied from testdata into the working directory
		denied []string // refused calls that the program copes with
	}{
		{name: "bash", needs: "bash", script: `
			f() { cat <(echo in) <<<"here"; }; f | tee out | sort | uniq -c >/dev/null
			sleep 0.01 & wait $!; (exit 3) || trap 'true' EXIT; mkfifo p; echo x > p & cat p; ulimit -c 0; kill -0 $$
			find / -maxdepth 1 >/dev/null; df / >/dev/null; ls -la /proc/self/ >/dev/null; date >/dev/null; id >/dev/null
			touch a; mv a b; cp b c; ln -s c d; chmod 600 c; stat c >/dev/null; head -c 1000000 /dev/zero | sha256sum | cut -c1-4
			timeout 5 true; nice true; nohup true 2>/dev/null; setsid true; xargs -P4 -n1 echo <<<"1 2 3"; sync; dd if=/dev/zero of=z bs=1k count=9 2>/dev/null`},
		{name: "python", needs: "/usr/bin/python3", script: `/usr/bin/python3 all.py`, files: []string{"all.py"}},
		{name: "python venv", needs: "/usr/bin/python3", script: `/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'import json'`},
		{name: "node", needs: "node", script: `node all.js`, files: []string{"all.js"}},
		{name: "npm", needs: "npm", script: `npm init -y >/dev/null`},
		{name: "java", needs: "java", script: `java All.java`, files: []string{"All.java"}},
		{name: "gcc", needs: "gcc", script: `gcc -O1 -pthread -o all all.c && ./all`, files: []string{"all.c"}},
		{name: "g++", needs: "g++", script: `echo '#include <thread>
			int main() { std::thread([]{}).join(); }' > a.cc && g++ -pthread a.cc && ./a.out`},
		{name: "go", needs: "go", script: `cp all.go.txt all.go && go run all.go`, files: []string{"all.go.txt"}},
		{name: "rust", needs: "rustc", script: `echo 'fn main() { std::thread::spawn(|| {}).join().unwrap(); std::fs::copy("a.rs", "b").unwrap();
			let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); std::net::TcpStream::connect(l.local_addr().unwrap()).unwrap();
			std::process::Command::new("true").status().unwrap(); }' > a.rs && rustc a.rs && ./a`},
		{name: "perl", needs: "perl", script: `perl -MIO::Socket::INET -MFile::Temp -MPOSIX -e '
			my $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $@;
			my $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $s->sockport) or die $@;
			my $p = fork // die; exit 0 unless $p; waitpid $p, 0; die if $?; system("true") == 0 or die; POSIX::uname(); File::Temp->new'`},
		{name: "ruby", needs: "ruby", script: `ruby -rsocket -rtempfile -rfileutils -e '
			s = TCPServer.new("127.0.0.1", 0); c = TCPSocket.new("127.0.0.1", s.addr[1]); s.accept.puts("x"); c.gets or abort
			8.times.map { Thread.new { 1 } }.each(&:join); Process.wait(fork { exit 0 }); system("true") or abort; %x(echo); Tempfile.create {}
			r, w = IO.pipe; w.puts 1; r.gets; FileUtils.mkdir_p("a/b"); FileUtils.cp_r("a", "c"); Ractor.new { 1 }'`},
		{name: "php", needs: "php", script: `php -r '
			$s = stream_socket_server("tcp://127.0.0.1:0") or exit(1); stream_socket_client("tcp://" . stream_socket_get_name($s, false)) or exit(1);
			exec("true", $o, $r); $r === 0 or exit(1); file_put_contents("a", "x"); copy("a", "b"); glob("*"); random_bytes(8); sys_getloadavg(); usleep(1);'`},
		{name: "R", needs: "Rscript", script: `Rscript -e 'library(parallel); stopifnot(identical(mclapply(1:4, identity, mc.cores=2), as.list(1:4))); system("true"); x <- rnorm(10)
			cl <- makeCluster(2); stopifnot(all(parSapply(cl, 1:4, function(i) i*i) == c(1,4,9,16))); stopCluster(cl); writeLines("x", tempfile())' 2>&1`},
		{name: "lua", needs: "lua", script: `lua -e 'io.popen("echo"):read(); os.remove(os.tmpname()); os.execute("true"); io.open("a", "w"):write("x")'`},
		{name: "tcl", needs: "tclsh", script: `echo 'set s [socket -server {apply {args {}}} -myaddr 127.0.0.1 0]; socket 127.0.0.1 [lindex [fconfigure $s -sockname] 2]; exec true; after 1' > a.tcl && tclsh a.tcl`},
		{name: "git", needs: "git", script: `export HOME=$PWD; git init -q r && cd r && echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm m && git clone -q . ../s && git gc -q && git log --oneline | cat && git status --short`},
		{name: "tar and compression", needs: "tar", script: `mkdir d; echo x > d/f; tar czf a.tgz d; tar xzf a.tgz; gzip d/f; gunzip d/f.gz; bzip2 d/f; tar tf a.tgz`},
		{name: "sqlite", needs: "sqlite3", script: `sqlite3 a.db 'create table t(x); insert into t values(1); select * from t'`},
		{name: "make", needs: "make", script: `printf 'all: a b\na b:\n\t@echo $@ > $@\n' > Makefile; make -j4 -s`},
		{name: "curl on the loopback", needs: "curl", script: `/usr/bin/python3 -m http.server --bind 127.0.0.1 0 >log 2>&1 & p=$!
			for i in $(seq 1000); do port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' log); [ -n "$port" ] && break; sleep 0.05; done
			r=0; curl -sf http://127.0.0.1:$port/ >/dev/null || r=$?; kill $p; wait $p || true; [ $r = 0 ]`},
		{name: "a terminal", needs: "script", script: `script -qec 'tty; stty size' /dev/null </dev/null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
					t.Fatalf("%s is not installed; see scripts/setup", c.needs)
				}
				t.Skipf("%s is not installed", c.needs)
			}
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			for _, f := range c.files {
				b, err := os.ReadFile(filepath.Join(here, f))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			o := run(t, heard, dir, "bash", "-c", "set -e\n"+c.script+"\necho benign")
			if !strings.HasSuffix(o.stdout, "benign\n") || o.status.ExitStatus() != 0 {
				t.Errorf("ended with %#x\n%s%s", o.status, o.stdout, o.stderr)
			}
			want := c.denied
			if want == nil {
				want = []string{}
			}
			if diff := cmp.Diff(want, o.deniedNames()); diff != "" || o.killed != "" {
				t.Errorf("refused calls (-want +got), killed by %q:\n%s", o.killed, diff)
			}
		})
	}
}
