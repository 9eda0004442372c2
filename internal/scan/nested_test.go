package scan

import (
	"strconv"
	"strings"
	"testing"
)

// nested is a shell's text inside as many sh -c.
func nested(text string, deep int) string {
	for range deep {
		text = "sh -c " + shellQuoted(text)
	}
	return text
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// What a scan has not looked at, since it lies too deep, is too long or cannot be read, it
// says: it is not taken for harmless. What it can look at it has.
func TestWhatIsNotLookedAtIsSaid(t *testing.T) {
	const bad = "rm -rf /"
	words := strings.Repeat("x ", 70)
	s := scanner(t)
	for name, c := range map[string]struct{ language, source string }{
		"shallow":             {"bash", nested(bad, 1)},
		"deep":                {"bash", nested(bad, 6)},
		"eval of eval":        {"bash", "eval eval eval eval eval eval " + bad},
		"unreadable inside":   {"bash", "sh -c " + shellQuoted(bad+"; (")},
		"unreadable eval":     {"bash", "eval " + shellQuoted(bad+"; (")},
		"many words":          {"bash", "find " + words + "-exec " + bad + " \\;"},
		"python in python":    {"python", "exec(" + strconv.Quote("exec("+strconv.Quote("import shutil; shutil.rmtree('/')")+")") + ")"},
		"python too deep":     {"python", "exec(" + strconv.Quote("exec("+strconv.Quote("exec("+strconv.Quote("exec("+strconv.Quote("import shutil; shutil.rmtree('/')")+")")+")")+")") + ")"},
		"python cannot parse": {"python", "exec('import shutil; shutil.rmtree(\"/\") if')"},
	} {
		r := scanned(t, s, c.language, c.source)
		if r.Worst != "danger" && !r.Missed && r.Unread == "" {
			t.Errorf("%s: %+v", name, r)
		}
		if name == "shallow" && r.Missed {
			t.Errorf("%s: it was read: %+v", name, r)
		}
	}
}
