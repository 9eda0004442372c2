package serve

import (
	"context"
	"os"
	"reflect"
	"syscall"

	"pinfold/internal/config"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// order is what a signal says.
type order int

const (
	orderEnd order = iota
	orderReload
)

// watchSignals turns signals into orders, until done. While the server is being
// made nobody takes orders: the one to end then calls cancel.
func (s *server) watchSignals(done <-chan struct{}, cancel func()) <-chan order {
	orders := make(chan order, 4) // what does not fit repeats what was said
	say := func(o order) {
		select {
		case orders <- o:
		default:
		}
	}
	go func() {
		for {
			select {
			case <-done:
				return
			case sig, ok := <-s.o.Signals:
				switch {
				case !ok:
					return
				case sig == os.Signal(syscall.SIGHUP):
					say(orderReload)
				case s.opening.Load():
					cancel()
				default:
					say(orderEnd)
				}
			}
		}
	}()
	return orders
}

// reload reads the configuration again and takes over what can change while
// the server runs: quotas, pools, the policy, the log's level, the certificate. After an
// error everything stays as it was.
func (s *server) reload(ctx context.Context) {
	if s.o.Reload == nil {
		s.log.Warn("there is no configuration file to read again")
		return
	}
	fresh, err := s.o.Reload()
	if err == nil && s.cert != nil && fresh.TLS.Cert != "" {
		err = s.cert.load(fresh.TLS)
	}
	if err == nil {
		err = s.setPolicy(fresh)
	}
	if err != nil {
		e := sandbox.AsError(err)
		s.log.Error("the configuration was not taken over", "field", e.Field, "error", e.Message, "hint", e.Hint)
		return
	}
	s.quotas.Store(&fresh.Quotas)
	setLevel(s.level, fresh.Log.Level)
	s.reloadPools(ctx, fresh.Pools)
	if needsRestart(s.config, fresh) {
		s.log.Warn("other changes of the configuration need a restart")
	}
	s.config = fresh
	s.log.Info("the configuration was read again")
}

// reloadPools changes the pools of the file. Those that were made at run time
// stay.
func (s *server) reloadPools(ctx context.Context, fresh []config.Pool) {
	kept := map[string]bool{}
	for _, p := range fresh {
		kept[p.Name] = true
		if _, err := s.engine.SetPool(ctx, p.Spec()); err != nil {
			s.log.Error("a pool was not changed", "pool", p.Name, "error", err)
		}
	}
	for _, p := range s.config.Pools {
		if kept[p.Name] {
			continue
		}
		if err := s.engine.RemovePool(ctx, p.Name); err != nil && sandbox.AsError(err).Code != sandbox.CodeNotFound {
			s.log.Error("a pool was not removed", "pool", p.Name, "error", err)
		}
	}
}

// needsRestart says whether two configurations differ in more than a reload
// takes over.
func needsRestart(old, fresh *config.Config) bool {
	strip := func(c *config.Config) config.Config {
		d := *config.Default()
		d.Listen, d.InsecureListen, d.State, d.Domain = c.Listen, c.InsecureListen, c.State, c.Domain
		d.AllowedHosts, d.AllowedOrigins, d.Capacity, d.Limits, d.TTL = c.AllowedHosts, c.AllowedOrigins, c.Capacity, c.Limits, c.TTL
		d.CompileCache, d.Snapshots, d.Network, d.Secrets, d.Gate, d.Audit = c.CompileCache, c.Snapshots, c.Network, c.Secrets, c.Gate, c.Audit
		d.Retention, d.Log.Format, d.Telemetry = c.Retention, c.Log.Format, c.Telemetry
		d.TLS.Cert = map[bool]string{true: "on"}[c.TLS.Cert != ""]
		return d
	}
	return !reflect.DeepEqual(strip(old), strip(fresh))
}

// quota is what a tenant may have: what was set for it by hand comes first,
// then the file's word for it, then the file's default.
func (s *server) quota(tenant string) admission.Quota {
	q, file := s.access.Quota(tenant), s.quotas.Load().Quota(tenant)
	return q.Or(admission.Quota{
		Sandboxes: file.Sandboxes, Runs: file.Runs, MemoryBytes: int64(file.Memory), CPUs: file.CPUs, StartsPerSecond: file.StartsPerSecond,
	})
}

func capacity(c config.Capacity) admission.Capacity {
	return admission.Capacity{
		Sandboxes: c.Sandboxes, Runs: c.Runs, MemoryBytes: int64(c.Memory), CPUs: c.CPUs,
		StartsPerSecond: c.StartsPerSecond, Queue: c.Queue, QueueTimeout: c.QueueTimeout, Detached: c.Detached,
	}
}

func networkPolicy(n config.Network) admission.Network {
	return admission.Network{Allow: config.Endpoints(n.Allow), Tenants: config.EndpointsByName(n.Tenants), Sets: config.EndpointsByName(n.Sets)}
}

func poolSpecs(pools []config.Pool) []sandbox.PoolSpec {
	var specs []sandbox.PoolSpec
	for _, p := range pools {
		specs = append(specs, p.Spec())
	}
	return specs
}
