package living

import (
	"context"
	"fmt"
	"sync"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// recordMachine records which machine a sandbox has, where that outlives this process, and
// who asked for it, where its end must be said even if we do not see it.
func (s *Sandbox) recordMachine() {
	mg := s.manager
	name := s.machine.Plan.Posture.Driver
	outlives := mg.keeper(name) != nil
	if mg.records == nil || !outlives && (mg.auditor == nil || s.key == "") {
		return
	}
	m := records.Machine{Key: s.key}
	if outlives {
		m.Driver, m.ID, m.Request, m.Secrets = name, s.machine.Plan.ID, s.requested(), s.hasSecrets()
	}
	if !s.idles {
		m.Request.IdleMS = 0
	}
	if err := mg.records.SaveMachine(context.Background(), s.tenant, s.info.ID, m); err != nil {
		mg.log.Error("cannot record a sandbox's machine; after a restart it is lost, or nobody's", "sandbox", s.info.ID, "outlives", outlives, "error", err)
		return
	}
	if outlives && !s.kept {
		s.kept = true
	}
}

// keeper returns what a driver of that name can say of machines that outlive us, or nil.
func (mg *Manager) keeper(name string) driver.Keeper {
	for _, d := range mg.drivers {
		if d.Name() == name {
			return d.Abilities().Keeper
		}
	}
	return nil
}

// machineKey names a machine among those of all drivers.
type machineKey struct{ driver, id string }

// keptMachines lists the machines that outlived the process that made them.
func (mg *Manager) keptMachines(ctx context.Context) (map[machineKey]driver.Keeper, error) {
	found := map[machineKey]driver.Keeper{}
	for _, d := range mg.drivers {
		keeper := d.Abilities().Keeper
		if keeper == nil {
			continue
		}
		ids, err := list(ctx, keeper)
		if err != nil {
			return nil, fmt.Errorf("looking for machines of the %s driver: %w", d.Name(), err)
		}
		for _, id := range ids {
			found[machineKey{d.Name(), id}] = keeper
		}
	}
	return found, nil
}

// listTimeout is how long a driver may take to list its machines.
const listTimeout = 30 * time.Second

func list(ctx context.Context, keeper driver.Keeper) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return keeper.List(ctx)
}

// adoptAll goes on with the sandboxes of an earlier process whose machines live and that
// are not to end. The machines are taken up side by side, so that agents that do not
// answer cost no more time than one. It takes what it adopts out of found, and returns
// who was adopted, by index.
func (mg *Manager) adoptAll(ctx context.Context, earlier []records.Sandbox, found map[machineKey]driver.Keeper) []bool {
	adopted := make([]bool, len(earlier))
	claimed := map[machineKey]bool{} // a machine is one sandbox's
	var all sync.WaitGroup
	for i, o := range earlier {
		if o.Machine == nil || o.Machine.Driver == "" || o.Info.State != sandbox.StateRunning && o.Info.State != sandbox.StatePaused { // whose time is over ends at once, for that reason
			continue
		}
		key := machineKey{o.Machine.Driver, o.Machine.ID}
		keeper := found[key]
		if mg.keeper(key.driver) == nil {
			mg.log.Warn("a sandbox is lost since its driver is not configured any more; its machine may still run", "sandbox", o.Info.ID, "driver", key.driver, "machine", key.id)
		}
		if keeper != nil && !claimed[key] {
			claimed[key] = true
			all.Go(func() { adopted[i] = mg.adopt(ctx, o, keeper) })
		}
	}
	all.Wait()
	for i, o := range earlier {
		if adopted[i] {
			delete(found, machineKey{o.Machine.Driver, o.Machine.ID})
		}
	}
	return adopted
}

