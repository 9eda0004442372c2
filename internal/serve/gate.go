package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"pinfold/internal/gate"
	"pinfold/internal/language"
	"pinfold/internal/strictjson"
	"pinfold/sandbox"
)

// maxGateFile bounds the file of the operator's gate: its schemas, with white space.
const maxGateFile = 4 << 20

// readGate reads the operator's gate; without a name there is none. What is wrong with it is
// an error of code config_invalid that names the file and the field.
func readGate(name string) (*sandbox.Gate, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	g, err := parseGate(name)
	if err == nil {
		return g, nil
	}
	e := sandbox.AsError(err)
	where := sandbox.SafeText(name, 200)
	if e.Field != "" {
		where += ": " + e.Field
	}
	hint := e.Hint
	if hint == "" {
		hint = `it has the "gate" of a request, such as {"keys": "withhold"}`
	}
	return nil, &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: "gate.file", Message: fmt.Sprintf("%s: %s", where, e.Message), Hint: hint, Err: err}
}

func parseGate(name string) (*sandbox.Gate, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the operator names it
	if err != nil {
		var why *os.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("is not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxGateFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxGateFile {
		return nil, errors.New("is larger than " + sandbox.FormatSize(maxGateFile))
	}
	var g sandbox.Gate
	if err := strictjson.Decode(data, &g); err != nil {
		return nil, err
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	for i, v := range g.Validators {
		if _, err := language.Find(v.Language); err != nil {
			return nil, sandbox.AsError(err).WithField(fmt.Sprintf("gate.validators[%d].language", i))
		}
	}
	_, err = gate.New(g, nil) // its schemas can be used
	return &g, err
}
