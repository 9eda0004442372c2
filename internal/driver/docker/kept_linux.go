package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"
	"pinfold/internal/container"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// Abilities says that machines outlive the process that made them.
func (d *Driver) Abilities() driver.Abilities {
	return driver.Abilities{Level: sandbox.LevelContainer, Shows: true, Elsewhere: true, Pauses: true, Snapshots: []string{sandbox.SnapshotFiles}, Keeper: d}
}

// load reads what is known of a machine.
func (d *Driver) load(id string) (*machine, error) {
	m := d.machine(id)
	b, err := os.ReadFile(filepath.Join(m.dir, record))
	if err == nil {
		err = json.Unmarshal(b, m)
	}
	if err == nil && m.Plan.ID != id {
		err = fmt.Errorf("%s says that it is %q", m.dir, m.Plan.ID)
	}
	return m, err
}

// entries are the names in the directory of machines; none where there is none.
func (d *Driver) entries() ([]os.DirEntry, error) {
	entries, err := os.ReadDir(d.o.StateDir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return entries, err
}

// List names the machines that live, and whose owner does not or is we. It asks no
// engine: their first processes are this host's.
func (d *Driver) List(context.Context) ([]string, error) {
	var ids []string
	entries, err := d.entries()
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if m, err := d.load(e.Name()); err == nil && m.Agent.lives() && (!m.Owner.lives() || m.Owner.PID == os.Getpid()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// Adopt takes over a machine that an earlier process had made.
func (d *Driver) Adopt(_ context.Context, id string) (driver.Machine, driver.Plan, error) {
	m, err := d.load(id)
	if err != nil || !m.Agent.lives() {
		return nil, driver.Plan{}, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no machine " + sandbox.SafeText(id, 60) + " lives"}
	}
	common, err := d.prepare()
	if err != nil {
		return nil, driver.Plan{}, err
	}
	m.Owner = named(os.Getpid())
	if err := m.find(); err != nil {
		return nil, driver.Plan{}, failed("find the container's processes", err)
	}
	m.meter.Shown = m.shown(common.facts)
	if err := m.measure(uint64(1 + len(container.Places("")))); err != nil {
		return nil, driver.Plan{}, failed("measure the machine's disk", err)
	}
	if err := m.save(); err != nil {
		return nil, driver.Plan{}, failed("take over a machine", err)
	}
	return m, m.Plan, nil
}

// Leftovers removes what is known of machines that are no more, whose maker has died, and
// what such a maker had begun.
func (d *Driver) Leftovers(ctx context.Context) ([]driver.Leftover, error) {
	var gone []driver.Leftover
	entries, err := d.entries()
	for _, e := range entries {
		m, known := d.load(e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
			if ofDead(e.Name()) {
				gone = append(gone, driver.Leftover{Kind: "file", Name: e.Name(), Err: os.RemoveAll(filepath.Join(d.o.StateDir, e.Name()))})
			}
		case known == nil && (m.Agent.lives() || m.Owner.lives()):
		default:
			m.Plan.ID = e.Name()
			gone = append(gone, driver.Leftover{Kind: "container", Name: e.Name(), Err: m.remove(ctx)})
		}
	}
	return append(gone, d.strays(ctx)...), err
}

// strays removes the containers that the engine made after their maker, and then what was
// known of them, were gone, and the copies of templates that nobody needs: a machine has its directory before and after its container.
// Where there never was a machine, no engine is asked; where none answers, there is
// nothing to be done.
func (d *Driver) strays(ctx context.Context) (gone []driver.Leftover) {
	if _, err := os.Lstat(d.o.StateDir); err != nil {
		return nil
	}
	engine, err := d.engine()
	if err != nil {
		return nil
	}
	listing, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	all, err := engine.ContainerList(listing, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labelState+"="+d.o.StateDir)})
	if err != nil {
		return nil
	}
	for _, c := range all.Items {
		m := d.machine(c.Labels[labelID])
		if _, err := os.Lstat(m.dir); os.IsNotExist(err) {
			m.Container = c.ID
			gone = append(gone, driver.Leftover{Kind: "container", Name: c.Labels[labelID], Err: m.removeContainer(ctx)})
		}
	}
	return append(gone, d.collect(ctx, engine)...)
}

// ofDead says whether the name of a file of a driver's is of a process that is no more.
func ofDead(name string) bool {
	for _, prefix := range []string{agentPrefix, newPrefix} {
		var owner process
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			n, err := fmt.Sscanf(rest, "%d-%d-", &owner.PID, &owner.Begun)
			return n == 2 && err == nil && !owner.lives()
		}
	}
	return false
}
