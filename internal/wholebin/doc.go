//go:build !lean

// Package wholebin is empty in the whole program: see wholebin.go.
package wholebin