// adopt goes on with one sandbox. What it has running ends; its files stay.
func (mg *Manager) adopt(ctx context.Context, o records.Sandbox, keeper driver.Keeper) (adopted bool) {
	m, plan, err := keeper.Adopt(ctx, o.Machine.ID)
	if err != nil {
		mg.log.Warn("cannot adopt a sandbox's machine", "sandbox", o.Info.ID, "machine", o.Machine.ID, "error", err)
		return false
	}
	output, err := mg.gateOf(o.Machine.Request.Gate, false)
	if err != nil {
		mg.log.Warn("what comes out of a sandbox cannot be checked as it has to be, so it ends", "sandbox", o.Info.ID, "error", err)
		return false
	}
	session := execution.Ungreeted(m, plan, nil)
	recorded := o.Info.State
	var agent *guest.Guest
	err = asleep(ctx, m, &o.Info, func() error {
		agent, err = session.Agent(ctx)
		return err
	})
	if err != nil {
		mg.log.Warn("an adopted machine's agent does not answer", "sandbox", o.Info.ID, "machine", o.Machine.ID, "error", err)
		return false
	}
	sets, used, err := mg.adoptPackages(ctx, o, plan)
	if err != nil {
		mg.log.Warn("the packages of a sandbox are not here any more, so it ends", "sandbox", o.Info.ID, "error", err)
		return false
	}
	if o.Info.Declared != nil { // its doors were closed
		o.Info.Declared = &sandbox.Network{Mode: sandbox.NetworkNone}
	}
	room := mg.gate.Admit(o.Tenant, admission.Demand{MemoryBytes: plan.Limits.MemoryBytes, CPUs: plan.Limits.CPUs})
	now := time.Now()
	life, end := context.WithCancel(context.Background())
	s := &Sandbox{
		manager: mg, tenant: o.Tenant, key: o.Key(), level: mg.level(plan.Posture.Driver), request: o.Machine.Request, life: life, end: end, machine: &pool.Machine{Session: session}, guest: agent, kept: true, gate: output, secrets: named(o.Machine.Secrets, o.Machine.Request.Network),
		release: func() { used.Release(); room() },
		expires: now.Add(time.Until(o.Info.ExpiresAt)), used: now, processes: map[string]*Process{}, wake: make(chan struct{}, 1),
		judge: verdict.Judge{Limits: o.Info.Limits, KillOne: plan.KillOne}, info: o.Info, sets: sets, idles: o.Machine.Request.IdleMS != 0,
	}
	s.mu.Lock() // until there is a timer, for who finds it at once
	defer s.mu.Unlock()
	mg.mu.Lock()
	mg.sandboxes[o.Info.ID] = s
	mg.mu.Unlock()
	s.timer = time.AfterFunc(s.untilEnd(now), s.timeUp)
	if s.info.State != recorded {
		s.save(s.describe())
	}
	go s.guard()
	return true
}

// asleep does something with the agent of a machine that may be paused, and stays so. The
// machine knows whether it is: the process that paused it may have ended before it
// recorded that. Where it could not be paused again, it runs.
func asleep(ctx context.Context, m driver.Machine, info *sandbox.Info, f func() error) error {
	p := m.Abilities().Pauser
	info.State = sandbox.StateRunning
	if p == nil {
		return f()
	}
	paused, err := p.Paused(ctx)
	if err != nil {
		return err
	}
	if !paused {
		return f()
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := p.Resume(ctx); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	if p.Pause(ctx) == nil {
		info.State = sandbox.StatePaused
	}
	return nil
}

// destroyUnknown ends the machines that outlived their process and belong to nothing
// that goes on: those of runs and pools, and of sandboxes that have ended.
func (mg *Manager) destroyUnknown(ctx context.Context, found map[machineKey]driver.Keeper) {
	var all sync.WaitGroup
	for key, keeper := range found {
		all.Go(func() {
			m, _, err := keeper.Adopt(ctx, key.id)
			if err == nil {
				err = m.Destroy(ctx)
			}
			if err != nil {
				mg.log.Warn("could not remove a machine that an earlier process had left behind", "driver", key.driver, "machine", key.id, "error", err)
				return
			}
			mg.log.Warn("removed a machine that an earlier process had left behind", "driver", key.driver, "machine", key.id)
		})
	}
	all.Wait()
}

// leave lets go of a sandbox whose machine outlives us, for the next process to adopt.
// It says whether that is so. What runs in there ends.
func (s *Sandbox) leave() bool {
	s.changing.Lock() // it must not be left standing still for a snapshot
	defer s.changing.Unlock()
	s.mu.Lock()
	if !s.kept || !s.stays() {
		s.mu.Unlock()
		return false
	}
	s.left = true
	s.timer.Stop()
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	s.machine.Shut() // what goes through it goes through us
	_ = s.guest.Close()
	s.awaitProcesses()
	mg := s.manager
	mg.mu.Lock()
	delete(mg.sandboxes, info.ID)
	mg.mu.Unlock()
	s.release()
	s.end()
	return true
}
