//go:build !linux

package cgroup

import "errors"

// There are no cgroups elsewhere, and Detect says so; this is for the build.

func pidfdOpen(int) (int, error) { return -1, errors.ErrUnsupported }

func pidfdKill(int) error { return errors.ErrUnsupported }
