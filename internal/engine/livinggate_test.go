package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"pinfold/internal/archive"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/headroom"
	"pinfold/internal/profile"
	"pinfold/internal/secret"
	"pinfold/sandbox"
)

func command() sandbox.Command { return sandbox.Command{Args: []string{"sh"}, OutputBase64: true} }

// read is what comes out of a file, or the code of why nothing does.
func read(t *testing.T, x *living.Sandbox, name string) string {
	t.Helper()
	var b strings.Builder
	if _, err := x.ReadFile(soon(t), name, 0, -1, &b); err != nil {
		return code(err)
	}
	return b.String()
}

// followed is what a reader of a stream gets, from its first byte to its end.
func followed(t *testing.T, next func(context.Context) ([]byte, int64, error)) string {
	t.Helper()
	var all strings.Builder
	for {
		chunk, _, err := next(soon(t))
		all.Write(chunk)
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What the gate of a living sandbox takes out or keeps back of what a process prints is
// nowhere: not in what waits for it, not in what asks for it later, not in what follows it,
// not in the audit log. Without a gate all of it is there.
func TestGateOfProcesses(t *testing.T) {
	for action, want := range map[sandbox.GateAction]string{
		"":               "before " + leaked + " after\n",
		sandbox.GateFlag: "before " + leaked + " after\n", sandbox.GateRedact: "before [github_token] after\n", sandbox.GateWithhold: "",
	} {
		t.Run("action:"+string(action), func(t *testing.T) {
			a := newAudited(t, true)
			s := leaking(t, engine.Options{Auditor: a})
			x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: action}})
			p, stdout, stderr, err := x.StartAttached(soon(t), command())
			if err != nil {
				t.Fatal(err)
			}
			followedOut := followed(t, stdout.Next)
			followedErr := followed(t, stderr.Next)
			stdout.Close()
			stderr.Close()
			ended, err := p.Wait(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			later := p.Output(1, 0)
			defer later.Close()
			info := p.InfoWithOutput()
			waited, err := x.Exec(soon(t), command())
			if err != nil {
				t.Fatal(err)
			}
			var recorded []string
			for _, e := range a.last() {
				if e.Entry.Kind == sandbox.AuditProcess {
					recorded = append(recorded, string(e.Parts["stdout"]))
					if e.Entry.Gate != action || strings.Contains(string(e.Parts["stderr"]), leaked) != strings.Contains(want, leaked) {
						t.Errorf("%q in the audit log, and %s", e.Entry.Gate, e.Parts["stderr"])
					}
				}
			}
			for what, got := range map[string]string{
				"followed": followedOut, "later": followed(t, later.Next), "info": info.Stdout, "bytes": string(info.StdoutRaw), "waited": waited.Stdout,
				"audit": strings.Join(recorded, ""),
			} {
				if what == "audit" {
					got = strings.TrimSuffix(got, want) // of two
				}
				if got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			if shown := followedErr + info.Stderr + string(info.StderrRaw) + waited.Stderr; strings.Contains(shown, leaked) != strings.Contains(want, leaked) {
				t.Errorf("stderr: %q", shown)
			}
			if action == "" {
				if info.Gate != nil || ended.Gate != nil {
					t.Errorf("%+v", info.Gate)
				}
				return
			}
			for _, i := range []sandbox.Process{ended, info, waited} {
				if i.Gate == nil || i.Gate.Outcome != action || i.Gate.Checks[0].Count != 2 || i.Status != sandbox.StatusSucceeded || i.StdoutBytes == 0 {
					t.Errorf("%+v", i)
				}
			}
		})
	}
}

// Output that may be changed is held back while the process runs, also from who asks how
// much there is; what is only looked at is not.
func TestGateHoldsProcesses(t *testing.T) {
	for action, held := range map[sandbox.GateAction]bool{sandbox.GateFlag: false, sandbox.GateRedact: true} {
		printed, release := make(chan struct{}), make(chan struct{})
		s := serve(t, engine.Options{Gates: gates}, func(driver.Plan) fake.Script {
			return fake.Script{Program: func(p *fake.Process) fake.Exit {
				_, _ = io.WriteString(p.Stdout, "early\n")
				close(printed)
				<-release
				return fake.Exit{}
			}}
		})
		x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: action, Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`{}`), Action: sandbox.GateFlag}}}})
		p, stdout, stderr, err := x.StartAttached(soon(t), command())
		if err != nil {
			t.Fatal(err)
		}
		<-printed
		if !held {
			if chunk, _, err := stdout.Next(soon(t)); err != nil || string(chunk) != "early\n" {
				t.Errorf("%s: %q %v", action, chunk, err)
			}
		}
		if i := p.InfoWithOutput(); (i.StdoutBytes == 0) != held || i.HasOutput || i.Gate != nil {
			t.Errorf("%s: %+v", action, i)
		}
		if held {
			past, cancel := context.WithCancel(t.Context())
			cancel()
			if chunk, _, err := stdout.Next(past); err == nil {
				t.Errorf("%q came early", chunk)
			}
		}
		close(release)
		if rest := followed(t, stdout.Next); held && rest != "early\n" {
			t.Errorf("%s: then came %q", action, rest)
		}
		stdout.Close()
		stderr.Close()
		if i, err := p.Wait(soon(t)); err != nil || i.StdoutBytes != 6 || i.Gate == nil || i.Gate.Outcome != sandbox.GateFlag { // it is no JSON
			t.Errorf("%+v %v", i.Gate, err)
		}
	}
}

