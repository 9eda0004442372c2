//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

// judge is a real server that keeps what compilers make.
type judge struct {
	t     *testing.T
	bin   string
	state string
	url   string
	key   string
	local *client.Client
	stop  func() error
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	ledger.Check(t)
	j := &judge{t: t, bin: pinfold(t), state: t.TempDir()}
	j.start()
	for deadline := time.Now().Add(time.Minute); j.metric("entries") == 0; { // until the server has looked at the host's files
		if time.Now().After(deadline) {
			t.Fatal("nothing is kept")
		}
		j.run(j.local, c("int main(void){return 0;}"))
	}
	return j
}

// start starts the server, which ends with the test at the latest.
func (j *judge) start() {
	t := j.t
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{
		Program: j.bin, State: j.state, Args: []string{"--listen", "127.0.0.1:0"},
		Config: "compile_cache: {bytes: 256MiB, tenant_bytes: 128MiB}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	j.stop = sync.OnceValue(s.Stop)
	t.Cleanup(func() {
		if err := j.stop(); err != nil {
			t.Errorf("%v\n%s", err, s.Log())
		}
	})
	deadline, listening := time.Now().Add(time.Minute), regexp.MustCompile(`listening on (http://\S+)\n`)
	for j.url = ""; j.url == ""; time.Sleep(5 * time.Millisecond) { // the socket answers before all is said
		if said := listening.FindStringSubmatch(s.Log()); said != nil {
			j.url = said[1]
		} else if time.Now().After(deadline) {
			t.Fatal(s.Log())
		}
	}
	key, err := os.ReadFile(filepath.Join(j.state, "first-key"))
	if err != nil {
		t.Fatal(err)
	}
	j.key, j.local = strings.TrimSpace(string(key)), s.Client
}

// tenant is a client of another tenant's.
func (j *judge) tenant(name string) *client.Client {
	j.t.Helper()
	out, err := exec.Command(j.bin, "key", "create", "--state", j.state, "--tenant", name).Output() //nolint:gosec // the program under test
	if err != nil {
		j.t.Fatal(err)
	}
	k, err := client.New(j.url, client.WithKey(regexp.MustCompile(`pfk_\S+`).FindString(string(out))))
	if err != nil {
		j.t.Fatal(err)
	}
	return k
}

func (j *judge) run(k *client.Client, spec sandbox.Spec) *sandbox.Result {
	j.t.Helper()
	r, err := k.Run(j.t.Context(), spec, client.RunOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	if r.Compile == nil {
		j.t.Fatalf("nothing was compiled: %+v", r)
	}
	return r
}

// metric reads one of the cache's counts.
func (j *judge) metric(name string) int {
	j.t.Helper()
	req, err := http.NewRequestWithContext(j.t.Context(), http.MethodGet, j.url+"/metrics", http.NoBody)
	if err != nil {
		j.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+j.key)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		j.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		j.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^pinfold_compile_cache_` + name + ` (\d+)$`).FindSubmatch(page)
	if found == nil {
		j.t.Fatalf("no metric %s", name)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

// entries are the files of the cache.
func (j *judge) entries() map[string]bool {
	j.t.Helper()
	found, err := filepath.Glob(filepath.Join(j.state, "compiled", "*"))
	if err != nil {
		j.t.Fatal(err)
	}
	all := map[string]bool{}
	for _, f := range found {
		all[f] = true
	}
	return all
}

// madeBy returns the file that f added.
func (j *judge) madeBy(f func()) string {
	j.t.Helper()
	before := j.entries()
	f()
	for name := range j.entries() {
		if !before[name] {
			return name
		}
	}
	j.t.Fatal("nothing was kept")
	return ""
}

func c(code string) sandbox.Spec { return sandbox.Spec{Language: "c", Code: code} }

// With every compiler of this machine, the second run gives what the first
// gave, and says that nothing was compiled.
func TestCompiledProgramsAreKept(t *testing.T) {
	j := newJudge(t)
	host, err := image.Host(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]string{
		"c":    "#include <stdio.h>\n#warning look\nint main(int n, char **v){char b[9]=\"\"; fgets(b, 9, stdin); printf(\"%s %s\\n\", v[1], b); return 3;}",
		"cpp":  "#include <iostream>\n#warning look\nint main(int, char **v){std::string b; std::getline(std::cin, b); std::cout << v[1] << ' ' << b << std::endl; return 3;}",
		"go":   "package main\nimport (\"bufio\"; \"fmt\"; \"os\")\nfunc main() { b, _ := bufio.NewReader(os.Stdin).ReadString(0); fmt.Println(os.Args[1], b); os.Exit(3) }",
		"rust": "fn main() { let unused = 1; let mut b = String::new(); std::io::stdin().read_line(&mut b).unwrap(); println!(\"{} {}\", std::env::args().nth(1).unwrap(), b); std::process::exit(3) }",
		"java": "public class Some { static class Inner { String b = new java.util.Scanner(System.in).nextLine(); } public static void main(String[] v) { System.out.println(v[0] + \" \" + new Inner().b); new Thread(\"x\").stop(); System.exit(3); } }",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := language.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if missing := l.Missing(func(names []string) (string, bool) { return host.Lookup(os.DirFS("/"), names) }); len(missing) > 0 {
				lacks(t, missing)
			}
			spec := sandbox.Spec{Language: name, Code: code, Args: []string{"one"}, Stdin: "in", Limits: sandbox.Limits{MemoryBytes: 512 << 20}}
			first := j.run(j.local, spec)
			second := j.run(j.local, spec)
			if first.Compile.Cached || !second.Compile.Cached {
				t.Fatalf("cached: %v, then %v", first.Compile.Cached, second.Compile.Cached)
			}
			if !strings.HasPrefix(first.Stdout, "one in") || first.ExitCode == nil || *first.ExitCode != 3 {
				t.Fatalf("%+v", first)
			}
			if second.Stdout != first.Stdout || second.Stderr != first.Stderr || second.ExitCode == nil || *second.ExitCode != 3 || !reflect.DeepEqual(second.Cause, first.Cause) {
				t.Errorf("%+v, not %+v", second, first)
			}
			if a, b := first.Compile, second.Compile; a.Stdout != b.Stdout || a.Stderr != b.Stderr || a.Limits != b.Limits || *b.ExitCode != 0 {
				t.Errorf("the compiler says %+v, not %+v", b, a)
			}
			if warns := name != "go" && name != "java"; warns && !strings.Contains(second.Compile.Stderr, "warning") {
				t.Errorf("the warning is lost: %q", second.Compile.Stderr)
			}
			spec.Args, spec.Stdin = []string{"two"}, "put"
			if r := j.run(j.local, spec); !r.Compile.Cached || !strings.HasPrefix(r.Stdout, "two put") {
				t.Errorf("with other input: %+v", r)
			}
			t.Logf("compile step: %.1f ms, %.1f ms from the cache", first.Timings.CompileMS, second.Timings.CompileMS)
		})
	}
	broken := c("int main(void) { return }")
	for range 2 {
		if r := j.run(j.local, broken); r.Compile.Cached || r.Status != sandbox.StatusFailed || r.Cause.Phase != sandbox.PhaseCompile || r.Stderr == "" {
			t.Errorf("a program that does not compile: %+v", r)
		}
	}
	cold := c("int main(void){return 0;}")
	cold.Cold = true
	if r := j.run(j.local, cold); r.Compile.Cached {
		t.Error("a cold run came from the cache")
	}
}

// What one tenant compiled is not there for another, whatever he knows.
func TestCompiledProgramsAreTheTenants(t *testing.T) {
	j := newJudge(t)
	spec := c("int main(void){return 42;}")
	alice, mallory := j.tenant("alice"), j.tenant("mallory")
	j.run(alice, spec)
	if r := j.run(alice, spec); !r.Compile.Cached {
		t.Fatal("control: her own second run was compiled")
	}
	if r := j.run(mallory, spec); r.Compile.Cached {
		t.Error("another tenant's identical program came from her entry")
	}
	// Nor with her entry under his name.
	hers := j.madeBy(func() { j.run(alice, c("int main(void){return 1;}")) })
	his := j.madeBy(func() { j.run(mallory, c("int main(void){return 1;}")) })
	content, err := os.ReadFile(hers)
	if err == nil {
		err = os.WriteFile(his, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := j.run(mallory, c("int main(void){return 1;}")); r.Compile.Cached {
		t.Error("her entry is used under his name")
	}
	if n := j.metric("damaged_total"); n != 1 {
		t.Errorf("%d damaged entries were seen", n)
	}
	again(t)
}

// What was compiled is still there after a restart.
func TestCompiledProgramsOutliveTheServer(t *testing.T) {
	j := newJudge(t)
	spec := c("int main(void){return 7;}")
	j.run(j.local, spec)
	if err := j.stop(); err != nil {
		t.Fatal(err)
	}
	j.start()
	if j.metric("entries") != 2 {
		t.Errorf("%d entries", j.metric("entries"))
	}
	// Until the server has looked at the host's files it compiles.
	for deadline := time.Now().Add(time.Minute); !j.run(j.local, spec).Compile.Cached; {
		if time.Now().After(deadline) {
			t.Fatal("it is compiled again")
		}
	}
	if n := j.metric("misses_total"); n != 0 {
		t.Errorf("%d misses: the key is another one now", n)
	}
}

// An entry that was changed is refused. The control is the same change with a
// hash that fits: it is the hash alone that keeps it out.
func TestTamperedProgramsAreRefused(t *testing.T) {
	j := newJudge(t)
	spec := c("#include <stdio.h>\nint main(void){puts(\"the good one\"); return 0;}")
	file := j.madeBy(func() { j.run(j.local, spec) })
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tamper := func(fits bool) {
		evil := bytes.ReplaceAll(whole, []byte("the good one"), []byte("the evil one"))
		if bytes.Equal(evil, whole) {
			t.Fatal("the program's text is not in the entry")
		}
		if fits {
			evil = forged(t, file, evil, whole)
		}
		if err := os.WriteFile(file, evil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tamper(true)
	if r := j.run(j.local, spec); r.Stdout != "the evil one\n" || !r.Compile.Cached {
		t.Fatalf("control: with a hash that fits the change comes to nothing: %+v", r)
	}
	tamper(false)
	if r := j.run(j.local, spec); r.Stdout != "the good one\n" || r.Compile.Cached {
		t.Errorf("%+v", r)
	}
	if r := j.run(j.local, spec); r.Stdout != "the good one\n" || !r.Compile.Cached {
		t.Errorf("the entry that was dropped is not made again: %+v", r)
	}
	if n := j.metric("damaged_total"); n != 1 {
		t.Errorf("%d damaged entries were seen", n)
	}
}

// forged gives a changed entry hashes that fit: the one of its program, which
// stands in the index, and the last one, over the key and everything.
func forged(t *testing.T, file string, evil, good []byte) []byte {
	t.Helper()
	end := bytes.LastIndex(good, []byte(`{"said"`))
	old, fresh := sha256.Sum256(good[:end]), sha256.Sum256(evil[:end])
	evil = bytes.Replace(evil, base64Of(old), base64Of(fresh), 1)
	_, name, _ := strings.Cut(filepath.Base(file), "-")
	key, err := hex.DecodeString(name)
	if err != nil {
		t.Fatal(err)
	}
	last := sha256.Sum256(append(key, evil[:len(evil)-sha256.Size]...))
	return append(evil[:len(evil)-sha256.Size:len(evil)-sha256.Size], last[:]...)
}

// hostileCompile is a program whose compile step runs a script: gcc finds its
// assembler among the program's own files.
func hostileCompile(script, code string) sandbox.Spec {
	return sandbox.Spec{
		Language: "c", Entrypoint: "main.c", Env: map[string]string{"COMPILER_PATH": sandbox.Home},
		Files: []sandbox.File{
			{Path: "main.c", Content: code},
			{Path: "as", Executable: true, Content: "#!/bin/sh\n" + script + "\nexec /usr/bin/as \"$@\"\n"},
		},
	}
}

const listing = `#include <stdlib.h>
int main(void){return system("cd /tmp/.pinfold && find . ! -type d -printf '%y %f %l\n' | sort");}`

// What a compile step leaves: links and pipes do not come along, a hit gives
// what a miss gave, and what is too large is not kept.
func TestHostileCompileSteps(t *testing.T) {
	j := newJudge(t)
	for name, x := range map[string]struct {
		script string
		kept   bool
	}{
		"control: the script runs": {"echo x >/tmp/.pinfold/mark", true},
		"a link to a host's file":  {"ln -s /etc/passwd /tmp/.pinfold/link; ln -s / /tmp/.pinfold/root", true},
		"a pipe":                   {"mkfifo /tmp/.pinfold/pipe", true},
		"a hole of 1 MiB":          {"truncate -s 1M /tmp/.pinfold/hole", true},
		"a hole of 100 MiB":        {"truncate -s 100M /tmp/.pinfold/hole", false},
		"1,500 files":              {"for i in $(seq 1500); do : >/tmp/.pinfold/f$i; done", false},
		"a daemon that goes on writing": {
			"setsid sh -c 'while :; do date +%N >/tmp/.pinfold/clock; done' </dev/null >/dev/null 2>&1 &", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := hostileCompile(x.script, listing)
			first, second := j.run(j.local, spec), j.run(j.local, spec)
			if first.Compile.Cached || second.Compile.Cached != x.kept {
				t.Errorf("cached: %v, then %v", first.Compile.Cached, second.Compile.Cached)
			}
			if first.Status != sandbox.StatusSucceeded || second.Stdout != first.Stdout || second.Status != first.Status {
				t.Errorf("%s %q %q, then %s %q", first.Status, first.Stdout, first.Stderr, second.Status, second.Stdout)
			}
			if strings.Contains(second.Stdout, "l ") || strings.Contains(second.Stdout, "p pipe") || !strings.Contains(second.Stdout, "f program") {
				t.Errorf("%q", second.Stdout)
			}
			if strings.Contains(x.script, "mark") && !strings.Contains(second.Stdout, "f mark") {
				t.Errorf("the script did not run: %q", second.Stdout)
			}
		})
	}
}

// Two programs that differ only in what their compilers are told, or given
// beside the source, do not get each other's.
func TestOtherSurroundingsAreCompiled(t *testing.T) {
	j := newJudge(t)
	base := func() sandbox.Spec {
		return sandbox.Spec{
			Language: "c", Code: "#include <stdio.h>\n#include <which.h>\nint main(void){puts(WHICH);}",
			Env:   map[string]string{"CPATH": "a"},
			Files: []sandbox.File{{Path: "a/which.h", Content: `#define WHICH "a"`}, {Path: "b/which.h", Content: `#define WHICH "b"`}},
		}
	}
	j.run(j.local, base())
	if r := j.run(j.local, base()); !r.Compile.Cached || r.Stdout != "a\n" {
		t.Fatalf("control: the same is compiled again: %+v", r)
	}
	other := base()
	other.Env["CPATH"] = "b"
	if r := j.run(j.local, other); r.Compile.Cached || r.Stdout != "b\n" {
		t.Errorf("another variable: %+v", r)
	}
	other = base()
	other.Files[0].Content = `#define WHICH "changed"`
	if r := j.run(j.local, other); r.Compile.Cached || r.Stdout != "changed\n" {
		t.Errorf("another header: %+v", r)
	}
	other = base()
	other.Limits.CPUs = 0.5
	if r := j.run(j.local, other); r.Compile.Cached {
		t.Error("other limits")
	}
}

func base64Of(sum [sha256.Size]byte) []byte {
	return []byte(base64.StdEncoding.EncodeToString(sum[:]))
}
