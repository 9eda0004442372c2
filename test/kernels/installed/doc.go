// Package installed tests a server that was installed on a machine with systemd
// as docs/server.md says, word for word. Its tests change the machine, so they
// run in those of test/kernels only.
package installed
