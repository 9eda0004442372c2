// Package agentbin finds the executable of Pinfold's agent, which every driver
// puts into its sandboxes.
//
// A release carries the agent inside the pinfold program (build tag
// "embedagent", see the Makefile), so that one file is enough. A program built
// without the tag takes the file pinfold-agent from the directory of its own
// executable, or the one that the program itself names (At), and from nowhere
// else: what runs as pid 1 of every sandbox is never chosen by the environment
// or the working directory.
//
// It does not check that the agent speaks this host's protocol; the first
// frame of the connection does that.
package agentbin

import "pinfold/sandbox"

// Names of the files that hold the agent, and a virtual machine's first process, beside
// the program.
const name, wardenName = "pinfold-agent", "pinfold-warden"

// maxBytes bounds what is read. The agent is about 3 MB.
const maxBytes = 64 << 20

// Open returns the bytes of the agent's executable, a Linux ELF file for this
// program's architecture. The caller must not change them: they may be the
// program's own read-only data. Safe for concurrent use.
//
// The error is a *sandbox.Error of code resource_unavailable.
func Open() ([]byte, error) { return open() }

func missing(err error) *sandbox.Error { return missingFile("agent", err) }

func missingFile(what string, err error) *sandbox.Error {
	return sandbox.Errorf(sandbox.CodeResourceUnavailable, "Pinfold's %s cannot be read: %w", what, err).
		WithHint("make build")
}
