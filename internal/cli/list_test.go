package cli

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// What is about to happen happens now, and not in no seconds.
func TestUntil(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 0: "now", 900 * time.Millisecond: "now",
		time.Hour + 30*time.Second: "in 60m",
		30*time.Hour + time.Minute: "in 30h",
		72*time.Hour + time.Minute: "in 3d",
	} {
		if got := until(time.Now().Add(d)); got != want {
			t.Errorf("in %v: %q, want %q", d, got, want)
		}
	}
}

// A list that has more than were printed says so, where nobody chose how many.
func TestListsThatHaveMore(t *testing.T) {
	three := func(err error) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 3 {
				if !yield(i, nil) {
					return
				}
			}
			if err != nil {
				yield(0, err)
			}
		}
	}
	broken := errors.New("broken")
	for _, test := range []struct {
		most, want int
		more       bool
		err        error
	}{{2, 2, true, nil}, {3, 3, false, nil}, {4, 3, false, nil}, {2, 2, true, broken}, {3, 3, false, broken}} {
		all, more, err := collect(three(test.err), test.most)
		if len(all) != test.want || more != test.more || (err != nil) != (test.err != nil && !more) {
			t.Errorf("%d at most: %v, more %v, %v", test.most, all, more, err)
		}
	}
	for _, test := range []struct {
		args []string
		more bool
		want string
	}{
		{nil, true, "pinfold: these are the newest 50; --limit N prints more\n"},
		{nil, false, ""},
		{[]string{"--limit", "50"}, true, ""},
	} {
		name := filepath.Join(t.TempDir(), "stderr")
		stderr, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("runs", pflag.ContinueOnError)
		flags.Int("limit", 50, "")
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		(&app{Deps: Deps{Stderr: stderr}}).sayMore(flags, test.more, usualRuns)
		_ = stderr.Close()
		if said, err := os.ReadFile(name); err != nil || string(said) != test.want {
			t.Errorf("%q, more %v: %q, %v", test.args, test.more, said, err)
		}
	}
}
