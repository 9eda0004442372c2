// Package api holds the tests of HTTP API version 1: a real server on a real
// socket, with a real store and real keys, over an engine whose machines are
// made of memory. What needs a kernel is tested elsewhere.
package api
