// Package defaults is what a server and those who look for it agree on where nothing is
// configured. It is apart from package config so that a program which reads no
// configuration starts without what reading one takes.
package defaults

import (
	"os"
	"path/filepath"
)

// Listen is the address of a server.
const Listen = "127.0.0.1:7463"

// rootState is where root's server keeps its state.
const rootState = "/var/lib/pinfold"

// StateEnv names the directory of a server's state.
const StateEnv = "PINFOLD_STATE"

// State returns the directory of a server's state: that of StateEnv, if it is absolute;
// /var/lib/pinfold for root, otherwise
// pinfold in the user's directory of state ($XDG_STATE_HOME, or ~/.local/state).
// It is empty when none can be known.
func State() string {
	if dir := os.Getenv(StateEnv); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if os.Geteuid() == 0 {
		return rootState
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pinfold")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "pinfold")
}
