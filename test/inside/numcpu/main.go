// Command numcpu prints how many processors Go finds.
package main

import (
	"os"
	"runtime"
	"strconv"
)

func main() {
	_, _ = os.Stdout.WriteString(strconv.Itoa(runtime.NumCPU()) + "\n")
}
