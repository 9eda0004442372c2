//go:build !linux

package build

import (
	"context"
	"io"

	"pinfold/sandbox"
)

type debianRun struct{ stdout io.ReadCloser }

func (*debianRun) wait() error { return nil }

func startDebian(context.Context, []string, amounts, io.Writer) (*debianRun, error) {
	return nil, &sandbox.Error{Code: sandbox.CodeSetupFailed, Field: "base.debian", Message: "a base of Debian's packages is made on Linux only", Hint: "build it there, and bring the template: pinfold template save, pinfold template load"}
}
