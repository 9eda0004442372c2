package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits bound a run. In Go a zero field means the default (see
// DefaultLimits), never infinity; in JSON an absent field means the default
// and an explicit zero is refused.
type Limits struct {
	WallTimeMS    int64   `json:"wall_time_ms,omitempty"`    // milliseconds from start to end
	CPUTimeMS     int64   `json:"cpu_time_ms,omitempty"`     // milliseconds of CPU, whole process tree
	MemoryBytes   int64   `json:"memory_bytes,omitempty"`    // whole process tree, files not included
	CPUs          float64 `json:"cpus,omitempty"`            // CPUs at once; 0.5 is half of one
	Processes     int64   `json:"processes,omitempty"`       // processes and threads at once
	DiskBytes     int64   `json:"disk_bytes,omitempty"`      // bytes in all writable places together
	Inodes        int64   `json:"inodes,omitempty"`          // files and directories in all writable places
	OutputBytes   int64   `json:"output_bytes,omitempty"`    // bytes kept of stdout, and of stderr
	OpenFiles     int64   `json:"open_files,omitempty"`      // descriptors of each process
	FileSizeBytes int64   `json:"file_size_bytes,omitempty"` // bytes of each file; default disk_bytes
}

// DefaultLimits returns the limits of a run that asks for none.
func DefaultLimits() Limits {
	return Limits{
		WallTimeMS:    30_000,
		CPUTimeMS:     30_000,
		MemoryBytes:   256 << 20,
		CPUs:          1,
		Processes:     64,
		DiskBytes:     256 << 20,
		Inodes:        16_384,
		OutputBytes:   1 << 20,
		OpenFiles:     256,
		FileSizeBytes: 256 << 20,
	}
}

// LimitInfo describes one whole-number limit: its JSON field, unit, smallest
// and largest accepted value and the cause that names it.
type LimitInfo struct {
	Field    string
	Flag     string // the command-line flag
	Unit     Unit
	Min, Max int64
	Cause    CauseKind
	Meaning  string
}

// Unit is the unit in which a limit counts.
type Unit string

// The units of limits.
const (
	UnitMilliseconds Unit = "ms"
	UnitBytes        Unit = "bytes"
	UnitCount        Unit = "count"
)

const (
	maxTimeMS = 7 * 24 * 3600 * 1000 // a week
	maxBytes  = 1 << 42              // 4 TiB
)

// limitTable is the one place that knows the range of every limit.
var limitTable = []LimitInfo{
	{"wall_time_ms", "timeout", UnitMilliseconds, 1, maxTimeMS, CauseWallTime, "time from start to end"},
	{"cpu_time_ms", "cpu-time", UnitMilliseconds, 1, maxTimeMS, CauseCPUTime, "CPU time of all processes together"},
	{"memory_bytes", "memory", UnitBytes, 8 << 20, maxBytes, CauseMemory, "memory of all processes together"},
	{"processes", "processes", UnitCount, 1, 1 << 20, CauseProcesses, "processes and threads at once"},
	{"disk_bytes", "disk", UnitBytes, 64 << 10, maxBytes, CauseDisk, "bytes in all writable places, which lie in memory but are counted apart"},
	{"inodes", "inodes", UnitCount, 16, 1 << 28, CauseInodes, "files and directories in all writable places"},
	{"output_bytes", "output-limit", UnitBytes, 1, 1 << 30, CauseOutput, "bytes kept of each output stream"},
	{"open_files", "open-files", UnitCount, 8, 1 << 20, CauseOpenFiles, "descriptors of each process"},
	{"file_size_bytes", "file-size", UnitBytes, 4 << 10, maxBytes, CauseFileSize, "bytes of each file"},
}

// MinCPUs and MaxCPUs bound limits.cpus.
const (
	MinCPUs = 0.01
	MaxCPUs = 4096
)

// LimitTable returns the description of every whole-number limit, in the order
// of the Limits fields.
func LimitTable() []LimitInfo { return append([]LimitInfo(nil), limitTable...) }

// field returns a pointer to the limit with that JSON name.
func (l *Limits) field(name string) *int64 {
	switch name {
	case "wall_time_ms":
		return &l.WallTimeMS
	case "cpu_time_ms":
		return &l.CPUTimeMS
	case "memory_bytes":
		return &l.MemoryBytes
	case "processes":
		return &l.Processes
	case "disk_bytes":
		return &l.DiskBytes
	case "inodes":
		return &l.Inodes
	case "output_bytes":
		return &l.OutputBytes
	case "open_files":
		return &l.OpenFiles
	case "file_size_bytes":
		return &l.FileSizeBytes
	}
	return nil
}

// Get returns the value of the limit with that JSON name, 0 if there is none.
func (l Limits) Get(name string) int64 {
	if p := l.field(name); p != nil {
		return *p
	}
	return 0
}

// Set sets the limit with that JSON name. It reports whether there is one.
func (l *Limits) Set(name string, v int64) bool {
	p := l.field(name)
	if p == nil {
		return false
	}
	*p = v
	return true
}

// WithDefaults returns l with every zero field replaced by its default. A
// file-size limit that was not given follows disk_bytes.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.FileSizeBytes = cmp.Or(l.FileSizeBytes, l.DiskBytes)
	for _, info := range limitTable {
		if p := l.field(info.Field); *p == 0 {
			*p = d.Get(info.Field)
		}
	}
	l.CPUs = cmp.Or(l.CPUs, d.CPUs)
	return l
}

// Validate checks every field that is set. The error names the field and the
// accepted range.
func (l Limits) Validate() error {
	for _, info := range limitTable {
		if v := l.Get(info.Field); v != 0 {
			if err := info.Check(v); err != nil {
				return err
			}
		}
	}
	if l.CPUs != 0 {
		return CheckCPUs(l.CPUs)
	}
	return nil
}

