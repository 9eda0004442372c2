package engine_test

import (
	"io"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/sandbox"
)

// A process that has ended is shown with what is kept of its output, the last
// bytes, by whoever waited for it and whoever comes later, and says whether there
// was more. While it runs, and in lists, there is none.
func TestProcessShowsWhatIsKept(t *testing.T) {
	for _, c := range []struct {
		name, stdout, want, raw string
		cut                     bool
	}{
		{"whole", "01234\xff", "01234\uFFFD", "01234\xff", false},
		{"exactly", "0123456789", "0123456789", "0123456789", false},
		{"cut", "0123456789abc", "3456789abc", "3456789abc", true},
		{"nothing", "", "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, engine.Options{}, func(driver.Plan) fake.Script {
				return fake.Script{Program: func(p *fake.Process) fake.Exit {
					_, _ = io.WriteString(p.Stdout, c.stdout)
					_, _ = io.WriteString(p.Stderr, "e")
					return fake.Exit{}
				}}
			})
			x := s.create(t, sandbox.Create{Limits: sandbox.Limits{OutputBytes: 10}})
			waited, err := x.Exec(soon(t), sandbox.Command{Args: []string{"w"}, OutputBase64: true})
			if err != nil {
				t.Fatal(err)
			}
			later, err := x.Process(waited.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []sandbox.Process{waited, later.InfoWithOutput()} {
				if !p.HasOutput || p.Stdout != c.want || p.StdoutTruncated != c.cut || string(p.StdoutRaw) != c.raw ||
					p.StdoutBytes != int64(len(c.stdout)) || p.Stderr != "e" || p.StderrTruncated {
					t.Errorf("%+v", p)
				}
				if c.cut && p.OutputOrder != nil {
					t.Errorf("the order of what is not there: %v", p.OutputOrder)
				}
			}
			if all := x.Processes(); len(all) != 1 || all[0].HasOutput || all[0].Stdout != "" {
				t.Errorf("in a list: %+v", all)
			}
		})
	}
}
