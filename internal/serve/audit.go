package serve

import (
	"path/filepath"

	"pinfold/internal/audit"
	"pinfold/internal/config"
	"pinfold/internal/engine/records"
)

// openWatcher makes the server a witness, where the configuration names logs of others.
func (s *server) openWatcher() error {
	keys, err := s.config.Audit.Keys()
	if err != nil || len(keys) == 0 {
		return err
	}
	s.watcher, err = audit.OpenWatcher(filepath.Join(s.store.Dir(), audit.WatchDir), keys, s.log)
	return err
}

// openAudit opens the audit log, where the configuration asks for one.
func (s *server) openAudit() (records.Auditor, error) {
	c := s.config.Audit
	if !c.Enabled {
		return nil, nil //nolint:nilnil // there is none
	}
	o := audit.Options{
		Dir: filepath.Join(s.store.Dir(), audit.Dir), Name: c.Name, KeepTexts: c.Texts, TextBytes: int64(c.TextBytes), TextsFor: c.TextsRetention,
		Strict: c.OnFailure == config.AuditRefuse, Log: s.log,
	}
	for _, w := range c.Witnesses {
		o.Witnesses = append(o.Witnesses, audit.NewWitness(w))
	}
	l, err := audit.Open(o)
	if err != nil {
		return nil, err
	}
	s.audit = l
	entries, _ := l.Head()
	s.log.Info("audit log", "entries", entries, "key", l.PublicKey())
	return l, s.watchChanges()
}
