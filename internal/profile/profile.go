// Package profile has an operator's profiles: what a request that names one is made of,
// what of its wishes is refused because it is wider, and how a profile is shown as a tool
// to people and to models.
//
// It decides and describes. It runs nothing, and what it lets pass the operator's other
// rules (internal/engine/admission) are held against all the same.
package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pinfold/internal/language"
	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// Entry is a profile as an operator gives it: what is not said of it has its default.
type Entry struct {
	sandbox.Profile

	Tenants []string // whose it is; none: everybody's
}

// Set are profiles by their names. The zero value has none.
type Set map[string]Complete

// Complete is a profile of which nothing is left open.
type Complete struct {
	Entry

	ref sandbox.ProfileRef
}

// maxDescription bounds what an operator says of a profile, in bytes: models pay for it.
const maxDescription = 600

// maxApproval bounds why a person is asked, in bytes, as a policy does.
const maxApproval = 200

// Add completes a profile and adds it. Each error names its field, below the profile.
func (s Set) Add(e Entry) error {
	p := e.Profile
	if err := sandbox.CheckProfileName(p.Name); err != nil {
		return sandbox.AsError(err).WithField("name")
	}
	if err := checkWords("description", p.Description, maxDescription, "say in a sentence or two what the tool is for"); err != nil {
		return err
	}
	if err := checkWords("approval", p.Approval, maxApproval, "say in a few words what a person is to look at, such as: which customers does it write to?"); err != nil {
		return err
	}
	if p.Language == "" {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "language", Message: "is missing", Hint: "such as python; pinfold languages lists them"}
	}
	l, err := language.Find(p.Language)
	if err == nil {
		err = l.CheckWarm(p.Warm)
	}
	if err != nil {
		return err
	}
	if p.Driver == sandbox.DriverAuto {
		p.Driver = ""
	}
	spec := sandbox.Spec{
		Code: "-", Language: l.Name, Template: p.Template, Driver: p.Driver, Isolation: p.Isolation, Require: p.Require,
		Warm: p.Warm, Packages: p.Packages, Limits: p.Limits, Network: p.Network, Gate: p.Gate,
	}.WithDefaults()
	if err := spec.Validate(); err != nil {
		return err
	}
	if spec.Network.Sets() {
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "network", Message: "names a set that nobody has put endpoints in the place of", Hint: "name the endpoints"}
	}
	if p.Packages, err = p.Packages.Canonical(); err != nil {
		return err
	}
	p.Language, p.Template, p.Limits, p.Network = l.Name, spec.Template, spec.Limits, spec.Network
	if p.Gate.Empty() {
		p.Gate = nil
	}
	if err := checkLife(p); err != nil {
		return err
	}
	digest, err := Digest(p)
	if err != nil {
		return err
	}
	e.Profile = p
	s[p.Name] = Complete{Entry: e, ref: sandbox.ProfileRef{Name: p.Name, Digest: digest}}
	return nil
}

// checkWords checks what an operator says to people.
func checkWords(field, text string, most int, hint string) error {
	if len(text) <= most && sandbox.SafeText(text, most) == text {
		return nil
	}
	return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: field, Message: fmt.Sprintf("has at most %d bytes, all of them printable", most), Hint: hint}
}

// checkLife checks how long living sandboxes of a profile may live.
func checkLife(p sandbox.Profile) error {
	switch {
	case p.TTLMS == 0:
		return nil
	case p.Gate != nil && len(p.Gate.Validators) > 0:
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "ttl", Message: "the profile has validators, which judge runs only", Hint: "leave out ttl or gate.validators"}
	case p.Approval != "":
		return &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "ttl", Message: "nobody is asked about a living sandbox, of whose programs nobody knows beforehand, and the profile has approval", Hint: "leave out ttl or approval"}
	}
	if err := sandbox.CheckTTL(p.TTLMS); err != nil {
		return sandbox.AsError(err).WithField("ttl").WithHint("such as 10m")
	}
	return nil
}

// Digest is that of a complete profile.
func Digest(p sandbox.Profile) (string, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return "", sandbox.AsError(err)
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Names are those of the profiles that a tenant may use, in order.
func (s Set) Names(tenant string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return !s[name].isFor(tenant) })
}

// Anyone stands for the operator, whose all profiles are.
const Anyone = ""

func (c Complete) isFor(tenant string) bool {
	return tenant == Anyone || len(c.Tenants) == 0 || slices.Contains(c.Tenants, tenant)
}

// find is a profile that a tenant may use. Of others nobody learns whether they are there.
func (s Set) find(tenant, name string) (Complete, error) {
	if c, ok := s[name]; ok && c.isFor(tenant) {
		return c, nil
	}
	err := &sandbox.Error{Code: sandbox.CodeProfileUnknown, Field: "profile", Message: fmt.Sprintf("no profile \"%s\"", sandbox.SafeText(name, 80))}
	names := s.Names(tenant)
	switch near := nearest.Word(name, names); {
	case near != "":
		return Complete{}, err.WithAdvice(sandbox.Advise("did you mean %s?", sandbox.Set("profile", near)))
	case len(names) > 0:
		return Complete{}, err.WithHint("the profiles are " + sandbox.SafeText(strings.Join(names, ", "), 400))
	}
	return Complete{}, err.WithHint("there are none here; a server's operator writes them into profiles in its configuration")
}

