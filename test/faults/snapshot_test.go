//go:build linux

package faults

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"

	"pinfold/client"
	"pinfold/sandbox"
)

// snapshots says whether snapshots are made as well: where the moment is one of theirs.
func (c *crash) snapshots() bool {
	return strings.HasPrefix(c.moment, "snapshot.") || strings.HasPrefix(c.moment, "restore.")
}

// text is in the file that each snapshot holds.
const text = "what was there\n"

// copy makes two snapshots, removes one, and makes sandboxes of the other. Errors are the
// crash's.
func (c *crash) copy(ctx context.Context, cl *client.Client, x *client.Sandbox) {
	if x.WriteFile(ctx, "file", 0o644, int64(len(text)), strings.NewReader(text)) != nil {
		return
	}
	var made [2]sandbox.Snapshot
	for i := range made {
		var err error
		if made[i], err = x.Snapshot(ctx, sandbox.TakeSnapshot{}); err != nil {
			return
		}
		c.mu.Lock()
		c.kept[made[i].ID] = true
		c.mu.Unlock()
	}
	for range 2 {
		of, err := cl.Create(ctx, sandbox.Create{Snapshot: made[0].ID, TTLMS: 60_000})
		if err != nil {
			return
		}
		_, _ = of.Destroy(ctx)
	}
	forks, _ := x.Fork(ctx, sandbox.ForkSandbox{TTLMS: 60_000})
	for _, f := range forks {
		_, _ = f.Destroy(ctx)
	}
	c.mu.Lock()
	c.kept[made[1].ID] = false
	c.mu.Unlock()
	_ = cl.RemoveSnapshot(ctx, made[1].ID)
}

// checkSnapshots looks for every snapshot whose id somebody was told, each of which is whole,
// and for what else lies where they are.
func (c *crash) checkSnapshots(ctx context.Context, cl *client.Client) {
	all, err := cl.Snapshots(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, s := range all {
		listed[s.ID] = true
	}
	for id, stays := range c.kept {
		if stays && !listed[id] {
			c.t.Errorf("an acknowledged snapshot is forgotten: %s", id)
		}
	}
	if len(c.kept) == 0 && c.moment == "snapshot.forgotten" {
		c.t.Error("there was no snapshot")
	}
	for _, s := range all {
		x, err := cl.Create(ctx, sandbox.Create{Snapshot: s.ID, TTLMS: 60_000})
		if err != nil {
			c.t.Errorf("of %s: %v", s.ID, err)
			continue
		}
		var got bytes.Buffer
		if _, err := x.ReadFile(ctx, "file", 0, -1, &got); err != nil || got.String() != text {
			c.t.Errorf("%s holds %q, %v", s.ID, got.String(), err)
		}
		if _, err := x.Destroy(ctx); err != nil {
			c.t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(c.options.State, "snapshots", "*"))
	if err != nil || len(files) != len(all) {
		c.t.Errorf("%d snapshots, and these files: %q, %v", len(all), files, err)
	}
}
