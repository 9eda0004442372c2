// Command pinfold-agent is the first process of every sandbox; see package
// agent. It is started with its connection to the host as descriptor 3 and
// takes no arguments.
package main

import (
	"errors"
	"io"
	"os"

	"pinfold/internal/agent"
)

// version is set by the linker.
var version = "dev"

// connection is the descriptor that the driver hands over.
const connection = 3

func main() {
	if err := agent.Run(connection, version); !errors.Is(err, io.EOF) {
		_, _ = os.Stderr.WriteString("pinfold-agent: " + err.Error() + "\n")
		os.Exit(1)
	}
}
