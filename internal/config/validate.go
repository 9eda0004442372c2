package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/audit"
	"pinfold/internal/language"
	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Validate checks everything that can be known without touching the host. The
// error joins all that is wrong. Each of them has code config_invalid and names
// the key; when it stood in a file, also the line.
func (c *Config) Validate() error {
	var wrong []error
	for _, check := range []func() error{
		c.checkListen, c.checkTLS, c.checkState, c.checkNames, c.checkCapacity, c.checkQuotas,
		c.checkLimits, c.checkTimes, c.checkNetwork, c.checkProfiles, c.checkPolicy, c.checkPools, c.checkCompileCache, c.checkPackages, c.checkSnapshots, c.checkAudit, c.checkLog, c.checkTelemetry,
	} {
		wrong = append(wrong, check())
	}
	return errors.Join(wrong...)
}

// at returns an error about a key, with its place in the file if it has one.
func (c *Config) at(field, format string, args ...any) *sandbox.Error {
	e := invalid(field, format, args...)
	if p, ok := c.where[field]; ok {
		e.Message = fmt.Sprintf("%s:%d:%d: %s", c.name, p.line, p.column, e.Message)
	}
	return e
}

// given says that the file has this key.
func (c *Config) given(field string) bool {
	_, ok := c.where[field]
	return ok
}

// forget drops the places of a key that something else has overridden.
func (c *Config) forget(field string) {
	maps.DeleteFunc(c.where, func(f string, _ position) bool {
		return f == field || strings.HasPrefix(f, field+"[")
	})
}

const (
	maxListen   = 16
	maxUnixPath = 107 // sun_path without its zero byte, unix(7)
)

func (c *Config) checkState() error {
	switch {
	case c.State == "":
		return c.at("state", "no directory for the state is known").WithHint("--state DIR, or set HOME")
	case !printable(c.State):
		return c.at("state", "is not the name of a directory")
	}
	return nil
}

// printable says that a path can be shown as it is, and holds no byte that a
// path must not have.
func printable(s string) bool { return sandbox.SafeText(s, len(s)+1) == s }

const (
	maxDNSName = 253
	maxLabel   = 63
	lowLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// isName says that s is a host name as certificates and browsers have it (RFC
// 1123), in lower case. It and isWord are no regular expressions, because those
// would be compiled at every start of the program.
func isName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabel || strings.Trim(label, lowLetters) != "" || strings.Trim(label, "-") != label {
			return false
		}
	}
	return len(s) <= maxDNSName
}

func (c *Config) checkNames() error {
	if c.Domain != "" {
		if _, err := netip.ParseAddr(c.Domain); err == nil || !isName(c.Domain) || len(c.Domain) > maxDNSName-40 {
			return c.at("domain", "\"%s\" is not a domain name in lower case", sandbox.SafeText(c.Domain, 100)).
				WithHint("sandboxes.example.com, with a DNS record for *.sandboxes.example.com")
		}
	}
	for i, host := range c.AllowedHosts {
		name := host
		if h, port, err := net.SplitHostPort(host); err == nil && isPort(port) {
			name = h
		}
		if _, err := netip.ParseAddr(name); err != nil && !isName(name) {
			return c.at(fmt.Sprintf("allowed_hosts[%d]", i), "\"%s\" is not a host name in lower case", sandbox.SafeText(host, 100)).
				WithHint("pinfold.example.com; each name is written out, without * and https://")
		}
	}
	for i, origin := range c.AllowedOrigins {
		if !isOrigin(origin) {
			return c.at(fmt.Sprintf("allowed_origins[%d]", i), "\"%s\" is not an origin", sandbox.SafeText(origin, 100)).
				WithHint("https://app.example.com, without a path; each origin is written out, without *")
		}
	}
	return nil
}

// isOrigin checks the serialisation of RFC 6454, section 6.2.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Scheme+"://"+u.Host != s {
		return false
	}
	_, ipErr := netip.ParseAddr(u.Hostname())
	return ipErr == nil || isName(u.Hostname())
}

// number is one value with its bounds. Zero means that it was not given.
type number struct {
	field    string
	value    float64
	min, max float64
}

