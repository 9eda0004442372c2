package api

import (
	"cmp"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"pinfold/sandbox"
)

// meaning is what a field of a schema means, or "".
func meaning(schema, field string) string {
	return cmp.Or(fieldMeanings[schema+"."+field], policyMeanings[schema+"."+field], fieldMeanings["*."+field])
}

// finishSchemas adds to the schemas what Go's types do not say: what a field
// means, and which values it takes.
func finishSchemas(registry huma.Registry) {
	for name, schema := range registry.Map() {
		for field, property := range schema.Properties {
			if text := meaning(name, field); text != "" {
				property.Description = text
			}
			if enum := fieldWords()[name+"."+field]; enum != nil {
				property.Enum = enum
			}
		}
	}
	for _, name := range requestTypes() { // what is read is read strictly
		if schema := registry.Map()[name]; schema != nil {
			schema.AdditionalProperties = false
		}
	}
	if limits := registry.Map()["Limits"]; limits != nil {
		finishLimits(limits)
	}
	if network := registry.Map()["Network"]; network != nil {
		finishNetwork(registry, network)
	}
}

// finishNetwork says of a type with a form of its own what that is: a word, or an object.
func finishNetwork(registry huma.Registry, schema *huma.Schema) {
	endpoints := registry.Schema(reflect.TypeFor[[]sandbox.Endpoint](), true, "")
	endpoints.Description, endpoints.MaxItems = "The names that programs can reach; unmodified programs find them as they always do.", new(int)
	*endpoints.MaxItems = sandbox.MaxEndpoints
	limits := registry.Schema(reflect.TypeFor[sandbox.NetworkLimits](), true, "")
	limits.Description = "For all endpoints together, over the sandbox's life."
	*schema = huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, Enum: []any{sandbox.NetworkNone}},
		{
			Type: huma.TypeObject, Required: []string{"endpoints"}, AdditionalProperties: false,
			Properties: map[string]*huma.Schema{"endpoints": endpoints, "limits": limits},
		},
	}}
}

// requestTypes are the schemas of what people send.
func requestTypes() []string {
	return []string{"RunSpec", "File", "SandboxCreate", "TakeSnapshot", "ForkSandbox", "Command", "Terminal", "ExtendBody", "SignalBody", "MkdirBody", "MoveBody", "PoolSpec", "Limits", "LinkBody", "Endpoint", "NetworkLimits", "Packages", "SetSecret", "Gate", "GateArtifacts", "GateSchema"}
}

// finishLimits takes ranges and defaults from the table of limits.
func finishLimits(schema *huma.Schema) {
	defaults := sandbox.DefaultLimits()
	for _, info := range sandbox.LimitTable() {
		p := schema.Properties[info.Field]
		if p == nil {
			continue
		}
		p.Minimum, p.Maximum = number(float64(info.Min)), number(float64(info.Max))
		p.Default = defaults.Get(info.Field)
		p.Description = info.Meaning + " (" + map[sandbox.Unit]string{sandbox.UnitMilliseconds: "milliseconds", sandbox.UnitBytes: "bytes", sandbox.UnitCount: "a count"}[info.Unit] + ")"
	}
	if p := schema.Properties["cpus"]; p != nil {
		p.Minimum, p.Maximum, p.Default = number(sandbox.MinCPUs), number(sandbox.MaxCPUs), defaults.CPUs
		p.Description = "CPUs at once; 0.5 is half of one"
	}
}

func enumOf[T ~string](all ...T) []any {
	var out []any
	for _, v := range all {
		out = append(out, string(v))
	}
	return out
}

// fieldWords are the values that fields take, where they are few.
func fieldWords() map[string][]any {
	statuses := enumOf(sandbox.StatusSucceeded, sandbox.StatusFailed, sandbox.StatusKilled, sandbox.StatusError)
	acts, keeps := []sandbox.GateAction{sandbox.GateFlag, sandbox.GateRedact, sandbox.GateWithhold}, []sandbox.GateAction{sandbox.GateFlag, sandbox.GateWithhold}
	outcomes := append([]sandbox.GateAction{sandbox.GatePass}, acts...)
	return map[string][]any{
		"Result.status": statuses, "Run.status": statuses, "Process.status": statuses,
		"Gate.control_characters": enumOf(acts...), "Gate.hidden_text": enumOf(acts...), "Gate.secrets": enumOf(acts...), "Gate.keys": enumOf(acts...),
		"Gate.instructions": enumOf(acts...), "Gate.formulas": enumOf(acts...),
		"Gate.scripts": enumOf(keeps...), "Gate.media_types": enumOf(keeps...), "GateArtifacts.action": enumOf(keeps...), "GateSchema.action": enumOf(keeps...),
		"GateSchema.of":      enumOf(sandbox.GateStdout, sandbox.GateResults, sandbox.GateArtifact),
		"GateResult.outcome": enumOf(outcomes...), "GateOutcome.outcome": enumOf(outcomes...), "GateOutcome.action": enumOf(acts...), "GateFinding.outcome": enumOf(acts...),
		"Denial.reason": enumOf(sandbox.DenialReasons()...),
		"Fix.kind":      enumOf(sandbox.FixKinds()...),
		"Error.code":    enumOf(sandbox.Codes()...), "SkippedResult.code": enumOf(sandbox.Codes()...), "SkippedArtifact.code": enumOf(sandbox.Codes()...),
		"Cause.kind": enumOf(sandbox.CauseKinds()...), "Run.cause": enumOf(sandbox.CauseKinds()...),
		"Run.state":         enumOf(sandbox.RunStates()...),
		"Sandbox.state":     enumOf(sandbox.States()...),
		"RunSpec.isolation": enumOf(sandbox.IsolationLevels()...), "SandboxCreate.isolation": enumOf(sandbox.IsolationLevels()...),
		"DriverInfo.level": enumOf(sandbox.IsolationLevels()...),
		"FileInfo.type":    enumOf(sandbox.FileRegular, sandbox.FileDir, sandbox.FileSymlink, sandbox.FileOther),
		"FileEvent.kind":   enumOf("created", "modified", "removed", "moved_from", "moved_to", "overflow"),
		"Change.kind":      enumOf("added", "modified", "removed"),
	}
}

// schemaName gives types the names that readers know.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	names := map[reflect.Type]string{
		reflect.TypeFor[sandbox.Info]():     "Sandbox",
		reflect.TypeFor[sandbox.Create]():   "SandboxCreate",
		reflect.TypeFor[sandbox.Spec]():     "RunSpec",
		reflect.TypeFor[sandbox.PoolInfo](): "Pool",

		reflect.TypeFor[List[sandbox.Info]]():     "SandboxList",
		reflect.TypeFor[List[sandbox.PoolInfo]](): "PoolList",
	}
	if name, ok := names[t]; ok {
		return name
	}
	return huma.DefaultSchemaNamer(t, hint)
}
