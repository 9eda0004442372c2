// Package network reaches servers of the test from sandboxes that declare them, with the
// programs that people use, and tries what is not declared.
package network