// Run puts the profile that a run names, if it names one, into the place of what it leaves
// open, and refuses what is wider. The reference is nil without a profile.
func (s Set) Run(tenant string, spec sandbox.Spec) (sandbox.Spec, *sandbox.ProfileRef, error) {
	if spec.Profile == "" {
		return spec, nil, nil
	}
	c, err := s.find(tenant, spec.Profile)
	if err != nil {
		return spec, nil, err
	}
	n := narrowing{c.Profile}
	if spec.Language, err = n.language(spec.Language); err != nil {
		return spec, nil, err
	}
	if spec.Warm, err = n.warm(spec.Warm, spec.Cold); err != nil {
		return spec, nil, err
	}
	if spec.Gate, err = n.gate(spec.Gate); err != nil {
		return spec, nil, err
	}
	err = n.machine(machine{&spec.Template, &spec.Driver, &spec.Isolation, &spec.Require, &spec.Limits, &spec.Network, &spec.Packages, spec.Mounts})
	return spec, &c.ref, err
}

// Rule is what a run of the profile of a name is held by beside the operator's policy: that a
// person is asked, or nil. Its id is no policy's, since those have no colon.
func (s Set) Rule(name string) *sandbox.PolicyRule {
	if c := s[name]; c.Approval != "" {
		return &sandbox.PolicyRule{ID: "profile:" + name, Then: sandbox.PolicyThen{Ask: c.Approval}}
	}
	return nil
}

// Limits are the most that requests which name a profile may ask for.
func (s Set) Limits(name string) sandbox.Limits { return s[name].Limits }

// Create is Run for a living sandbox.
func (s Set) Create(tenant string, c sandbox.Create) (sandbox.Create, *sandbox.ProfileRef, error) {
	if c.Profile == "" {
		return c, nil, nil
	}
	found, err := s.find(tenant, c.Profile)
	if err != nil {
		return c, nil, err
	}
	p := found.Profile
	switch {
	case p.TTLMS == 0:
		return c, nil, (&sandbox.Error{Code: sandbox.CodeProfileDenied, Field: "profile", Message: fmt.Sprintf("the profile %s has no living sandboxes", p.Name)}).
			WithAdvice(sandbox.Advise("run a program with it; or its operator says in %s how long they may live", sandbox.Config("profiles."+p.Name+".ttl")))
	case c.TTLMS > p.TTLMS:
		most := sandbox.FormatQuantity(p.TTLMS, sandbox.UnitMilliseconds)
		return c, nil, narrowing{p}.refuse("ttl_ms", sandbox.FormatQuantity(c.TTLMS, sandbox.UnitMilliseconds), most, sandbox.Set("ttl_ms", p.TTLMS))
	}
	if c.Gate, err = (narrowing{p}).gate(c.Gate); err != nil {
		return c, nil, err
	}
	err = narrowing{p}.machine(machine{&c.Template, &c.Driver, &c.Isolation, &c.Require, &c.Limits, &c.Network, &c.Packages, c.Mounts})
	return c, &found.ref, err
}

// Life is how long a living sandbox that does not say it may live, in milliseconds, where a
// server has a default.
func (s Set) Life(name string, ms int64) int64 {
	if c, ok := s[name]; ok {
		return min(ms, c.TTLMS)
	}
	return ms
}

// Extend says whether a living sandbox that was made at one time may live until another.
func (s Set) Extend(name string, made, until time.Time) error {
	if name == "" {
		return nil
	}
	c, err := s.find(Anyone, name)
	if err != nil {
		return err
	}
	if most := time.Duration(c.TTLMS) * time.Millisecond; until.Sub(made) > most {
		return (&sandbox.Error{Code: sandbox.CodeProfileDenied, Field: "ttl_ms", Message: fmt.Sprintf("sandboxes of the profile %s live %s in all", name, sandbox.FormatQuantity(c.TTLMS, sandbox.UnitMilliseconds))}).
			WithHint("take out of it what is needed, and make another one")
	}
	return nil
}

// Command holds a process in a living sandbox against the limits that the sandbox got with
// its profile.
func Command(name string, got sandbox.Limits, c sandbox.Command) error {
	if name == "" {
		return nil
	}
	n := narrowing{sandbox.Profile{Name: name}}
	for _, l := range []struct {
		field       string
		asked, most int64
		unit        sandbox.Unit
	}{{"wall_time_ms", c.WallTimeMS, got.WallTimeMS, sandbox.UnitMilliseconds}, {"output_bytes", c.OutputBytes, got.OutputBytes, sandbox.UnitBytes}} {
		if l.asked > l.most {
			return n.refuse(l.field, sandbox.FormatQuantity(l.asked, l.unit), sandbox.FormatQuantity(l.most, l.unit), sandbox.Set(l.field, l.most))
		}
	}
	return nil
}
