package sandbox

// Severity says how much a finding of a scan matters.
type Severity string

// Severities, from the least. What honest programs do all day is at most a notice.
const (
	SeverityInfo    Severity = "info"
	SeverityNotice  Severity = "notice"
	SeverityWarning Severity = "warning"
	SeverityDanger  Severity = "danger"
)

// Severities are all of them, from the least.
func Severities() []Severity {
	return []Severity{SeverityInfo, SeverityNotice, SeverityWarning, SeverityDanger}
}

// Finding is one thing that was seen in a program before it ran. It is advice: what
// holds the program is the sandbox.
type Finding struct {
	Rule     string   `json:"rule"` // "process-start"
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line"`   // from 1; 0 where it is unknown
	Column   int      `json:"column"` // in bytes, from 1; 0 where it is unknown
	// Text is the line that it is about, cut and with control characters as escapes.
	Text string `json:"text"`
}
