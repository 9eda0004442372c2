// Command pinfold-agent is the first process of every sandbox; see package
// agent. It is started with its connection to the host as descriptor 3. With the
// argument agent.SealModes the programs that it starts are refused openat2. With
// agent.Listen descriptor 3 listens for hosts, and 4 holds the secret.
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
	seal := slices.Contains(os.Args[1:], agent.SealModes)
	serve := func() error { return agent.Run(connection, version, seal) }
	if slices.Contains(os.Args[1:], agent.Listen) {
		serve = func() error { return agent.Serve(connection, secret, version, seal) }
	}
	if err := serve(); !errors.Is(err, io.EOF) {
		_, _ = os.Stderr.WriteString("pinfold-agent: " + err.Error() + "\n")
		os.Exit(1)
	}
}
