package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// featureList is the flag --require: names with commas between them. Nothing
// where a name belongs is an error: whoever requires something must not run
// without it because a variable was empty.
type featureList struct{ into *[]string }

func (l featureList) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return (&sandbox.Error{
				Code: sandbox.CodeFeatureUnknown, Field: "require",
				Message: fmt.Sprintf(`"%s" lacks the name of a feature`, sandbox.SafeText(s, 60)),
			}).WithHint("write --require memory,network:none, or leave the flag out")
		case !sandbox.KnownFeature(name):
			return &sandbox.Error{
				Code: sandbox.CodeFeatureUnknown, Field: "require",
				Message: fmt.Sprintf(`no feature "%s"`, sandbox.SafeText(name, 60)), Hint: featureHint(name),
			}
		}
		*l.into = append(*l.into, name)
	}
	return nil
}

func (l featureList) String() string { return "" }
func (l featureList) Type() string   { return "FEATURES" }

// featureHint names the features that somebody may have meant, then all.
func featureHint(name string) string {
	var all, meant []string
	byPart := map[string]string{} // "pid" is what people call "namespace:pid"
	var parts []string
	for _, f := range sandbox.Features() {
		all = append(all, f.Name)
		family, member, _ := strings.Cut(f.Name, ":")
		switch {
		case name == family, name == member:
			meant = append(meant, f.Name)
		case member != "" && byPart[member] == "":
			byPart[member] = f.Name
			parts = append(parts, member)
		}
	}
	if len(meant) == 0 {
		if near := nearest.Word(name, all); near != "" {
			meant = append(meant, near)
		} else if near := nearest.Word(name, parts); near != "" {
			meant = append(meant, byPart[near])
		}
	}
	hint := "the features are " + strings.Join(all, ", ")
	if len(meant) == 0 {
		return hint
	}
	return "did you mean " + strings.Join(meant, " or ") + "? T" + hint[1:]
}

// refuseEmpty is for flags that take a name: given without one, as by a
// variable of a script that is not set, they would silently mean the default.
func refuseEmpty(set *pflag.FlagSet) error {
	var err error
	set.Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = usageError("--%s: the value is empty", f.Name).WithHint("leave --" + f.Name + " out for the default")
		}
	})
	return err
}
