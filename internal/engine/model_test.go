package engine_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/living"
	"pinfold/sandbox"

	"pgregory.net/rapid"
)

// TestStateMachine plays random lives of sandboxes against a model: what lives,
// whose it is, which processes run.
func TestStateMachine(t *testing.T) {
	s := serve(t, engine.Options{Capacity: admission.Capacity{Sandboxes: 8, QueueTimeout: time.Millisecond}}, nil)
	tenants := []string{"alice", "bob"}
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{rt: rt, s: s, alive: map[string]*living.Sandbox{}, owner: map[string]string{}, ended: map[string]string{}, says: map[string]string{}, kept: map[string]kept{}}
		defer m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"create":   func(rt *rapid.T) { m.create(rapid.SampledFrom(tenants).Draw(rt, "tenant")) },
			"destroy":  func(rt *rapid.T) { m.destroy(rt) },
			"exec":     func(rt *rapid.T) { m.exec(rt) },
			"pause":    func(rt *rapid.T) { m.pause(rt) },
			"extend":   func(rt *rapid.T) { m.extend(rt) },
			"write":    func(rt *rapid.T) { m.write(rt) },
			"snapshot": func(rt *rapid.T) { m.snapshot(rt) },
			"restore":  func(rt *rapid.T) { m.restore(rt) },
			"fork":     func(rt *rapid.T) { m.fork(rt) },
			"":         func(*rapid.T) { m.check() },
		})
	})
}

type model struct {
	rt    *rapid.T
	s     *served
	alive map[string]*living.Sandbox
	owner map[string]string
	ended map[string]string // id → tenant
	says  map[string]string // what the file of each says
	kept  map[string]kept   // snapshots
}

// kept is a snapshot as the model knows it.
type kept struct{ tenant, says string }

func (m *model) end() {
	for _, x := range m.alive {
		_, _ = x.Destroy(context.Background())
	}
	for id, k := range m.kept {
		_ = m.s.RemoveSnapshot(context.Background(), k.tenant, id)
	}
}

// write changes what the file of one says.
func (m *model) write(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	text := rapid.StringMatching(`[a-z]{1,5}`).Draw(rt, "text")
	if err := x.WriteFile(context.Background(), "file", 0o600, int64(len(text)), strings.NewReader(text)); err != nil {
		rt.Fatal(err)
	}
	m.says[x.ID()] = text
}

// snapshot keeps what one says.
func (m *model) snapshot(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	s, err := x.Snapshot(context.Background(), sandbox.TakeSnapshot{})
	if err != nil {
		rt.Fatal(err)
	}
	m.kept[s.ID] = kept{m.owner[x.ID()], m.says[x.ID()]}
}

// restore makes one of a snapshot, and perhaps removes that.
func (m *model) restore(rt *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.kept))
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(rt, "snapshot")
	k := m.kept[id]
	x, err := m.s.Create(context.Background(), k.tenant, sandbox.Create{Snapshot: id})
	m.grown(rt, []*living.Sandbox{x}, k.tenant, k.says, err)
	if rapid.Bool().Draw(rt, "removed") {
		if err := m.s.RemoveSnapshot(context.Background(), k.tenant, id); err != nil {
			rt.Fatal(err)
		}
		delete(m.kept, id)
	}
}

// fork makes two of one.
func (m *model) fork(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	made, err := m.s.Fork(context.Background(), x, sandbox.ForkSandbox{Count: 2})
	m.grown(rt, made, m.owner[x.ID()], m.says[x.ID()], err)
}

// grown takes up what was made, each of which says what it must, or none.
func (m *model) grown(rt *rapid.T, made []*living.Sandbox, tenant, says string, err error) {
	if len(m.alive)+len(made) > 8 || err != nil {
		if code(err) != sandbox.CodeBusy || len(m.alive) < 7 {
			rt.Fatalf("%d of 8 live: %v", len(m.alive), err)
		}
		return
	}
	for _, x := range made {
		m.alive[x.ID()], m.owner[x.ID()], m.says[x.ID()] = x, tenant, says
	}
}

func (m *model) create(tenant string) {
	x, err := m.s.Create(context.Background(), tenant, sandbox.Create{})
	if len(m.alive) == 8 {
		if code(err) != sandbox.CodeBusy {
			m.rt.Fatalf("a ninth: %v", err)
		}
		return
	}
	if err != nil {
		m.rt.Fatal(err)
	}
	m.alive[x.ID()], m.owner[x.ID()] = x, tenant
}