// Only the end of what is printed is kept; what that says is what it is without a gate, and a
// schema does not match it.
func TestGateOfLongOutput(t *testing.T) {
	s := serve(t, engine.Options{Gates: gates}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, strings.Repeat("x", 4999)+" "+leaked+" y")
			return fake.Exit{}
		}}
	})
	x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: sandbox.GateRedact}})
	c := command()
	c.OutputBytes = 1024
	i, err := x.Exec(soon(t), c)
	if err != nil || !i.StdoutTruncated || !strings.HasSuffix(i.Stdout, "[github_token] y") || strings.Contains(i.Stdout, leaked) || i.OutputOrder != nil || i.StdoutBytes != 5042 {
		t.Errorf("%+v %v", i, err)
	}
	x = s.create(t, sandbox.Create{Gate: &sandbox.Gate{Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`true`)}}}})
	if i, err = x.Exec(soon(t), c); err != nil || i.Stdout != "" || i.Gate.Outcome != sandbox.GateWithhold {
		t.Errorf("%+v %v", i.Gate, err)
	}
}

// Files pass the gate on every way out: whole, in parts, as they are described, in archives;
// also where they become longer, are empty, or have a name that must not come out.
func TestGateOfFiles(t *testing.T) {
	s := leaking(t, engine.Options{})
	for _, guarded := range []bool{false, true} {
		c := sandbox.Create{}
		if guarded {
			c.Gate = &sandbox.Gate{Keys: sandbox.GateRedact, Scripts: sandbox.GateWithhold, Formulas: sandbox.GateRedact, Schemas: []sandbox.GateSchema{{Of: sandbox.GateArtifact, Path: "*.json", Schema: []byte(`{"type":"object"}`)}}}
		}
		x := s.create(t, c)
		named := "dir/" + leaked
		for name, text := range map[string]string{
			"dir/a.txt": "x " + leaked + " tail", "dir/b.svg": `<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>`, "dir/c.csv": "=1,=2\n", "empty.json": "", "fine.json": "{}", named: "named",
		} {
			put(t, x, name, text)
		}
		want := map[string]string{"dir/a.txt": "x [github_token] tail", "dir/b.svg": sandbox.CodeWithheld, "dir/c.csv": "'=1,'=2\n", "empty.json": sandbox.CodeWithheld, "fine.json": "{}", named: sandbox.CodeWithheld}
		if !guarded { // the control
			want = map[string]string{"dir/a.txt": "x " + leaked + " tail", "dir/c.csv": "=1,=2\n", "empty.json": "", named: "named"}
		}
		for name, text := range want {
			if got := read(t, x, name); got != text {
				t.Errorf("%v: %s: %q, want %q", guarded, name, got, text)
			}
		}
		var part strings.Builder
		if _, err := x.ReadFile(soon(t), "dir/a.txt", 2, 7, &part); err != nil || strings.Contains(part.String(), "ghp_") == guarded {
			t.Errorf("%v: a part: %q %v", guarded, part.String(), err)
		}
		part.Reset()
		err := x.Fetch(soon(t), "dir/a.txt", func(i sandbox.FileInfo) (living.Part, error) {
			if guarded && i.Size != int64(len(want["dir/a.txt"])) {
				t.Errorf("it is described with %d bytes", i.Size)
			}
			return living.Part{Offset: i.Size - 4, Length: 4, To: &part}, nil
		})
		if err != nil || part.String() != "tail" {
			t.Errorf("%v: %q %v", guarded, part.String(), err)
		}
		files, err := x.Files(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		var packed strings.Builder
		sum, err := archive.Pack(soon(t), files, ".", archive.Tar, archive.Limits{}, &packed)
		if err != nil || strings.Contains(packed.String(), "ghp_") == guarded || strings.Contains(packed.String(), "<script>") == guarded || strings.Contains(packed.String(), "'=1,'=2") != guarded {
			t.Errorf("%v: %+v %v", guarded, sum, err)
		}
		if o := files.Outcome(); guarded != (o != nil) || guarded && (o.Outcome != sandbox.GateWithhold || sum.Skipped != 3 || sum.Files != 3) {
			t.Errorf("%v: %+v of %+v", guarded, o, sum)
		}
		list, err := x.List(soon(t), "dir", 1, 10)
		if err != nil || guarded && (len(list.Items) != 3 || list.Unprintable != 1) || !guarded && len(list.Items) != 4 {
			t.Errorf("%v: %+v %v", guarded, list, err)
		}
		for name, want := range map[string]string{"nothing": sandbox.CodeFileNotFound, "dir": sandbox.CodeNotRegularFile} {
			if got := read(t, x, name); got != want {
				t.Errorf("%v: %s: %s", guarded, name, got)
			}
		}
	}
}

// What is too large to be looked at comes out where that is only flagged, and not otherwise;
// bounds on what comes out at once hold for an archive as a whole.
func TestGateOfLargeFiles(t *testing.T) {
	s := leaking(t, engine.Options{})
	for action, want := range map[sandbox.GateAction]int64{sandbox.GateFlag: 33 << 20, sandbox.GateRedact: 0} {
		x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: action}})
		if err := x.WriteFile(soon(t), "large", 0o644, 33<<20, io.LimitReader(letters{}, 33<<20)); err != nil {
			t.Fatal(err)
		}
		if n, err := x.ReadFile(soon(t), "large", 0, -1, io.Discard); n != want || (want == 0) != (code(err) == sandbox.CodeWithheld) {
			t.Errorf("%s: %d %v", action, n, err)
		}
	}
	x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Artifacts: &sandbox.GateArtifacts{Max: 2}}})
	for _, name := range []string{"a", "b", "c"} {
		put(t, x, name, name)
	}
	files, err := x.Files(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := archive.Pack(soon(t), files, ".", archive.Zip, archive.Limits{}, io.Discard); err != nil || sum.Files != 2 || sum.Skipped != 1 {
		t.Errorf("%+v %v", sum, err)
	}
}