// Check says whether v is an acceptable value of this limit. Zero is not.
func (i LimitInfo) Check(v int64) error {
	if v >= i.Min && v <= i.Max {
		return nil
	}
	return (&Error{
		Code: CodeLimitInvalid,
		Message: fmt.Sprintf("%s is outside %s to %s",
			FormatQuantity(v, i.Unit), FormatQuantity(i.Min, i.Unit), FormatQuantity(i.Max, i.Unit)),
		Hint: defaultHint(FormatQuantity(DefaultLimits().Get(i.Field), i.Unit), v <= 0),
	}).WithField("limits." + i.Field)
}

// defaultHint says what happens without a limit, to who may have meant that.
func defaultHint(value string, notPositive bool) string {
	hint := "leave it out for the default of " + value
	if notPositive {
		hint += "; zero does not mean unlimited"
	}
	return hint
}

// CheckCPUs says whether v is an acceptable number of CPUs.
func CheckCPUs(v float64) error {
	if v >= MinCPUs && v <= MaxCPUs { // false for NaN
		return nil
	}
	return &Error{
		Code: CodeLimitInvalid, Field: "limits.cpus",
		Message: fmt.Sprintf("%v is outside %v to %v", v, MinCPUs, MaxCPUs),
		Hint:    defaultHint("1", v <= 0),
	}
}

// UnmarshalJSON decodes limits strictly: an explicit zero, a negative number,
// a fraction where a whole number belongs and an unknown name are errors that
// name the field.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		e := &Error{Code: CodeSpecInvalid, Field: "limits", Message: "must be an object", Err: err}
		return e.WithHint(fmt.Sprintf(`write "limits": {"memory_bytes": %d}`, DefaultLimits().MemoryBytes))
	}
	var out Limits
	for name, value := range raw {
		if err := out.setJSON(name, value); err != nil {
			return err
		}
	}
	*l = out
	return nil
}

func (l *Limits) setJSON(name string, value json.RawMessage) error {
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		return nil
	}
	if name == "cpus" {
		if err := json.Unmarshal(value, &l.CPUs); err != nil {
			return limitTypeError(name, value, "a number", exampleCPUs(value))
		}
		return CheckCPUs(l.CPUs)
	}
	for _, info := range limitTable {
		if info.Field != name {
			continue
		}
		v, ok := wholeNumber(value)
		if !ok {
			return limitTypeError(name, value, wholeNumbers[info.Unit], info.example(value))
		}
		*l.field(name) = v
		if err := info.Check(v); err != nil {
			hint := "write %s, or leave it out for that default"
			if v <= 0 {
				hint += "; zero does not mean unlimited"
			}
			return AsError(err).WithAdvice(Advise(hint, Set("limits."+name, DefaultLimits().Get(name))))
		}
		return nil
	}
	return &Error{
		Code: CodeSpecInvalid, Field: "limits." + SafeText(name, 60), Message: "no such limit",
		Hint: "the limits are " + strings.Join(limitNames(), ", "),
	}
}

// wholeNumber reads a whole number however it is written: 1e9 is one, too.
func wholeNumber(value json.RawMessage) (int64, bool) {
	var v int64
	if json.Unmarshal(value, &v) == nil {
		return v, true
	}
	var f float64
	if json.Unmarshal(value, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// wholeNumbers are what limits are in JSON.
var wholeNumbers = map[Unit]string{
	UnitMilliseconds: "a whole number of milliseconds", UnitBytes: "a whole number of bytes", UnitCount: "a whole number",
}

// limitTypeError names what was meant where that can be told.
func limitTypeError(name string, value json.RawMessage, want string, example any) error {
	return (&Error{
		Code: CodeLimitInvalid, Field: "limits." + name,
		Message: fmt.Sprintf("%s is not %s in range", SafeText(string(value), 40), want),
	}).WithAdvice(Advise("write %s", Set("limits."+name, example)))
}

// example is a value for a request that was given one of the wrong type: the one
// that was meant, as in "64MiB", or the default.
func (i LimitInfo) example(given json.RawMessage) int64 {
	meant := int64(-1)
	var text string
	var f float64
	switch {
	case json.Unmarshal(given, &f) == nil:
		meant = int64(min(math.Ceil(f), float64(i.Max)+1)) // more than that is no number for it
	case json.Unmarshal(given, &text) == nil:
		meant = i.parse(text)
	}
	if i.Check(meant) != nil {
		return DefaultLimits().Get(i.Field)
	}
	return meant
}

// parse reads a limit as people write it; -1 where it is none.
func (i LimitInfo) parse(text string) int64 {
	read := map[Unit]func(string) (int64, error){UnitMilliseconds: ParseTime, UnitBytes: ParseSize}[i.Unit]
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if read == nil {
		return -1
	}
	if n, err := read(text); err == nil {
		return n
	}
	return -1
}

func exampleCPUs(given json.RawMessage) float64 {
	var text string
	if json.Unmarshal(given, &text) == nil {
		if n, err := strconv.ParseFloat(text, 64); err == nil && CheckCPUs(n) == nil {
			return n
		}
	}
	return DefaultLimits().CPUs
}

func limitNames() []string {
	names := []string{"cpus"}
	for _, info := range limitTable {
		names = append(names, info.Field)
	}
	return names
}

// CPUQuota returns the microseconds of CPU that limits.cpus allows in each
// period of the given microseconds, at least 1000 (the kernel's smallest).
func (l Limits) CPUQuota(periodUS int64) int64 {
	return max(1000, int64(math.Round(l.CPUs*float64(periodUS))))
}