// checkNumbers refuses a zero that was written down as well: it would be taken
// for the default, and read as "unlimited".
func (c *Config) checkNumbers(numbers ...number) error {
	var wrong []error
	for _, n := range numbers {
		if n.value == 0 && !c.given(n.field) {
			continue
		}
		if n.value < n.min || n.value > n.max {
			e := c.at(n.field, "%s is outside %s to %s", n.shown(n.value), n.shown(n.min), n.shown(n.max))
			if n.value == 0 {
				e.Hint = "leave it out for the default; zero does not mean unlimited"
			}
			wrong = append(wrong, e)
		}
	}
	return errors.Join(wrong...)
}

// shown is a value as people write it.
func (n number) shown(v float64) string {
	if strings.HasSuffix(n.field, "memory") || strings.HasSuffix(n.field, "bytes") {
		return sandbox.FormatSize(int64(v))
	}
	return plain(v)
}

// plain writes a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

const (
	maxObjects = 1_000_000
	maxMemory  = 1 << 50
	maxRate    = 1_000_000
	minRate    = 0.001
)

func (c *Config) checkCapacity() error {
	k := c.Capacity
	err := c.checkNumbers(
		number{"capacity.sandboxes", float64(k.Sandboxes), 1, maxObjects},
		number{"capacity.runs", float64(k.Runs), 1, maxObjects},
		number{"capacity.memory", float64(k.Memory), 8 << 20, maxMemory},
		number{"capacity.cpus", k.CPUs, sandbox.MinCPUs, maxObjects},
		number{"capacity.starts_per_second", k.StartsPerSecond, minRate, maxRate},
		number{"capacity.queue", float64(k.Queue), 1, maxObjects},
		number{"capacity.detached", float64(k.Detached), 1, maxObjects},
	)
	return errors.Join(err, c.checkTime("capacity.queue_timeout", k.QueueTimeout, time.Millisecond, time.Hour))
}

const maxWord = 40

// isWord says that s may name a tenant or a pool.
func isWord(s string) bool { return s != "" && len(s) <= maxWord && strings.Trim(s, lowLetters) == "" }

