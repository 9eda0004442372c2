//go:build !embedagent && !lean

package agentbin

// Warden returns the executable of a virtual machine's first process, in the way of Open.
func Warden() ([]byte, error) {
	warden, err := beside(wardenName)
	if err != nil {
		return nil, missingFile("warden", err)
	}
	return warden, nil
}
