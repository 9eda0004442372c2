package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Packages are what programs can import beside what is in their template, by kind. An
// entry has one version, and may have digests, of which what is fetched must have one. A
// result's packages are in the same words, with everything that was installed and its
// digest: asked for as they are, they give the same again.
type Packages struct {
	Python []string `json:"python,omitempty"` // "rich==13.9.4" or "rich==13.9.4 --hash=sha256:HEX"
	NPM    []string `json:"npm,omitempty"`    // "left-pad@1.3.0" or "left-pad@1.3.0 sha512-BASE64"
}

// The kinds of packages, as fields and flags say them.
const (
	PackagesPython = "python"
	PackagesNPM    = "npm"
)

// PackageKinds lists the kinds of packages.
func PackageKinds() []string { return []string{PackagesPython, PackagesNPM} }

// Bounds on what one request may ask for.
const (
	MaxPackages     = 200 // of a kind
	maxPackageText  = 1000
	maxPackageName  = 214
	maxPackageWords = 1 + 8 // a name with its version, and digests
)

// Of returns the packages of a kind.
func (p Packages) Of(kind string) []string {
	if kind == PackagesNPM {
		return p.NPM
	}
	return p.Python
}

// Empty says that none are asked for.
func (p Packages) Empty() bool { return len(p.Python) == 0 && len(p.NPM) == 0 }

// IsZero says whether nothing was said, for JSON.
func (p Packages) IsZero() bool { return p.Python == nil && p.NPM == nil }

// Package is one entry, read.
type Package struct {
	Name    string // as its index compares it, with the scope of an npm package
	Extras  string // of Python's, such as "[socks]"; or empty
	Version string
	Digests []string // "sha256:HEX" of Python's, "sha512-BASE64" of npm's
}

// Canonical is the one reading of a declaration: names as their index compares them, in
// order. What has another reading, or none, is refused, with the field.
func (p Packages) Canonical() (Packages, error) {
	var out Packages
	for _, kind := range PackageKinds() {
		list := p.Of(kind)
		field := "packages." + kind
		if len(list) > MaxPackages {
			return Packages{}, tooLarge(field, int64(len(list)), MaxPackages).WithHint(fmt.Sprintf("ask for at most %d; what they need comes by itself", MaxPackages))
		}
		all, names := make([]string, 0, len(list)), map[string]bool{}
		for i, text := range list {
			at := fmt.Sprintf("%s[%d]", field, i)
			one, err := ParsePackage(kind, text)
			if err != nil {
				return Packages{}, AsError(err).WithField(at)
			}
			if names[one.Name] {
				return Packages{}, specError(at, one.Name+" is there twice").WithHint("name each package once")
			}
			names[one.Name] = true
			all = append(all, one.Text(kind))
		}
		slices.Sort(all)
		switch {
		case len(all) == 0:
		case kind == PackagesNPM:
			out.NPM = all
		default:
			out.Python = all
		}
	}
	return out, nil
}

func (s Spec) validatePackages() error {
	_, err := s.Packages.Canonical()
	return err
}

// Text says a package as ParsePackage reads it.
func (p Package) Text(kind string) string {
	if kind == PackagesNPM {
		return strings.Join(append([]string{p.Name + "@" + p.Version}, p.Digests...), " ")
	}
	text := p.Name + p.Extras + "==" + p.Version
	for _, d := range p.Digests {
		text += " --hash=" + d
	}
	return text
}

// ParsePackage reads one entry. Only a name with one version, and digests, can be said: no
// option, URL, path or range, nothing that an installer would take for something else.
func ParsePackage(kind, text string) (Package, error) {
	words := strings.Fields(text[:min(len(text), maxPackageText+1)])
	if len(text) > maxPackageText || len(words) > maxPackageWords {
		return Package{}, packageError(kind, "is too long for a package with its version and digests")
	}
	if len(words) == 0 || SafeText(text, maxPackageText) != text {
		return Package{}, packageError(kind, "is no package with its version")
	}
	if kind == PackagesNPM {
		return parseNPM(words)
	}
	return parsePython(words)
}

func packageError(kind, why string) error {
	if kind == PackagesNPM {
		return specError("", why).WithHint(`write NAME@VERSION, such as "left-pad@1.3.0" or "@types/node@22.9.0"; options, URLs, paths and ranges are not accepted`)
	}
	return specError("", why).WithHint(`write NAME==VERSION, such as "rich==13.9.4"; options, URLs, paths and ranges are not accepted`)
}

const (
	lowerLetters = "abcdefghijklmnopqrstuvwxyz"
	upperLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits       = "0123456789"
	alphanumeric = lowerLetters + upperLetters + digits
)

// made says whether s has 1 to most bytes of a set, and begins and ends with one of ends.
func made(s, of, ends string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, of) == "" && strings.Trim(s[:1]+s[len(s)-1:], ends) == ""
}

