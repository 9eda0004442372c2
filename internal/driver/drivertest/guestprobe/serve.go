//go:build linux

package main

import (
	"io"
	"net"
)

// serve sends back what comes to a TCP address until stdin ends, and says the
// port.
func serve(args []string) any {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err.Error()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		say(addr.Port)
	}
	hold()
	return "over"
}
