//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver/drivertest"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// Outcome is what a case came to.
type Outcome string

// The outcomes. Only the first is good by itself; NoControl and Unsupported are
// accepted where testdata/declared.txt gives a reason.
const (
	Pass         Outcome = "PASS"
	Fail         Outcome = "FAIL"
	NoControl    Outcome = "NOCONTROL"
	Unsupported  Outcome = "UNSUPPORTED"
	HarnessError Outcome = "HARNESS-ERROR"
)

// ordinaryEnv says that this process is the second run, as an ordinary user.
// The controls need root; they have succeeded in the first.
const ordinaryEnv = "PINFOLD_ATTACKS_ORDINARY"

func ordinary() bool { return os.Getenv(ordinaryEnv) != "" }

// groups are all the cases.
func groups() [][]Case {
	return [][]Case{
		fsCases(), fsRaceCases(), prCases(), signalCases(), keCases(), reCases(), stressCases(), sharedCases(), viewCases(), limitCases(),
		ouCases(), crCases(), neCases(), teCases(), ptCases(), badCases(), ruleCases(), warmCases(), warmViewCases(), computer(),
	}
}

// waits says that a case is about how long the host waits for a silent agent, which is the same
// whatever makes the sandbox and whoever does: it is tried once.
func waits(c Case) bool { return c.ID == "PT-02-silence" || c.ID == "PT-02-mute" }

func TestAttacks(t *testing.T) {
	if os.Geteuid() != 0 && !ordinary() {
		t.Skip("the positive controls need root")
	}
	ledger.Check(t)
	before := hostState(t)
	a := newArena(t, readPrelude(t))
	declared := readDeclared(t)
	counts := map[Outcome]int{}
	for _, group := range groups() {
		for _, c := range group {
			if ordinary() && waits(c) {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				start := time.Now()
				here := *a
				here.T, here.dir = t, t.TempDir()
				o, notes := here.play(c)
				declared.apply(t, c, o, notes)
				counts[o]++
				t.Logf("%s %s in %v: %s", o, c.ID, time.Since(start).Round(time.Millisecond), c.Title)
			})
		}
	}
	t.Logf("%v", counts)
	if t.Failed() {
		return
	}
	a.checkAgent()
	if after := hostState(t); after != before {
		t.Errorf("settings of the host changed:\n%s\n%s", before, after)
	}
	declared.unused(t)
}

// TestAttacksAsOrdinaryUser does it all again where Pinfold has no privilege.
func TestAttacksAsOrdinaryUser(t *testing.T) {
	asuser.Rerun(t, "TestAttacks", []string{"pinfold/cmd/pinfold-agent", hostilePackage}, []string{
		ordinaryEnv + "=1", preludeEnv + "=" + readPrelude(t), declaredEnv + "=" + string(must(os.ReadFile(declaredFile))),
	})
}

// gvisorCases are those of groups that attack a sandbox whatever makes it. The others are
// about the native driver's own means: interpreters that are forked, and views of the host.
func gvisorCases() [][]Case {
	return [][]Case{
		fsCases(), fsRaceCases(), prCases(), signalCases(), keCases(), reCases(), stressCases(), sharedCases(), limitCases(),
		ouCases(), crCases(), neCases(), teCases(), ptCases(), badCases(), ruleCases(),
	}
}

// TestAttacksOnGVisor does it all again in sandboxes with a kernel of their own. The controls
// are the host's, and have succeeded in TestAttacks.
func TestAttacksOnGVisor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the gvisor driver needs root")
	}
	runsc := drivertest.Runsc(t)
	ledger.Check(t)
	before := hostState(t)
	a := newArenaOf(t, readPrelude(t), runsc)
	declared := readGVisorDeclared(t)
	for _, group := range gvisorCases() {
		for _, c := range group {
			if waits(c) {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				here := *a
				here.T, here.dir = t, t.TempDir()
				o, notes := here.defend(c)
				if o == Fail { // unless it is declared
					o, notes = Unsupported, gaps(notes)
				}
				declared.apply(t, c, o, notes)
			})
		}
	}
	if after := hostState(t); after != before {
		t.Errorf("settings of the host changed:\n%s\n%s", before, after)
	}
	declared.unused(t)
}

