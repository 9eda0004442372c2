//go:build lean && !embedagent

package wholebin

var embedded []byte // it lies beside this program