func (c *Config) checkQuotas() error {
	if err := c.checkQuota("quotas.default", c.Quotas.Default); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Quotas.Tenants)) {
		field := "quotas.tenants." + sandbox.SafeText(name, 60)
		if !isWord(name) {
			return c.at(field, "a tenant's name has 1 to 40 of a-z, 0-9 and -")
		}
		if err := c.checkQuota(field, c.Quotas.Tenants[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkQuota(at string, q Quota) error {
	return c.checkNumbers(
		number{at + ".sandboxes", float64(q.Sandboxes), 1, maxObjects},
		number{at + ".runs", float64(q.Runs), 1, maxObjects},
		number{at + ".memory", float64(q.Memory), 8 << 20, maxMemory},
		number{at + ".cpus", q.CPUs, sandbox.MinCPUs, maxObjects},
		number{at + ".starts_per_second", q.StartsPerSecond, minRate, maxRate},
	)
}

func (c *Config) checkLimits() error {
	if err := errors.Join(c.checkLimitSet("limits.default", c.Limits.Default), c.checkLimitSet("limits.max", c.Limits.Max)); err != nil {
		return err
	}
	for _, info := range sandbox.LimitTable() {
		least, most := c.Limits.Default.Get(info.Field), c.Limits.Max.Get(info.Field)
		if most != 0 && least > most {
			return c.at("limits.default."+info.Field, "%s is more than limits.max allows, %s",
				sandbox.FormatQuantity(least, info.Unit), sandbox.FormatQuantity(most, info.Unit))
		}
	}
	if most := c.Limits.Max.CPUs; most != 0 && c.Limits.Default.CPUs > most {
		return c.at("limits.default.cpus", "%v is more than limits.max allows, %v", c.Limits.Default.CPUs, most)
	}
	return nil
}

func (c *Config) checkLimitSet(at string, l sandbox.Limits) error {
	var wrong []error
	for _, info := range sandbox.LimitTable() {
		field, v := at+"."+info.Field, l.Get(info.Field)
		if v == 0 && !c.given(field) {
			continue
		}
		if err := info.Check(v); err != nil {
			e := sandbox.AsError(err)
			wrong = append(wrong, c.at(field, "%s", e.Message).WithHint(e.Hint))
		}
	}
	field := at + ".cpus"
	if l.CPUs == 0 && !c.given(field) {
		return errors.Join(wrong...)
	}
	if err := sandbox.CheckCPUs(l.CPUs); err != nil {
		e := sandbox.AsError(err)
		wrong = append(wrong, c.at(field, "%s", e.Message).WithHint(e.Hint))
	}
	return errors.Join(wrong...)
}

func (c *Config) checkTime(field string, v, least, most time.Duration) error {
	if v >= least && v <= most {
		return nil
	}
	shown := func(d time.Duration) string {
		return sandbox.FormatQuantity(d.Milliseconds(), sandbox.UnitMilliseconds)
	}
	return c.at(field, "%s is outside %s to %s", shown(v), shown(least), shown(most))
}

func (c *Config) checkTimes() error {
	const least, most = sandbox.MinTTLMS * time.Millisecond, sandbox.MaxTTLMS * time.Millisecond
	var wrong []error
	for _, t := range []struct {
		field          string
		v, least, most time.Duration
	}{
		{"ttl.max", c.TTL.Max, least, most},
		{"ttl.default", c.TTL.Default, least, c.TTL.Max},
		{"retention", c.Retention, time.Minute, 10 * 366 * 24 * time.Hour},
		{"snapshots.ttl", c.Snapshots.TTL, time.Minute, 10 * 366 * 24 * time.Hour},
		{"drain_timeout", c.DrainTimeout, 0, 24 * time.Hour},
	} {
		wrong = append(wrong, c.checkTime(t.field, t.v, t.least, t.most))
	}
	return errors.Join(wrong...)
}

const (
	maxPools    = 100
	maxPoolSize = 10_000
)

func (c *Config) checkPools() error {
	if len(c.Pools) > maxPools {
		return c.at("pools", "more than %d pools", maxPools)
	}
	names := map[string]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		switch {
		case !isWord(p.Name):
			return c.at(at+".name", "a pool needs a name of 1 to 40 of a-z, 0-9 and -")
		case names[p.Name]:
			return c.at(at+".name", "two pools are named %s", p.Name)
		case p.Min < 0 || p.Min > maxPoolSize:
			return c.at(at+".min", "%d is outside 0 to %d", p.Min, maxPoolSize)
		case p.Max < 0 || p.Max > maxObjects:
			return c.at(at+".max", "%d is outside 0 to %d", p.Max, maxObjects)
		case p.Max != 0 && p.Max < p.Min:
			return c.at(at+".max", "%d is less than min, %d", p.Max, p.Min)
		case !printable(p.Template) || !printable(p.Driver):
			return c.at(at+".template", "is not a name")
		}
		names[p.Name] = true
		if _, err := language.CheckWaiting(p.Language, p.Warm); err != nil {
			e := sandbox.AsError(err)
			return c.at(at+"."+e.Field, "%s", e.Message).WithHint(e.Hint)
		}
		if err := c.checkLimitSet(at+".limits", p.Limits); err != nil {
			return err
		}
	}
	return nil
}

// minCache holds a few programs of any language.
const minCache = 16 << 20

// checkCompileCache is one of two places where zero may be written: it means off.
func (c *Config) checkCompileCache() error {
	k := c.CompileCache
	if k.Bytes != 0 {
		if err := c.checkNumbers(number{"compile_cache.bytes", float64(k.Bytes), minCache, maxMemory}); err != nil {
			return sandbox.AsError(err).WithHint("0 turns the cache off")
		}
	}
	if err := c.checkNumbers(number{"compile_cache.tenant_bytes", float64(k.TenantBytes), minCache / 4, maxMemory}); err != nil {
		return err
	}
	if k.Bytes != 0 && k.TenantBytes > k.Bytes {
		return c.at("compile_cache.tenant_bytes", "is more than compile_cache.bytes")
	}
	return nil
}

// minSnapshots holds a small sandbox.
const minSnapshots = 16 << 20

// checkSnapshots is the other place where zero means off.
func (c *Config) checkSnapshots() error {
	s := c.Snapshots
	if s.Bytes != 0 {
		if err := c.checkNumbers(number{"snapshots.bytes", float64(s.Bytes), minSnapshots, maxMemory}); err != nil {
			return sandbox.AsError(err).WithHint("0 has no snapshots made")
		}
	}
	if err := c.checkNumbers(
		number{"snapshots.tenant_bytes", float64(s.TenantBytes), minSnapshots / 2, maxMemory},
		number{"snapshots.per_tenant", float64(s.PerTenant), 1, maxSnapshots},
	); err != nil {
		return err
	}
	if s.Bytes != 0 && s.TenantBytes > s.Bytes {
		return c.at("snapshots.tenant_bytes", "is more than snapshots.bytes")
	}
	return nil
}

// maxSnapshots is the most snapshots of a tenant, which are listed at once.
const maxSnapshots = 1000

// maxWitnesses bounds who is told of each checkpoint.
const maxWitnesses = 16

func (c *Config) checkAudit() error {
	a := c.Audit
	if a.Name != "" {
		if err := audit.CheckName(a.Name); err != nil {
			return c.at("audit.name", "%s", sandbox.AsError(err).Message).WithHint(sandbox.AsError(err).Hint)
		}
	}
	if known := []string{AuditRefuse, AuditContinue}; !slices.Contains(known, a.OnFailure) {
		return c.at("audit.on_failure", "\"%s\" is not one of %s", sandbox.SafeText(a.OnFailure, 40), strings.Join(known, ", "))
	}
	if err := c.checkTime("audit.texts_retention", a.TextsRetention, time.Hour, 10*366*24*time.Hour); err != nil {
		return err
	}
	if err := c.checkNumbers(number{"audit.text_bytes", float64(a.TextBytes), 1 << 10, 256 << 20}); err != nil {
		return err
	}
	if len(a.Witnesses) > maxWitnesses {
		return c.at("audit.witnesses", "there are more than %d", maxWitnesses)
	}
	for i, w := range a.Witnesses {
		u, err := url.Parse(w)
		web := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		if !web && !strings.HasPrefix(w, "/") {
			return c.at(fmt.Sprintf("audit.witnesses[%d]", i), "\"%s\" is neither the path of a file nor an address", sandbox.SafeText(w, 80)).
				WithHint("/mnt/other/checkpoints, or https://other.example.com/v1/witness/checkpoints of another Pinfold")
		}
	}
	return c.checkWatched()
}

func (c *Config) checkLog() error {
	for _, w := range []struct {
		field, v string
		known    []string
	}{
		{"log.level", c.Log.Level, []string{"debug", "info", "warn", "error"}},
		{"log.format", c.Log.Format, []string{FormatText, FormatJSON}},
	} {
		if slices.Contains(w.known, w.v) {
			continue
		}
		e := c.at(w.field, "\"%s\" is not one of %s", sandbox.SafeText(w.v, 40), strings.Join(w.known, ", "))
		if near := nearest.Word(strings.ToLower(w.v), w.known); near != "" {
			e.Hint = fmt.Sprintf("did you mean %q?", near)
		}
		return e
	}
	return nil
}

const maxServiceName = 100

func (c *Config) checkTelemetry() error {
	t := c.Telemetry
	if t.OTLPEndpoint != "" {
		u, err := url.Parse(t.OTLPEndpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return c.at("telemetry.otlp_endpoint", "is not the URL of an OTLP/HTTP collector").WithHint("http://127.0.0.1:4318")
		}
	}
	if t.ServiceName == "" || len(t.ServiceName) > maxServiceName || !printable(t.ServiceName) {
		return c.at("telemetry.service_name", "must be 1 to %d printable characters", maxServiceName)
	}
	if t.Sample < 0 || t.Sample > 1 {
		return c.at("telemetry.sample", "%s is outside 0 to 1", plain(t.Sample))
	}
	return nil
}