// gaps are what is wrong with a case, each with the door that it is about, where it is about
// one: what declarations name.
func gaps(wrong []string) (notes []string) {
	for _, w := range wrong {
		door, rest, ok := strings.Cut(w, " answers ")
		switch {
		case ok:
			notes = append(notes, door+": "+rest)
		case !strings.HasPrefix(w, "cause ") && !strings.HasPrefix(w, "status "): // which say more about the others
			notes = append(notes, "* "+w)
		}
	}
	return notes
}

// play runs a control, the attack and its twin.
func (a *arena) play(c Case) (Outcome, []string) {
	for _, f := range c.Needs {
		if !a.enforces(f) {
			return Unsupported, []string{"* not enforced here: " + f}
		}
	}
	if c.Root && ordinary() {
		return Unsupported, []string{"* needs root on the host"}
	}
	missing, err := a.control(c)
	if err != nil {
		return HarnessError, []string{err.Error()}
	}
	if o, wrong := a.defend(c); o != Pass {
		return o, wrong
	}
	if len(missing) > 0 {
		return NoControl, missing
	}
	return Pass, nil
}

// defend runs the attack and its twin.
func (a *arena) defend(c Case) (Outcome, []string) {
	if wrong := a.attackCase(c); len(wrong) > 0 {
		return Fail, wrong
	}
	if wrong := a.twin(c.Twin); wrong != "" {
		return Fail, []string{wrong}
	}
	return Pass, nil
}

// control runs the attack without the defence. The result lists what could not
// be shown to be possible without it.
func (a *arena) control(c Case) (missing []string, err error) {
	switch {
	case ordinary():
		return nil, nil
	case c.Control.Jail:
		out, err := a.jail(c.Attack)
		if err != nil {
			return nil, err
		}
		values := doorValues(out)
		for _, d := range c.Doors {
			if !d.open(values[d.Key]) {
				missing = append(missing, fmt.Sprintf("%s: without a defence it answers %q", d.Key, values[d.Key]))
			}
		}
		return missing, nil
	case c.Control.Run != nil:
		if err := c.Control.Run(a); err != nil {
			return []string{"* " + err.Error()}, nil //nolint:nilerr // it is a finding
		}
		return nil, nil
	}
	return []string{"* " + c.Control.None}, nil
}

// attackCase says what the attack achieved.
func (a *arena) attackCase(c Case) (wrong []string) {
	tr := &trial{arena: a, payload: c.Attack, files: map[string][]byte{}, notes: map[string]string{}}
	var after func()
	if c.Around != nil {
		after = c.Around(tr)
	}
	start := time.Now()
	switch {
	case c.Do != nil:
		tr.err = c.Do(tr)
		tr.took = time.Since(start)
		if tr.err != nil {
			wrong = append(wrong, tr.err.Error())
		}
	default:
		tr.attack(a.engine)
		if tr.took > max(4*c.Attack.Quick, time.Minute) { // far beyond what a busy machine costs: it hung
			wrong = append(wrong, fmt.Sprintf("it took %v", tr.took))
		}
	}
	if after != nil {
		after()
	}
	return append(wrong, tr.judge(c)...)
}

// judge compares what the payload saw and what the host saw with the case.
func (t *trial) judge(c Case) (wrong []string) {
	if len(c.Doors) > 0 {
		if t.result == nil {
			return []string{fmt.Sprintf("no result: %v", t.err)}
		}
		values := doorValues(t.result.Stdout)
		for _, d := range c.Doors {
			if v := values[d.Key]; !d.shut(v) {
				wrong = append(wrong, fmt.Sprintf("%s answers %q, not %s", d.Key, v, d.Shut))
			}
		}
		if len(wrong) > 0 {
			wrong = append(wrong, fmt.Sprintf("cause %+v, stderr %.400q", t.result.Cause, t.result.Stderr))
		}
	}
	if c.Do == nil && strings.Contains(t.everything(), t.secret) {
		wrong = append(wrong, "the host's secret came out")
	}
	if c.Judge != nil {
		if err := c.Judge(t); err != nil {
			wrong = append(wrong, err.Error())
			if t.result != nil {
				wrong = append(wrong, fmt.Sprintf("status %s, cause %+v, stdout %.300q, stderr %.300q, error %v", t.result.Status, t.result.Cause, t.result.Stdout, t.result.Stderr, t.err))
			}
		}
	}
	return wrong
}

