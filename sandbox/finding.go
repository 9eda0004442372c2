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

// ScanRequest asks for a look at a program. Nothing of it is run.
type ScanRequest struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	File     string `json:"file,omitempty"` // a name for the findings
}

// ScanReport is what was seen in a program.
type ScanReport struct {
	File     string    `json:"file,omitempty"`
	Language string    `json:"language"`
	Findings []Finding `json:"findings"`
	// Worst is the highest severity among the findings; empty without any.
	Worst Severity `json:"worst,omitempty"`
	// Unread says why the program could not be read as its language is. What its words
	// alone tell is among the findings all the same, unless it is no text.
	Unread string `json:"unread,omitempty"`
	// Truncated says that there was more than is said, Missed that a rule may have found
	// something of which nothing is said at all.
	Truncated bool `json:"truncated,omitempty"`
	Missed    bool `json:"missed,omitempty"`
}
