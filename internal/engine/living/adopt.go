package living

import (
	"context"
	"fmt"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/verdict"
	"pinfold/sandbox"
)

// recordMachine records which machine a sandbox has, where that outlives this process.
func (s *Sandbox) recordMachine() {
	mg := s.manager
	name := s.machine.Plan.Posture.Driver
	if mg.records == nil || mg.keeper(name) == nil {
		return
	}
	m := records.Machine{Driver: name, ID: s.machine.Plan.ID, Request: s.request}
	if !s.idles {
		m.Request.IdleMS = 0
	}
	if err := mg.records.SaveMachine(context.Background(), s.tenant, s.info.ID, m); err != nil {
		mg.log.Error("cannot record a sandbox's machine; it will not survive a restart", "sandbox", s.info.ID, "error", err)
		return
	}
	s.kept = true
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
		ids, err := keeper.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for machines of the %s driver: %w", d.Name(), err)
		}
		for _, id := range ids {
			found[machineKey{d.Name(), id}] = keeper
		}
	}
	return found, nil
}

// adopt goes on with a sandbox of an earlier process, if its machine lives and it is not
// to end. What it has running ends; its files stay.
func (mg *Manager) adopt(ctx context.Context, o records.Sandbox, found map[machineKey]driver.Keeper) (adopted bool) {
	if o.Machine == nil || o.Info.State != sandbox.StateRunning || !time.Now().Before(o.Info.ExpiresAt) {
		return false
	}
	key := machineKey{o.Machine.Driver, o.Machine.ID}
	keeper := found[key]
	if keeper == nil {
		return false
	}
	m, plan, err := keeper.Adopt(ctx, key.id)
	if err != nil {
		mg.log.Warn("cannot adopt a sandbox's machine", "sandbox", o.Info.ID, "machine", key.id, "error", err)
		return false
	}
	session := execution.Ungreeted(m, plan, nil)
	agent, err := session.Agent(ctx)
	if err != nil {
		mg.log.Warn("an adopted machine's agent does not answer", "sandbox", o.Info.ID, "machine", key.id, "error", err)
		return false
	}
	delete(found, key)
	now := time.Now()
	s := &Sandbox{
		manager: mg, tenant: o.Tenant, request: o.Machine.Request, ended: make(chan struct{}), machine: &pool.Machine{Session: session}, guest: agent, kept: true,
		release: mg.gate.Admit(o.Tenant, admission.Demand{MemoryBytes: plan.Limits.MemoryBytes, CPUs: plan.Limits.CPUs}),
		expires: now.Add(time.Until(o.Info.ExpiresAt)), used: now, processes: map[string]*Process{}, wake: make(chan struct{}, 1),
		judge: verdict.Judge{Limits: o.Info.Limits, KillOne: plan.KillOne}, info: o.Info, idles: o.Machine.Request.IdleMS != 0,
	}
	mg.mu.Lock()
	mg.sandboxes[o.Info.ID] = s
	mg.mu.Unlock()
	s.mu.Lock()
	s.timer = time.AfterFunc(s.untilEnd(now), s.timeUp)
	s.mu.Unlock()
	go s.guard()
	return true
}

// destroyUnknown ends the machines that outlived their process and belong to nothing
// that goes on: those of runs and pools, and of sandboxes that have ended.
func (mg *Manager) destroyUnknown(ctx context.Context, found map[machineKey]driver.Keeper) {
	for key, keeper := range found {
		m, _, err := keeper.Adopt(ctx, key.id)
		if err == nil {
			err = m.Destroy(ctx)
		}
		if err != nil {
			mg.log.Warn("could not remove a machine that an earlier process had left behind", "driver", key.driver, "machine", key.id, "error", err)
			continue
		}
		mg.log.Warn("removed a machine that an earlier process had left behind", "driver", key.driver, "machine", key.id)
	}
}

// leave lets go of a sandbox whose machine outlives us, for the next process to adopt.
// It says whether that is so. What runs in there ends.
func (s *Sandbox) leave() bool {
	s.mu.Lock()
	if !s.kept || s.info.State != sandbox.StateRunning {
		s.mu.Unlock()
		return false
	}
	s.left = true
	s.timer.Stop()
	info := s.describe()
	s.mu.Unlock()
	s.save(info)
	_ = s.guest.Close()
	s.awaitProcesses()
	mg := s.manager
	mg.mu.Lock()
	delete(mg.sandboxes, info.ID)
	mg.mu.Unlock()
	s.release()
	close(s.ended)
	return true
}
