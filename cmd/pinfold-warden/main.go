//go:build linux

// Command pinfold-warden is the first process of every virtual machine; see package
// warden. It takes no arguments, and runs nowhere else.
package main

import (
	"os"

	"pinfold/internal/warden"
)

// version is set by the linker.
var version = "dev"

func main() {
	if os.Getpid() != 1 {
		_, _ = os.Stderr.WriteString("pinfold-warden is the first process of a virtual machine, and of no use anywhere else\n")
		os.Exit(2)
	}
	warden.Run(version, os.Stdout)
}
