package gvisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"pinfold/internal/linux/idblock"
	"pinfold/sandbox"
)

// verify looks whether what runsc made is what it was asked for, by what the host's kernel
// says of its processes. Another runsc, or a wrapper, might leave something out, and nobody
// would know.
func (m *machine) verify() error {
	ids, err := m.group.Procs()
	if err != nil {
		return err
	}
	confined := 0
	for _, pid := range ids {
		if pid == m.child.PID {
			continue // runsc itself, which waits; its namespaces and ids are ours
		}
		status, err := readStatus(pid)
		if os.IsNotExist(err) {
			continue // a helper that has ended
		}
		if err != nil {
			return err
		}
		if err := m.verifyProcess(pid, status); err != nil {
			return err
		}
		confined++
	}
	if confined < 2 { // the sentry, and what opens files for it
		return fmt.Errorf("of %d processes in the control group none is the sentry", len(ids))
	}
	if got, want := m.group.MemoryLimit(), m.plan.Limits.MemoryBytes+startMemory; m.plan.Enforces(sandbox.FeatureMemory) && (got == 0 || got > want) {
		return fmt.Errorf("its memory limit is %d and not %d", got, want)
	}
	return nil
}

// verifyProcess looks at one process of the sentry's.
func (m *machine) verifyProcess(pid int, status map[string]string) error {
	for _, key := range []string{"Uid", "Gid"} {
		for id := range strings.FieldsSeq(status[key]) {
			n, err := strconv.Atoi(id)
			if err != nil || n < m.block.Base || n >= m.block.Base+idblock.Size {
				return fmt.Errorf("process %d has the %s %s, which is not the sandbox's", pid, key, id)
			}
		}
	}
	for key, want := range map[string]string{"Seccomp": "2", "NoNewPrivs": "1"} {
		if status[key] != want {
			return fmt.Errorf("process %d has %s %q and not %q", pid, key, status[key], want)
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "user"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if os.IsNotExist(err) {
			return nil // it has ended
		}
		if ours, ourErr := os.Readlink("/proc/self/ns/" + ns); err != nil || ourErr != nil || ours == theirs {
			return fmt.Errorf("process %d is in the host's %s namespace: %w", pid, ns, err)
		}
	}
	return nil
}

// readStatus reads what the kernel says of a process (proc(5)).
func readStatus(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	return status, nil
}
