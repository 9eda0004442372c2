//go:build lean

package wiring

import "pinfold/internal/engine/runs"

// scanner is the whole program's.
func scanner() runs.ScanFunc { return nil }
