package execution

import (
	"maps"
	"slices"
	"strings"

	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Linux's numbers for the resource limits that each process of the guest gets.
const (
	rlimitFileSize  = 1
	rlimitOpenFiles = 7
)

// Rlimits are the limits that the kernel keeps for each process.
func Rlimits(l sandbox.Limits) []wire.Rlimit {
	return []wire.Rlimit{
		{Resource: rlimitFileSize, Value: uint64(l.FileSizeBytes)}, //nolint:gosec // validated to be positive
		{Resource: rlimitOpenFiles, Value: uint64(l.OpenFiles)},    //nolint:gosec // as above
	}
}

// Command is a command of the sandbox's user, in the home directory, with the Environment
// that env and over make.
func (s *Session) Command(args, env []string, l sandbox.Limits, over ...map[string]string) guest.Command {
	u := s.Plan.User
	over = slices.Insert(slices.Clone(over), 0, s.Plan.Env())
	return guest.Command{Args: args, Env: Environment(u, env, over...), Dir: u.Home, UID: u.UID, GID: u.GID, Rlimits: Rlimits(l)}
}

// Environment is a list of K=V and what names the user, with variables put over them, the
// later ones over the earlier.
func Environment(u image.User, base []string, over ...map[string]string) []string {
	env := append([]string{"HOME=" + u.Home, "LOGNAME=" + u.Name, "USER=" + u.Name}, base...)
	slices.Sort(env)
	for _, vars := range over {
		for _, k := range slices.Sorted(maps.Keys(vars)) {
			kv := k + "=" + vars[k]
			if i := slices.IndexFunc(env, func(old string) bool { return strings.HasPrefix(old, k+"=") }); i >= 0 {
				env[i] = kv
			} else {
				env = append(env, kv)
			}
		}
	}
	return env
}
