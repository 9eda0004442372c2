// Command pinfold-agent is the first process of every sandbox; see package
// agent. It is started with its connection to the host as descriptor 3. With the
// argument agent.SealModes the programs that it starts are refused openat2.
package main

import (
	"errors"
	"io"
	"os"
	"slices"

	"pinfold/internal/agent"
)

// version is set by the linker.
var version = "dev"

// connection is the descriptor that the driver hands over.
const connection = 3

func main() {
	if err := agent.Run(connection, version, slices.Contains(os.Args[1:], agent.SealModes)); !errors.Is(err, io.EOF) {
		_, _ = os.Stderr.WriteString("pinfold-agent: " + err.Error() + "\n")
		os.Exit(1)
	}
}
