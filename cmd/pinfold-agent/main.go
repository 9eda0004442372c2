// Command pinfold-agent is the first process of every sandbox; see package
// agent. It is started with its connection to the host as descriptor 3. With the
// argument agent.SealModes the programs that it starts are refused openat2. With
// agent.Listen descriptor 3 listens for hosts, and 4 holds the secret. With agent.Fetch
// and a path it fetches these from there. With agent.Announce it says over its
// connection that it is there. With agent.Supervise and a level of Landlock it is the
// supervisor of an agent.
package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"pinfold/internal/agent"
	"pinfold/internal/wire"
)

// version is set by the linker.
var version = "dev"

// The descriptors that the driver hands over.
const connection, secret = wire.ConnFD, 4

func main() {
	args := os.Args[1:]
	o := agent.Options{SealModes: slices.Contains(args, agent.SealModes), Alone: slices.Contains(args, agent.Alone)}
	serve := func() error { return agent.Run(connection, version, o) }
	switch {
	case slices.Contains(args, agent.Listen):
		serve = func() error { return agent.Serve(connection, secret, version, o) }
	case len(args) == 2 && args[0] == agent.Supervise:
		serve = func() error { return agent.Supervised(args[1]) }
	}
	if slices.Contains(args, agent.Announce) {
		serve = func() error { return agent.RunAnnounced(connection, version, o) }
	}
	if i := slices.Index(args, agent.Fetch); i >= 0 && i+1 < len(args) {
		serve = func() error { return agent.ServeFetched(args[i+1], version, o) }
	}
	if err := serve(); !errors.Is(err, io.EOF) {
		_, _ = os.Stderr.WriteString("pinfold-agent: " + err.Error() + "\n")
		os.Exit(1)
	}
}