// twin runs what must work and says what is wrong with it.
func (a *arena) twin(w *Twin) string {
	if w == nil {
		return ""
	}
	t := a.run(w.Payload)
	switch {
	case t.err != nil:
		return fmt.Sprintf("the harmless neighbour (%s) did not run: %v", w.What, t.err)
	case t.result.Status != sandboxSucceeded || !regexp.MustCompile(w.Want).MatchString(t.result.Stdout):
		return fmt.Sprintf("the harmless neighbour (%s) does not work: %s %+v, stdout %.300q, stderr %.300q",
			w.What, t.result.Status, t.result.Cause, t.result.Stdout, t.result.Stderr)
	}
	return ""
}

// declaration accepts an outcome for a reason.
type declaration struct {
	outcome Outcome
	reason  string
	used    bool
}

// declarations are those of testdata/declared.txt, by "ID" or "ID/door".
type declarations map[string]*declaration

const (
	declaredFile = "testdata/declared.txt"
	declaredEnv  = "PINFOLD_ATTACKS_DECLARED"
	preludeEnv   = "PINFOLD_ATTACKS_PRELUDE"
)

func readPrelude(t *testing.T) string { return readOr(t, preludeEnv, preludeFile) }

func readDeclared(t *testing.T) declarations {
	t.Helper()
	d, err := parseDeclared(readOr(t, declaredEnv, declaredFile))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// gvisorDeclaredFile is declaredFile for sandboxes of the gvisor driver.
const gvisorDeclaredFile = "testdata/declared-gvisor.txt"

func readGVisorDeclared(t *testing.T) declarations {
	t.Helper()
	d, err := parseDeclared(string(must(os.ReadFile(gvisorDeclaredFile))))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// readOr takes a file's content from the environment, for the run that cannot
// read the checkout.
func readOr(t *testing.T, env, file string) string {
	t.Helper()
	if s := os.Getenv(env); s != "" {
		return s
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parseDeclared reads lines "OUTCOME KEY reason …".
func parseDeclared(text string) (declarations, error) {
	all := declarations{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if f[0] == "" || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 3 || !slices.Contains([]Outcome{NoControl, Unsupported}, Outcome(f[0])) || all[f[0]+" "+f[1]] != nil {
			return nil, fmt.Errorf("not a declaration: %q", line)
		}
		all[f[0]+" "+f[1]] = &declaration{outcome: Outcome(f[0]), reason: f[2]}
	}
	return all, nil
}

// apply fails the test unless the outcome is good or declared.
func (d declarations) apply(t *testing.T, c Case, o Outcome, notes []string) {
	t.Helper()
	if o == Pass {
		return
	}
	for _, note := range notes {
		key, _, _ := strings.Cut(note, ":")
		name := c.ID
		if !strings.HasPrefix(note, "* ") {
			name += "/" + key
		}
		found := d[string(o)+" "+name]
		if found == nil {
			found = d[string(o)+" "+c.ID]
		}
		if found == nil || found.outcome != o {
			t.Errorf("%s %s: %.800s", o, c.ID, note)
			continue
		}
		found.used = true
		t.Logf("%s %s, declared: %s (%.200s)", o, name, found.reason, note)
	}
}

// unused tells which declarations were not needed: kernels and machines differ.
func (d declarations) unused(t *testing.T) {
	t.Helper()
	for key, x := range d {
		if !x.used {
			t.Logf("declared in %s and not needed here: %s (%s)", declaredFile, key, x.reason)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var errHit = errors.New("the attack arrived")