// parsePython reads PEP 508's NAME[EXTRA,…]==VERSION, and pip's --hash=sha256:HEX.
func parsePython(words []string) (Package, error) {
	var p Package
	before, version, some := strings.Cut(words[0], "==")
	p.Version = version
	name, extras, with := strings.Cut(before, "[")
	wrong := func(why string) (Package, error) {
		return Package{}, packageError(PackagesPython, fmt.Sprintf("\"%s\" %s", SafeText(words[0], 80), why))
	}
	switch {
	case !made(name, alphanumeric+"._-", alphanumeric, maxPackageName):
		return wrong("does not begin with a package's name")
	case !some:
		return wrong("does not say one version")
	case !made(version, alphanumeric+".!+_-", alphanumeric, 100) || strings.Trim(version[:1], digits) != "":
		return wrong("does not say one version")
	}
	p.Name = normal(name)
	if with {
		list, closed := strings.CutSuffix(extras, "]")
		for _, e := range strings.Split(list, ",") {
			if !closed || !made(e, alphanumeric+"._-", alphanumeric, maxPackageName) {
				return wrong("has extras that cannot be read")
			}
		}
		p.Extras = "[" + list + "]"
	}
	for _, w := range words[1:] {
		hash, ok := strings.CutPrefix(w, "--hash=")
		hex, known := strings.CutPrefix(hash, "sha256:")
		if !ok || !known || len(hex) != 64 || strings.Trim(hex, "abcdef"+digits) != "" {
			return Package{}, packageError(PackagesPython, fmt.Sprintf("\"%s\" is no --hash=sha256: with 64 digits", SafeText(w, 80)))
		}
		p.Digests = append(p.Digests, hash)
	}
	slices.Sort(p.Digests)
	p.Digests = slices.Compact(p.Digests)
	return p, nil
}

// normal is a name as Python's indexes compare it (PEP 503).
func normal(name string) string {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_.", r) })
	return strings.Join(parts, "-")
}

// parseNPM reads [@SCOPE/]NAME@VERSION and a digest of SHA-512 as npm's lock files have it.
func parseNPM(words []string) (Package, error) {
	at := strings.LastIndexByte(words[0], '@')
	wrong := func(why string) (Package, error) {
		return Package{}, packageError(PackagesNPM, fmt.Sprintf("\"%s\" %s", SafeText(words[0], 80), why))
	}
	if at <= 0 {
		return wrong("does not say one version")
	}
	p := Package{Name: words[0][:at], Version: words[0][at+1:]}
	scope, name, scoped := strings.Cut(strings.TrimPrefix(p.Name, "@"), "/")
	if !scoped {
		scope, name = "x", scope
	}
	inside := alphanumeric + "._~-"
	if scoped != strings.HasPrefix(p.Name, "@") || len(p.Name) > maxPackageName ||
		!made(scope, inside, alphanumeric+"_~-", maxPackageName) || !made(name, inside, alphanumeric+"_~-", maxPackageName) || strings.HasPrefix(scope, "-") || strings.HasPrefix(name, "-") {
		return wrong("does not begin with a package's name")
	}
	if !isSemver(p.Version) {
		return wrong("does not say one version")
	}
	for _, w := range words[1:] {
		hash, ok := strings.CutPrefix(w, "sha512-")
		if !ok || len(hash) != 88 || !strings.HasSuffix(hash, "==") || strings.Trim(hash[:86], alphanumeric+"+/") != "" {
			return Package{}, packageError(PackagesNPM, fmt.Sprintf("\"%s\" is no sha512- with a digest in base64", SafeText(w, 120)))
		}
		p.Digests = append(p.Digests, w)
	}
	slices.Sort(p.Digests)
	p.Digests = slices.Compact(p.Digests)
	return p, nil
}

// isSemver says whether a version is one of semver.org's, in full.
func isSemver(v string) bool {
	if len(v) > 100 {
		return false
	}
	v, build, some := strings.Cut(v, "+")
	if some && !made(build, alphanumeric+".-", alphanumeric+"-", 100) {
		return false
	}
	v, pre, some := strings.Cut(v, "-")
	if some && !made(pre, alphanumeric+".-", alphanumeric+"-", 100) {
		return false
	}
	numbers := strings.Split(v, ".")
	for _, n := range numbers {
		if !made(n, digits, digits, 20) {
			return false
		}
	}
	return len(numbers) == 3
}

// Where sandboxes have packages. Node looks for modules in the directories above a program,
// so that it finds them there from everywhere, by import as by require.
const (
	PythonPackagesDir = "/opt/pinfold/python"
	NPMPackagesDir    = "/node_modules"
)

// IsPackagesDir says whether a place in a sandbox is one of these.
func IsPackagesDir(at string) bool { return at == PythonPackagesDir || at == NPMPackagesDir }
