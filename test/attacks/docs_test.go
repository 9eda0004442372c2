//go:build linux

package attacks

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/attacks.md")

const docsFile = "../../docs/attacks.md"

// elsewhere lists attacks of the catalogue that other tests make, and those
// that wait for what does not exist yet.
var elsewhere = [][2]string{
	{"KE-01: the filter, interpreted for every architecture and number", "`internal/linux/seccomp.TestGoldenTable`, `internal/linux/seccomp.TestFilterAgreesWithTables`"},
	{"KE-13: weaker kernels are refused or named", "internal/driver/native and test/kernels"},
	{"FS-10: archives that go in", "`internal/archive.TestHostileArchives`, `internal/archive.TestRollback`, `internal/archive.FuzzUnpack`, `test/api.TestUnsafeArchivesAreRefused`"},
	{"NE-03, NE-05: addresses of metadata services, names that change where they lead", "`internal/egress.TestNamesOfForbiddenAddresses`, `test/network.TestNothingElse`"},
	{"NE-04: addresses in disguise", "`internal/egress.TestSpecialAddresses`, `internal/egress.TestOwnAddresses`"},
	{"NE-06: names as a way out", "`test/network.TestNothingElse`, `internal/egress.TestNamesBelowAWildcard`, `internal/egress.TestWrongQueries`"},
	{"NE-08: a declared name in the handshake and another inside, and the reverse", "`test/network.TestNothingElse`, `internal/egress.TestTLSIsHeldToItsName`, `internal/egress.TestHelloWithTwoReadings`, `internal/egress.FuzzHelloName`"},
	{"NE-09: a request that names another host than it came for", "`test/network.TestNothingElse`, `internal/egress.TestHTTPIsHeldToItsHost`, `internal/egress.TestRulesAgainstSmuggling`"},
	{"NE-11: names that two readers read differently", "`internal/egress.TestWrongRequestsToTheHTTPProxy`, `internal/egress.TestWrongRequestsToTheSOCKSProxy`, `sandbox.FuzzCanonicalHost`"},
	{"NE-13: a sibling's way out", "`test/network.TestDoorsAreNobodyElses`"},
	{"NE-17: what passes everything on is killed or told otherwise in the midst of it", "`test/network.TestKilledInMidTransfer`, `test/network.TestTheEndCutsConnections`, `test/network.TestNarrowing`, `internal/egress.TestNarrowingCutsConnections`"},
	{"CR-02: the value of a declared secret inside", "`test/network.TestSecretIsNowhereInside`"},
	{"CR-03: a secret in another place than its own, or for another host", "`internal/egress.TestSecretIsInjected`, `internal/egress.TestSecretNeedsTLS`, `internal/egress.TestEchoesAreRedacted`, `internal/egress.TestAnswersThatHideTheSecret`"},
	{"PT-03: ids and paths that lead elsewhere", "`test/api.TestIDsThatAreNone`, `test/api.TestGuestPathsAreChecked`"},
	{"PT-06: a directory of the host by a request", "`test/api.TestBodiesSayWhichFieldIsWrong`"},
	{"PT-07: a page in somebody's browser", "`test/api.TestHostAndOrigin`"},
	{"PT-08: another tenant's objects", "`test/api.TestNothingOfAnotherTenantIsVisible`, `test/api.TestListsShowOnlyOnesOwn`"},
	{"OU-05: who does not read", "`test/api.TestSlowReadersAreDropped`, `test/api.TestUnreadAnswersHaveABudget`"},
	{"LI-01, LI-02: a server that is killed", "`test/faults.TestCrashes`, `internal/driver/native.TestCrash`, `internal/store.TestKilledWhileWriting`"},
	{"LI-03: thousands of lives", "`internal/driver/native.TestSoak`, `internal/driver/native.TestForkSoak`, `test/faults.TestSoak`"},
	{"LI-04: a full disk", "`test/faults.TestFullDisk`, `internal/store.TestFullDisk`"},
	{"LI-11: a log that is rewritten", "`internal/audit.TestEveryFlippedByteIsFound`, `internal/audit.TestDroppedAndMovedEntriesAreNamed`, `internal/audit.TestChangesAreNamed`"},
}

// TestDocs keeps docs/attacks.md true.
func TestDocs(t *testing.T) {
	if ordinary() {
		t.Skip("the checkout is not here")
	}
	want := document(readDeclared(t), readGVisorDeclared(t))
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Fatalf("docs/attacks.md is not what the cases say; run go test ./test/attacks -run TestDocs -update (-want +got):\n%s", diff)
	}
}

