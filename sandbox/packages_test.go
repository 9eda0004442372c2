package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

var (
	someHex    = strings.Repeat("0a", 32)
	someBase64 = strings.Repeat("Ab+/", 21) + "Ab=="
)

func TestPackagesHaveOneReading(t *testing.T) {
	p, err := Packages{
		Python: []string{"Typing_Extensions==4.12.2", "rich==13.9", "requests[socks,use_chardet]==2.32.3  --hash=sha256:" + someHex},
		NPM:    []string{"left-pad@1.3.0", "@types/node@22.9.0-rc.1+b sha512-" + someBase64, "JSONStream@1.3.5"},
	}.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	python := []string{"requests[socks,use_chardet]==2.32.3 --hash=sha256:" + someHex, "rich==13.9", "typing-extensions==4.12.2"}
	npm := []string{"@types/node@22.9.0-rc.1+b sha512-" + someBase64, "JSONStream@1.3.5", "left-pad@1.3.0"}
	if !slices.Equal(p.Python, python) || !slices.Equal(p.NPM, npm) {
		t.Errorf("%q", p)
	}
	if again, err := p.Canonical(); err != nil || !slices.Equal(again.Python, python) || !slices.Equal(again.NPM, npm) {
		t.Errorf("read again: %q, %v", again, err)
	}
}

// What an installer would take for an option, an address, a path or a range is no package.
func TestPackagesThatAreSomethingElse(t *testing.T) {
	for _, text := range []string{
		"", " ", "rich", "rich>=13", "rich==13.*", "rich==", "==1", "--index-url=http://evil==1", "-r/etc/passwd==1", "--hash=sha256:" + someHex,
		"rich==13.9 --index-url=https://evil.example", "rich==13.9 --hash=md5:00", "rich==13.9 --hash=sha256:" + someHex + "00", "rich==13.9;python_version>'3'",
		"rich @ https://evil.example/rich.whl", "git+https://evil.example/x==1", "./rich==1", "/tmp/rich.whl", "../rich==1", "rich==1\n-r x", "rich[==1", "rich[a b]==1", "rich[-e]==1",
		"rich==../x", "rich==-1", "rich===1", "ri\u200bch==1", strings.Repeat("a", 215) + "==1", "rich==" + strings.Repeat("1", 2000),
	} {
		if _, err := ParsePackage(PackagesPython, text); AsError(err) == nil || AsError(err).Hint == "" || AsError(err).Code != CodeSpecInvalid {
			t.Errorf("python %q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "left-pad", "left-pad@", "left-pad@latest", "left-pad@^1.3.0", "left-pad@1.3", "left-pad@1.x.0", "left-pad@*", "@1.3.0", "--registry@1.3.0", "-g@1.3.0",
		"left-pad@https://evil.example/x.tgz", "left-pad@npm:other@1.0.0", "left-pad@file:../x", "git+ssh://git@evil.example/x.git", "evil/left-pad@1.0.0", "@scope@1.0.0", "@/x@1.0.0", "@a/b/c@1.0.0",
		"../x@1.0.0", ".hidden@1.0.0", "@-x/y@1.0.0", "left-pad@1.3.0 --registry=http://evil", "left-pad@1.3.0 sha1-xx", "left-pad@1.3.0 sha512-" + someBase64[1:], "left-pad@1.3.0\n--x", "left-pad@1.3.0-", "left-pad@1.3.0-a_b",
	} {
		if _, err := ParsePackage(PackagesNPM, text); AsError(err) == nil || AsError(err).Hint == "" || AsError(err).Code != CodeSpecInvalid {
			t.Errorf("npm %q: %v", text, err)
		}
	}
}

func TestPackagesAreBoundedAndNamed(t *testing.T) {
	var many []string
	for i := range MaxPackages + 1 {
		many = append(many, fmt.Sprintf("p%d==1", i))
	}
	run := Spec{Code: "x", Packages: Packages{Python: many}}
	if e := AsError(run.Validate()); e == nil || e.Code != CodeTooLarge || e.Field != "packages.python" || e.Hint == "" {
		t.Errorf("%v", e)
	}
	run.Packages = Packages{NPM: []string{"a@1.0.0", "--registry=x"}}
	if e := AsError(run.Validate()); e == nil || e.Field != "packages.npm[1]" {
		t.Errorf("%v", e)
	}
	run.Packages = Packages{Python: []string{"a_b==1", "A-B==2"}}
	if e := AsError(run.Validate()); e == nil || e.Field != "packages.python[1]" || !strings.Contains(e.Message, "twice") {
		t.Errorf("%v", e)
	}
}
