package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// packageFlag names a package that programs are to find.
const packageFlag = "package"

// bindPackages declares that flag.
func bindPackages(set *pflag.FlagSet, into *sandbox.Packages) {
	set.Var(packageList{into}, packageFlag, "let programs import this package: python:rich==13.9.4 or npm:left-pad@1.3.0; may be repeated")
}

// packageList is the flag.
type packageList struct{ into *sandbox.Packages }

// Set implements pflag.Value.
func (l packageList) Set(s string) error {
	kind, text, _ := strings.Cut(s, ":")
	switch kind {
	case sandbox.PackagesPython:
		l.into.Python = append(l.into.Python, text)
	case sandbox.PackagesNPM:
		l.into.NPM = append(l.into.NPM, text)
	default:
		return usageError(`"%s" does not begin with a kind of packages`, sandbox.SafeText(s, 60)).WithHint("write python:NAME==VERSION or npm:NAME@VERSION")
	}
	if _, err := sandbox.ParsePackage(kind, text); err != nil {
		return sandbox.AsError(err).WithField("packages")
	}
	return nil
}

// String implements pflag.Value.
func (l packageList) String() string { return "" }

// Type implements pflag.Value.
func (l packageList) Type() string { return "KIND:NAME=VERSION" }
