package sandbox

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Caps on what one request may carry. They bound the host's memory, not the
// sandbox; large files travel as streams instead.
const (
	MaxCodeBytes    = 16 << 20
	MaxStdinBytes   = 64 << 20
	MaxFiles        = 10_000
	MaxArgs         = 4096
	MaxArgBytes     = 128 << 10
	MaxEnv          = 1024
	MaxPatterns     = 256
	MaxMetadata     = 64
	MaxMetadataSize = 4096
	MaxPathBytes    = 1024
	MaxImports      = 1000
	MaxImportBytes  = 100
)

// Spec asks for one run: one program in one fresh sandbox.
//
// The program is Code, or the file named Entrypoint among Files. The zero value of
// every other field is the default.
type Spec struct {
	// Profile names one of the operator's: what it fixes the request can narrow, and not widen.
	Profile    string            `json:"profile,omitempty" zero:"refused"`
	Language   string            `json:"language,omitempty"`
	Code       string            `json:"code,omitempty"`
	Entrypoint string            `json:"entrypoint,omitempty"`
	Files      []File            `json:"files,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Stdin      string            `json:"stdin,omitempty"`
	Limits     Limits            `json:"limits,omitzero"`
	Artifacts  []string          `json:"artifacts,omitempty"`                // globs, relative to the working directory
	Template   string            `json:"template,omitempty" zero:"refused"`  // default "host"
	Driver     string            `json:"driver,omitempty" zero:"refused"`    // default "auto"
	Isolation  string            `json:"isolation,omitempty" zero:"refused"` // the least level; default "namespace", or what the driver named has
	Require    []string          `json:"require,omitempty"`                  // features that must be enforced
	Network    Network           `json:"network,omitzero"`                   // default none
	// Packages are shown to the program, read-only, from the indexes that the operator names.
	Packages Packages `json:"packages,omitzero"`
	// Warm asks for an interpreter that has these modules loaded already. A
	// server that has none makes a pool of them, and this run waits for it.
	// Cold asks for an interpreter that is started for this run, and a program
	// that is compiled for it.
	Warm []string `json:"warm,omitempty"`
	Cold bool     `json:"cold,omitempty"`
	// Scan asks for a look at the program before it runs; what is seen is in the result's
	// findings and changes nothing else.
	Scan bool `json:"scan,omitempty"`
	// OutputBase64 asks for the exact bytes of the output as well.
	OutputBase64 bool              `json:"output_base64,omitempty"`
	Mounts       []Mount           `json:"-"` // host directories; never from a request
	Metadata     map[string]string `json:"metadata,omitempty"`
	// AllowedImports are the top-level modules that the program may import,
	// besides its own files and what the interpreter loads for itself; nil
	// means all, an empty list none. It is advice that the language's harness
	// enforces, and no part of the isolation. Only some languages have it.
	AllowedImports []string `json:"allowed_imports,omitzero"`
	// Gate says how the output is checked before anybody has it; nil: it is not, unless
	// a server's operator has it checked.
	Gate *Gate `json:"gate,omitempty"`
}

// File is one file that goes into the sandbox. Path is relative to the working
// directory. Content is text; ContentBase64 is bytes; only one may be set.
type File struct {
	Path          string `json:"path"`
	Content       string `json:"content,omitempty"`
	ContentBase64 string `json:"content_base64,omitempty"`
	Executable    bool   `json:"executable,omitempty"`
}

// Bytes returns the file's content.
func (f File) Bytes() ([]byte, error) {
	if f.ContentBase64 == "" {
		return []byte(f.Content), nil
	}
	b, err := base64.StdEncoding.DecodeString(f.ContentBase64)
	if err != nil {
		return nil, &Error{Code: CodeSpecInvalid, Message: "content_base64 is not base64", Err: err}
	}
	return b, nil
}

// Names that mean "the default" in a Spec.
const (
	TemplateHost = "host"
	DriverAuto   = "auto"
	NetworkNone  = "none"
)

// NetworkAsk is a network in which nothing can be reached either, and the names that programs
// try are in the result.
const NetworkAsk = "ask"

// User and directories that a program finds in every sandbox.
const (
	User = "user"
	UID  = 1000
	GID  = 1000
	Home = "/home/user"
)

// WithDefaults returns s with the defaults filled in, its limits included.
func (s Spec) WithDefaults() Spec {
	s.Limits = s.Limits.WithDefaults()
	s.Template = cmp.Or(s.Template, TemplateHost)
	s.Driver = cmp.Or(s.Driver, DriverAuto)
	if n, err := s.Network.Canonical(); err == nil { // else Validate says why not
		s.Network = n
	}
	return s
}

// Validate checks everything that can be known without a host, but for files that
// take the place of others: the program's own file decides on that, too (Layout).
// Each error names its field.
func (s Spec) Validate() error {
	checks := []func() error{
		s.Limits.Validate, s.validateProgram, s.validateFiles, s.validateArgs,
		s.validateEnv, s.validateArtifacts, s.validateChoices, s.validateMounts, s.validatePackages, s.validateWarm, s.validateImports, s.Gate.Validate,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) validateProgram() error {
	switch {
	case s.Code == "" && s.Entrypoint == "":
		return specError("code", "a run needs code, or files with an entrypoint")
	case s.Code != "" && s.Entrypoint != "":
		return specError("entrypoint", "give code or an entrypoint, not both")
	case len(s.Code) > MaxCodeBytes:
		return tooLarge("code", int64(len(s.Code)), MaxCodeBytes)
	case len(s.Stdin) > MaxStdinBytes:
		return tooLarge("stdin", int64(len(s.Stdin)), MaxStdinBytes)
	case s.Entrypoint != "":
		return CheckGuestPath("entrypoint", s.Entrypoint)
	}
	return nil
}

func (s Spec) validateFiles() error {
	if len(s.Files) > MaxFiles {
		return tooLarge("files", int64(len(s.Files)), MaxFiles)
	}
	for i, f := range s.Files {
		field := fmt.Sprintf("files[%d]", i)
		if err := CheckGuestPath(field+".path", f.Path); err != nil {
			return err
		}
		if f.Content != "" && f.ContentBase64 != "" {
			return specError(field, "give content or content_base64, not both")
		}
		if _, err := f.Bytes(); err != nil {
			return AsError(err).WithField(field + ".content_base64")
		}
	}
	return nil
}

func (s Spec) validateArgs() error {
	if len(s.Args) > MaxArgs {
		return tooLarge("args", int64(len(s.Args)), MaxArgs)
	}
	for i, a := range s.Args {
		field := fmt.Sprintf("args[%d]", i)
		if strings.IndexByte(a, 0) >= 0 {
			return specError(field, "contains a NUL byte")
		}
		if len(a) > MaxArgBytes {
			return tooLarge(field, int64(len(a)), MaxArgBytes)
		}
	}
	return nil
}

func (s Spec) validateEnv() error {
	if len(s.Env) > MaxEnv {
		return tooLarge("env", int64(len(s.Env)), MaxEnv)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		field := "env." + SafeText(k, 60)
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00"):
			return specError(field, "a variable's name must not be empty or contain = or NUL")
		case strings.IndexByte(s.Env[k], 0) >= 0:
			return specError(field, "the value contains a NUL byte")
		case len(k)+len(s.Env[k]) > MaxArgBytes:
			return tooLarge(field, int64(len(k)+len(s.Env[k])), MaxArgBytes)
		}
	}
	return nil
}

func (s Spec) validateArtifacts() error {
	if len(s.Artifacts) > MaxPatterns {
		return tooLarge("artifacts", int64(len(s.Artifacts)), MaxPatterns)
	}
	for i, p := range s.Artifacts {
		field := fmt.Sprintf("artifacts[%d]", i)
		if err := CheckGuestPath(field, p); err != nil {
			return err
		}
		if _, err := path.Match(p, "x"); err != nil {
			return specError(field, fmt.Sprintf(`"%s" is not a valid pattern`, SafeText(p, 80))).
				WithHint(`a [ needs its ]; write \[ for the character itself`)
		}
	}
	return nil
}

func (s Spec) validateChoices() error {
	if err := validateLevel(s.Isolation); err != nil {
		return err
	}
	for i, r := range s.Require {
		if !KnownFeature(r) {
			return &Error{
				Code: CodeFeatureUnknown, Field: fmt.Sprintf("require[%d]", i),
				Message: fmt.Sprintf("no feature \"%s\"", SafeText(r, 60)),
				Hint:    "the features are " + strings.Join(featureNames(), ", "),
			}
		}
	}
	if _, err := s.Network.Canonical(); err != nil {
		return err
	}
	if len(s.Metadata) > MaxMetadata {
		return tooLarge("metadata", int64(len(s.Metadata)), MaxMetadata)
	}
	for k, v := range s.Metadata {
		if k == "" {
			return specError("metadata", "a name in it is empty")
		}
		if len(k)+len(v) > MaxMetadataSize {
			return tooLarge("metadata."+SafeText(k, 60), int64(len(k)+len(v)), MaxMetadataSize)
		}
	}
	return nil
}

// MaxWarm bounds how many modules a warm interpreter may load.
const MaxWarm = 32

func (s Spec) validateWarm() error {
	if s.Cold && len(s.Warm) > 0 {
		return specError("cold", "ask for a warm start or a cold one, not both")
	}
	return CheckModules("warm", s.Warm)
}

// CheckModules says whether names may be names of modules to load. The field
// goes into the error.
func CheckModules(field string, names []string) error {
	if len(names) > MaxWarm {
		return tooLarge(field, int64(len(names)), MaxWarm)
	}
	for i, name := range names {
		for part := range strings.SplitSeq(name, ".") {
			if !isName(part) {
				return specError(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("\"%s\" is not a module's name", SafeText(name, 60)))
			}
		}
	}
	return nil
}

func isName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

func (s Spec) validateImports() error {
	if len(s.AllowedImports) > MaxImports {
		return tooLarge("allowed_imports", int64(len(s.AllowedImports)), MaxImports)
	}
	for i, name := range s.AllowedImports {
		field := fmt.Sprintf("allowed_imports[%d]", i)
		if len(name) > MaxImportBytes {
			return tooLarge(field, int64(len(name)), MaxImportBytes)
		}
		if !isModuleName(name) {
			top, _, _ := strings.Cut(name, ".")
			err := specError(field, fmt.Sprintf(`"%s" is not the name of a top-level module`, SafeText(name, 60)))
			if isModuleName(top) {
				return err.WithHint("write " + top + ": it stands for everything in it")
			}
			return err.WithHint("write names such as numpy or xml")
		}
	}
	return nil
}

// isModuleName says whether a name may stand in a list of modules: letters of
// any script, digits and _.
func isModuleName(name string) bool {
	for _, r := range name {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != "" && utf8.ValidString(name)
}

func featureNames() []string {
	names := make([]string, len(features))
	for i, f := range features {
		names[i] = f.Name
	}
	return names
}

// CheckGuestPath says whether p may name a file below the working directory:
// relative, clean, valid UTF-8 and printable, without "..", a trailing slash
// or doubled slashes. The field goes into the error.
func CheckGuestPath(field, p string) error {
	reason := guestPathFault(p)
	if reason == "" {
		return nil
	}
	return &Error{
		Code: CodePathInvalid, Field: field,
		Message: fmt.Sprintf("\"%s\" %s", SafeText(p, 80), reason),
		Hint:    "paths are relative to " + Home + ", like data/table.csv",
	}
}

func guestPathFault(p string) string {
	switch {
	case p == "":
		return "is empty"
	case len(p) > MaxPathBytes:
		return fmt.Sprintf("is longer than %d bytes", MaxPathBytes)
	case !utf8.ValidString(p):
		return "is not valid UTF-8"
	case strings.IndexByte(p, 0) >= 0:
		return "contains a NUL byte"
	case path.IsAbs(p):
		return "is absolute"
	case hasName(p, ".."):
		return `contains ".."`
	case path.Clean(p) != p || p == ".":
		return "is not in its shortest form"
	case SafeText(p, MaxPathBytes) != p:
		return "contains characters that cannot be printed"
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > 255 {
			return "has a name longer than 255 bytes"
		}
	}
	return ""
}

// hasName says whether one of a path's names is that one.
func hasName(p, name string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == name {
			return true
		}
	}
	return false
}

func specError(field, message string) *Error {
	return &Error{Code: CodeSpecInvalid, Field: field, Message: message}
}

func tooLarge(field string, got, limit int64) *Error {
	return &Error{Code: CodeTooLarge, Field: field, Message: fmt.Sprintf("%d is more than %d", got, limit)}
}
