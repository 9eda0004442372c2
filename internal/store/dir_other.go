//go:build !linux

package store

func diskFull(string) bool { return false }