// A request has room for the largest of the files that are read whole for it, and none is read
// without. The control has no gate, and asks for none.
func TestGateAsksForRoom(t *testing.T) {
	s := leaking(t, engine.Options{})
	for _, g := range []*sandbox.Gate{nil, {Keys: sandbox.GateRedact}} {
		x := s.create(t, sandbox.Create{Gate: g})
		for name, size := range map[string]int{"a": 1 << 10, "b": 3 << 10, "c": 2 << 10} {
			put(t, x, name, strings.Repeat("-", size))
		}
		asked := int64(0)
		files, err := x.Files(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		counted := headroom.With(soon(t), func(n int64) error { asked += n; return nil })
		if sum, err := archive.Pack(counted, files, ".", archive.Tar, archive.Limits{}, io.Discard); err != nil || sum.Files != 3 {
			t.Fatalf("%+v %v", sum, err)
		}
		var out strings.Builder
		full := headroom.With(soon(t), func(int64) error { return &sandbox.Error{Code: sandbox.CodeBusy} })
		_, err = x.ReadFile(full, "a", 0, -1, &out)
		if g == nil && (err != nil || out.Len() != 1<<10) || g != nil && (code(err) != sandbox.CodeBusy || out.Len() != 0 || asked < 6<<10 || asked > 9<<10) {
			t.Errorf("%v: %v, %d bytes, %d asked for", g != nil, err, out.Len(), asked)
		}
	}
}

// What cannot be checked before it is handed out does not come out of a sandbox whose gate
// can hold something back: terminals and ports. Where it only flags, they work.
func TestGateRefusesStreams(t *testing.T) {
	s := leaking(t, engine.Options{})
	for action, refused := range map[sandbox.GateAction]bool{"": false, sandbox.GateFlag: false, sandbox.GateWithhold: true} {
		x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: action}})
		c := command()
		c.Terminal = &sandbox.Terminal{Cols: 80, Rows: 24}
		_, terminal := x.Start(soon(t), c)
		_, port := x.Dial(soon(t), 80)
		for way, err := range map[string]error{"terminal": terminal, "port": port} {
			e := sandbox.AsError(err)
			if got := e != nil && e.Code == sandbox.CodeWithheld; got != refused || refused && e.Hint == "" {
				t.Errorf("%s: %s: %v", action, way, err)
			}
		}
	}
}