// TestCasesAreComplete checks the data itself.
func TestCasesAreComplete(t *testing.T) {
	seen, numbers := map[string]bool{}, map[string]string{}
	for _, c := range slices.Concat(groups()...) {
		control := c.Control
		ways := 0
		for _, has := range []bool{control.Jail, control.Run != nil, control.None != ""} {
			if has {
				ways++
			}
		}
		switch {
		case c.ID == "" || seen[c.ID]:
			t.Errorf("%q: no ID of its own", c.ID)
		case c.Title == "" || c.Expect == "" || c.Source == "" || c.Level == "" || c.Severity == "":
			t.Errorf("%s: not described", c.ID)
		case c.Do == nil && c.Attack.Code == "":
			t.Errorf("%s: attacks nothing", c.ID)
		case c.Do == nil && c.Judge == nil && len(c.Doors) == 0:
			t.Errorf("%s: asserts nothing", c.ID)
		case ways != 1 || control.None == "" && control.Without == "":
			t.Errorf("%s: needs one control, and what it is without", c.ID)
		case control.Jail && len(c.Doors) == 0:
			t.Errorf("%s: a control that asserts nothing", c.ID)
		}
		seen[c.ID] = true
		number, kind := numberOf(c)
		if other, taken := numbers[number]; taken && (kind == "" || other != kind) {
			t.Errorf("%s: %s is also the number of another attack", c.ID, number)
		}
		numbers[number] = kind
	}
	for file, declared := range map[string]declarations{declaredFile: readDeclared(t), gvisorDeclaredFile: readGVisorDeclared(t)} {
		for key := range declared {
			_, name, _ := strings.Cut(key, " ")
			id, _, _ := strings.Cut(name, "/")
			if !seen[id] {
				t.Errorf("%s declares %s, which is no case", file, id)
			}
		}
	}
}

// numberOf splits an ID such as RE-13-vm. kind is what all cases of one number have in
// common, their source, and is empty for a case that has its number alone.
func numberOf(c Case) (number, kind string) {
	parts := strings.SplitN(c.ID, "-", 3)
	number = strings.Join(parts[:min(2, len(parts))], "-")
	if len(parts) == 3 {
		kind = c.Source
	}
	return number, kind
}

func document(declared, gvisor declarations) string {
	var b strings.Builder
	b.WriteString(`# Attacks

<!-- Made by go test ./test/attacks -run TestDocs -update; edit the cases, not this file. -->

What hostile programs, requests, files and a taken-over agent try against a sandbox, and what must come of
it. ` + "`go test ./test/attacks`" + ` makes every attack, as root and again as an ordinary user, and first shows
without the named defence that it would succeed (the positive control), so that no case passes because it
was broken. What an attack achieved is judged on the host. A corpus of ordinary programs must work in the same
sandboxes.

How bad it would be: Escape, HostLeak, Exfil, Lateral, HostDoS and PeerDoS cross the boundary and stop a release;
Integrity is a result that lies; SelfDoS and Inside stay within the sandbox.

| id | what is tried | by | if it succeeds | what must be observed | control: it succeeds without | neighbour that must work | seen first in |
|---|---|---|---|---|---|---|---|
`)
	for _, c := range slices.Concat(groups()...) {
		control := c.Control.Without
		if c.Control.None != "" {
			control = "none: " + c.Control.None
		}
		neighbour := ""
		if c.Twin != nil {
			neighbour = c.Twin.What
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join([]string{
			c.ID, cell(c.Title), string(c.Level), string(c.Severity), cell(c.Expect), cell(control), cell(neighbour), cell(c.Source),
		}, " | "))
	}
	b.WriteString("\n## Accepted on some machines\n\nFrom test/attacks/testdata/declared.txt. NOCONTROL: the attack is made and refused, but that it would succeed\nwithout our defence cannot be shown here. UNSUPPORTED: results name the gap in not_enforced.\n\n| outcome | case | why |\n|---|---|---|\n")
	writeDeclared(&b, declared)
	b.WriteString("\n## With a kernel of the sandbox's own\n\n`TestAttacksOnGVisor` makes the attacks again in sandboxes of the gvisor driver, but for those on forked\ninterpreters, on views of the host and on an agent that is silent. From test/attacks/testdata/declared-gvisor.txt: what is otherwise there, and why that is\nno hole.\n\n| outcome | case | why |\n|---|---|---|\n")
	writeDeclared(&b, gvisor)
	b.WriteString("\n## Made elsewhere, or later\n\n| attack | where |\n|---|---|\n")
	for _, e := range elsewhere {
		fmt.Fprintf(&b, "| %s | %s |\n", e[0], e[1])
	}
	b.WriteString("\n## Ordinary programs that must work\n\n")
	for _, w := range benign {
		fmt.Fprintf(&b, "- %s\n", w.What)
	}
	return b.String()
}

// writeDeclared writes the lines of a table.
func writeDeclared(b *strings.Builder, declared declarations) {
	for _, key := range slices.Sorted(maps.Keys(declared)) {
		outcome, name, _ := strings.Cut(key, " ")
		fmt.Fprintf(b, "| %s | %s | %s |\n", outcome, name, cell(declared[key].reason))
	}
}

// cell makes text fit into a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