// any draws a living sandbox, nil when there is none.
func (m *model) any(rt *rapid.T) *living.Sandbox {
	var ids []string
	for id := range m.alive {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	return m.alive[rapid.SampledFrom(ids).Draw(rt, "sandbox")]
}

func (m *model) destroy(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	info, err := x.Destroy(context.Background())
	if err != nil || info.State != sandbox.StateEnded {
		rt.Fatalf("%+v, %v", info, err)
	}
	m.ended[x.ID()] = m.owner[x.ID()]
	delete(m.alive, x.ID())
}

func (m *model) exec(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	name := rapid.SampledFrom([]string{"true", "false", "nothere"}).Draw(rt, "command")
	want := map[string]int{"true": 0, "false": 1, "nothere": 127}[name]
	p, err := x.Exec(context.Background(), sandbox.Command{Args: []string{name}})
	if err != nil || p.ExitCode == nil || *p.ExitCode != want {
		rt.Fatalf("%s: %+v, %v", name, p, err)
	}
}

// pause pauses one and resumes it; in between it refuses, or ends.
func (m *model) pause(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	if info, err := x.Pause(context.Background()); err != nil || info.State != sandbox.StatePaused {
		rt.Fatalf("%+v, %v", info, err)
	}
	if _, err := x.Exec(context.Background(), sandbox.Command{Args: []string{"true"}}); code(err) != sandbox.CodeConflict {
		rt.Fatalf("a command in a paused sandbox: %v", err)
	}
	if rapid.Bool().Draw(rt, "ends") {
		info, err := x.Destroy(context.Background())
		if err != nil || info.State != sandbox.StateEnded {
			rt.Fatalf("%+v, %v", info, err)
		}
		m.ended[x.ID()] = m.owner[x.ID()]
		delete(m.alive, x.ID())
		return
	}
	if info, err := x.Resume(context.Background()); err != nil || info.State != sandbox.StateRunning {
		rt.Fatalf("%+v, %v", info, err)
	}
}

func (m *model) extend(rt *rapid.T) {
	x := m.any(rt)
	if x == nil {
		return
	}
	before := time.Now()
	info, err := x.Extend(60_000)
	if err != nil || info.ExpiresAt.Before(before.Add(59*time.Second)) {
		rt.Fatalf("%+v, %v", info, err)
	}
}

// check compares every view of the engine with the model.
func (m *model) check() {
	living := m.s.Stats().Living
	if living[sandbox.StateRunning] != len(m.alive) || len(living) > 1 {
		m.rt.Fatalf("%v, want %d running", living, len(m.alive))
	}
	for id, tenant := range m.owner {
		other := map[string]string{"alice": "bob", "bob": "alice"}[tenant]
		want := ""
		if m.ended[id] != "" {
			want = sandbox.CodeGone
		}
		if _, err := m.s.Sandbox(tenant, id); code(err) != want {
			m.rt.Fatalf("%s: %v, want %q", id, err, want)
		}
		if _, err := m.s.Sandbox(other, id); code(err) != sandbox.CodeNotFound {
			m.rt.Fatalf("%s as %s: %v", id, other, err)
		}
	}
	for id, x := range m.alive {
		var b strings.Builder
		_, err := x.ReadFile(context.Background(), "file", 0, -1, &b)
		if err != nil && (m.says[id] != "" || code(err) != sandbox.CodeFileNotFound) || b.String() != m.says[id] {
			m.rt.Fatalf("%s says %q, want %q: %v", id, b.String(), m.says[id], err)
		}
	}
	for _, tenant := range []string{"alice", "bob"} {
		all, err := m.s.Snapshots(context.Background(), tenant)
		for _, s := range all {
			if m.kept[s.ID].tenant != tenant {
				m.rt.Fatalf("%s has %s", tenant, s.ID)
			}
		}
		if err != nil {
			m.rt.Fatal(err)
		}
	}
	if m.s.driver.Living() != len(m.alive) {
		m.rt.Fatalf("%d machines for %d sandboxes", m.s.driver.Living(), len(m.alive))
	}
}