// Nobody gets out of a gate by a snapshot or a fork, by naming a weaker one, or by a profile;
// and the operator's holds for every sandbox but the server's own.
func TestGateStaysWithASandbox(t *testing.T) {
	set := profile.Set{}
	if err := set.Add(profile.Entry{Profile: sandbox.Profile{Name: "box", Language: "shell", TTLMS: 60_000, Gate: &sandbox.Gate{
		Keys: sandbox.GateRedact, Schemas: []sandbox.GateSchema{{Of: sandbox.GateArtifact, Path: "*.json", Schema: []byte(`{}`)}},
	}}}); err != nil {
		t.Fatal(err)
	}
	s := leaking(t, engine.Options{Snapshots: snapshots.Options{Dir: t.TempDir()}, Policy: admission.Policy{Profiles: set}})
	const secretText = "x " + leaked
	want := func(what string, x *living.Sandbox) {
		t.Helper()
		if got := read(t, x, "f"); got != "x [github_token]" {
			t.Errorf("%s: %s", what, got)
		}
	}
	x := s.create(t, sandbox.Create{Gate: &sandbox.Gate{Keys: sandbox.GateRedact}})
	put(t, x, "f", secretText)
	snap := snapshot(t, x)
	want("of a snapshot", s.create(t, sandbox.Create{Snapshot: snap.ID}))
	want("of a snapshot, weaker", s.create(t, sandbox.Create{Snapshot: snap.ID, Gate: &sandbox.Gate{Keys: sandbox.GateFlag}}))
	box := s.create(t, sandbox.Create{Profile: "box"})
	put(t, box, "f", secretText)
	want("of a profile", box)
	for of, generation := box, 0; generation < 20; generation++ { // each is checked once, however often it is merged
		made, err := s.Fork(soon(t), of, sandbox.ForkSandbox{})
		if err != nil {
			t.Fatalf("generation %d: %v", generation, err)
		}
		want("a fork", made[0])
		if generation%5 != 0 {
			_, _ = of.Destroy(soon(t))
		}
		of = made[0]
	}
	if _, err := s.Create(soon(t), "alice", sandbox.Create{Profile: "box", Gate: &sandbox.Gate{Keys: sandbox.GateFlag}}); code(err) != sandbox.CodeProfileDenied {
		t.Errorf("weaker than the profile: %v", err)
	}

	s = leaking(t, engine.Options{Policy: admission.Policy{Gate: &sandbox.Gate{Keys: sandbox.GateRedact}}})
	x = s.create(t, sandbox.Create{})
	put(t, x, "f", secretText)
	want("the operator's", x)
	own, err := s.CreateOwn(soon(t), "alice", sandbox.Create{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, own, "f", secretText)
	holds(t, own, "f", secretText)
}

// The secrets that its endpoints name are looked for; where they cannot be read, nothing
// comes out.
func TestGateKnowsTheSandboxesSecrets(t *testing.T) {
	const value, other = "swordfish-12345", "marlin-67890"
	fixed, err := secret.NewFixed(map[string]sandbox.SetSecret{"door": {Hosts: []string{"a.test"}, Value: value}, "other": {Hosts: []string{"a.test"}, Value: other}})
	if err != nil {
		t.Fatal(err)
	}
	f := &breakable{Finder: fixed}
	s := serve(t, engine.Options{Gates: gates, Secrets: f, Policy: admission.Policy{Network: admission.Network{Own: true}}}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = io.WriteString(p.Stdout, value+" "+other)
			return fake.Exit{}
		}}
	})
	x := s.create(t, sandbox.Create{
		Gate: &sandbox.Gate{Secrets: sandbox.GateRedact}, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: "a.test", Ports: []int{443}, Secret: "door"}}},
	})
	put(t, x, "f", value)
	if i, err := x.Exec(soon(t), command()); err != nil || i.Stdout != "[secret door] "+other || read(t, x, "f") != "[secret door]" {
		t.Errorf("%+v %v", i, err)
	}
	f.broken = true
	if i, err := x.Exec(soon(t), command()); err != nil || i.Stdout != "" || i.Gate == nil || i.Gate.Outcome != sandbox.GateWithhold || read(t, x, "f") != sandbox.CodeInternal {
		t.Errorf("%+v %v", i, err)
	}
}

