//go:build !lean

package wiring

import (
	"context"

	"pinfold/internal/engine/runs"
	"pinfold/internal/scan"
	"pinfold/sandbox"
)

// scanner looks at programs; Python is read in a sandbox of the engine's.
func scanner() runs.ScanFunc {
	return func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
		return scan.Scanner{Python: scan.InSandbox(run)}.Scan(ctx, scan.Source{File: req.File, Language: req.Language, Text: []byte(req.Code)})
	}
}
