package cli

import "testing"

// TestCommandsAreFoundByTheirNames holds because a command line makes only the
// command that it begins with.
func TestCommandsAreFoundByTheirNames(t *testing.T) {
	for _, c := range (&app{}).commands() {
		if cmd := c.make(); cmd.Name() != c.name || len(cmd.Aliases) > 0 {
			t.Errorf("the command %q is named %q, with the aliases %v", c.name, cmd.Name(), cmd.Aliases)
		}
	}
	all := (&app{}).root()
	for _, c := range (&app{}).commands() {
		one := (&app{Deps: Deps{Args: []string{c.name, "--help"}}}).root()
		if len(one.Commands()) != 1 || one.Commands()[0].Name() != c.name {
			t.Errorf("for %q there are %v", c.name, one.Commands())
		}
		if found, _, err := all.Find([]string{c.name}); err != nil || found.Name() != c.name {
			t.Errorf("among all, %q is %v, %v", c.name, found, err)
		}
	}
}
