package living

import (
	"context"

	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// recordable says why nothing new may begin: nobody could record it.
func (mg *Manager) recordable() error {
	if mg.auditor == nil || !mg.auditor.Strict() {
		return nil
	}
	return mg.auditor.Check()
}

// level is how strongly the driver of a name isolates.
func (mg *Manager) level(name string) string {
	for _, d := range mg.drivers {
		if d.Name() == name {
			return d.Abilities().Level
		}
	}
	return ""
}

// attestCreated records that a sandbox was made. The error is where it must not stay
// without that.
func (s *Sandbox) attestCreated(ctx context.Context) error {
	if s.manager.auditor == nil {
		return nil
	}
	e := records.SandboxEvent(sandbox.AuditSandboxCreated, s.Info())
	asked := s.request
	if s.gate != nil {
		asked.Gate = &s.gate.asked
	}
	e.AddCreate(asked)
	_, err := s.attest(ctx, e)
	if err != nil && s.manager.auditor.Strict() {
		return err
	}
	return nil
}

// attestEnded records that a sandbox has ended.
func (s *Sandbox) attestEnded(info sandbox.Info) {
	if s.manager.auditor != nil {
		_, _ = s.attest(context.Background(), records.SandboxEvent(sandbox.AuditSandboxEnded, info)) // the log has counted it
	}
}

func (s *Sandbox) attest(ctx context.Context, e records.Event) (*sandbox.Receipt, error) {
	return s.attestBy(ctx, e, s.key)
}

// attestBy records what was done with a key.
func (s *Sandbox) attestBy(ctx context.Context, e records.Event, key string) (*sandbox.Receipt, error) {
	e.Entry.Tenant, e.Entry.Key, e.Entry.Isolation.Level = s.tenant, key, s.level
	r, err := s.manager.auditor.Record(ctx, e)
	if err != nil {
		s.manager.log.Error("a sandbox is not in the audit log", "sandbox", s.info.ID, "kind", string(e.Entry.Kind), "tenant", s.tenant, "error", err)
	}
	return r, err
}

// attest records how a process has ended. What it printed was seen already, if no gate held it back; that it is not
// in the log is said. Processes that ask whether a sandbox is ready are many, and not recorded.
func (p *Process) attest(r *sandbox.Process) {
	mg := p.sandbox.manager
	if mg.auditor == nil || p.asks {
		return
	}
	printed := *r
	printed.StdoutRaw, _ = p.shown.Kept(wire.Stdout)
	printed.StderrRaw, _ = p.shown.Kept(wire.Stderr)
	printed.Stdout, printed.Stderr = stdio.Text(printed.StdoutRaw), stdio.Text(printed.StderrRaw)
	e := records.ProcessEvent(printed, p.command)
	e.Entry.Tenant, e.Entry.Key, e.Entry.Sandbox = p.sandbox.tenant, p.key, p.sandbox.info.ID
	e.Entry.Isolation = records.Wall(p.sandbox.machine.Plan.Posture)
	e.Entry.Isolation.Level = p.sandbox.level
	var err error
	if r.Receipt, err = mg.auditor.Record(context.Background(), e); err != nil {
		mg.log.Error("a process is not in the audit log", "process", p.id, "sandbox", p.sandbox.info.ID, "tenant", p.sandbox.tenant, "error", err)
		r.ReceiptMissing = sandbox.AsError(err)
	}
}
