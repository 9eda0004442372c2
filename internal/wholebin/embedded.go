//go:build lean && embedagent

package wholebin

import _ "embed" // the whole program

//go:embed pinfold-whole
var embedded []byte
