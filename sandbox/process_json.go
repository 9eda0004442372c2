package sandbox

import "encoding/json"

// plainProcess is a Process without its methods.
type plainProcess Process

// MarshalJSON tells an output that is empty from one that is not there.
func (p Process) MarshalJSON() ([]byte, error) {
	if !p.HasOutput {
		return json.Marshal(plainProcess(p))
	}
	return json.Marshal(struct {
		plainProcess
		Stdout          string `json:"stdout"`
		Stderr          string `json:"stderr"`
		StdoutTruncated bool   `json:"stdout_truncated"`
		StderrTruncated bool   `json:"stderr_truncated"`
	}{plainProcess(p), p.Stdout, p.Stderr, p.StdoutTruncated, p.StderrTruncated})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Process) UnmarshalJSON(b []byte) error {
	read := struct {
		*plainProcess
		StdoutTruncated *bool `json:"stdout_truncated"`
	}{plainProcess: (*plainProcess)(p)}
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	if read.StdoutTruncated != nil {
		p.HasOutput, p.StdoutTruncated = true, *read.StdoutTruncated
	}
	return nil
}
