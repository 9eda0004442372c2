package sandbox

// GateResult is what the gate has made of an output.
type GateResult struct {
	// Outcome is the strongest of those of the checks: GatePass or an action.
	Outcome GateAction `json:"outcome"`
	// Checks are those that were made, each with what came of it.
	Checks []GateOutcome `json:"checks"`
	// Context is what ContextBytes asked for.
	Context *GateContext `json:"context,omitempty"`
}

// GateOutcome is what came of one check.
type GateOutcome struct {
	Check   string     `json:"check"`  // its name; "artifacts"; "schemas[0]"; "validators[0]"
	Action  GateAction `json:"action"` // that was asked for
	Outcome GateAction `json:"outcome"`
	Count   int64      `json:"count,omitempty"` // what was found, in all
	// Findings are the first MaxGateFindings of them.
	Findings []GateFinding `json:"findings,omitempty"`
}

// MaxGateFindings bounds the findings of one check.
const MaxGateFindings = 20

// GateFinding is one thing that a check has found. Nothing in it is the guest's text but
// the path of an artifact that came out, and what a validator chose to say of it.
type GateFinding struct {
	// Part is where: "stdout", "stderr", "compile.stdout", "compile.stderr", "results[0]",
	// "artifact", "name" (of an artifact), "output" (all of it).
	Part    string     `json:"part"`
	Path    string     `json:"path,omitempty"` // of an artifact
	What    string     `json:"what"`
	Line    int64      `json:"line,omitempty"` // from 1
	Outcome GateAction `json:"outcome"`        // what became of the part for it
}

// GateContext is output cut for a model's context.
type GateContext struct {
	Stdout GateExcerpt `json:"stdout"`
	Stderr GateExcerpt `json:"stderr"`
}

// GateExcerpt is the beginning and the end of an output, in Text, with a line between them
// that says what was left out and where the whole is.
type GateExcerpt struct {
	Text string `json:"text"`
	// LeftOutFrom and LeftOutBytes say which bytes of the result's text are not in Text.
	LeftOutFrom  int64 `json:"left_out_from,omitempty"`
	LeftOutBytes int64 `json:"left_out_bytes,omitempty"`
}

// CodeWithheld is of what the output gate has kept back.
const CodeWithheld = "withheld"