type breakable struct {
	secret.Finder
	broken bool
}

func (b *breakable) Find(ctx context.Context, tenant, name string) (secret.Secret, error) {
	if b.broken {
		return secret.Secret{}, errors.New("the disk is gone")
	}
	return b.Finder.Find(ctx, tenant, name)
}

// A gate that a living sandbox cannot have is refused before anything is made.
func TestGateOfASandboxRefused(t *testing.T) {
	judge := []sandbox.GateValidator{{Language: "sh", Code: "true"}}
	s := leaking(t, engine.Options{})
	for field, g := range map[string]*sandbox.Gate{
		"gate.keys": {Keys: "remove"}, "gate.validators": {Validators: judge},
		"gate.schemas[0].schema": {Schemas: []sandbox.GateSchema{{Of: sandbox.GateStdout, Schema: []byte(`{"$ref": "file:///etc/passwd"}`)}}},
	} {
		_, err := s.Create(soon(t), "alice", sandbox.Create{Gate: g})
		if e := sandbox.AsError(err); e == nil || e.Field != field || e.Hint == "" || e.Code != sandbox.CodeSpecInvalid {
			t.Errorf("%s: %+v", field, e)
		}
	}
	strict := leaking(t, engine.Options{Policy: admission.Policy{Gate: &sandbox.Gate{Validators: judge}}})
	if _, err := strict.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodePolicyRefused || sandbox.AsError(err).Hint == "" {
		t.Errorf("the operator's validators: %v", err)
	}
	none := serve(t, engine.Options{}, nil)
	if _, err := none.Create(soon(t), "alice", sandbox.Create{Gate: &sandbox.Gate{Keys: sandbox.GateFlag}}); code(err) != sandbox.CodeSpecInvalid {
		t.Errorf("an engine without gates: %v", err)
	}
}
