package scan

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

//go:embed pinfold_scan.py
var pythonProgram []byte

// maxPythonAnswer bounds what the program may print.
const maxPythonAnswer = 8 << 20

// pythonAnswer is what the program that reads Python prints.
type pythonAnswer struct {
	Facts []pythonFact `json:"facts"`
	Cut   bool         `json:"cut"`
	Error string       `json:"error"`
}

type pythonFact struct {
	Kind   string               `json:"k"`
	Line   int                  `json:"l"`
	Column int                  `json:"c"`
	Name   string               `json:"n"`
	Args   []pythonArg          `json:"a"`
	Words  map[string]pythonArg `json:"w"`
	Flags  []string             `json:"f"`
}

type pythonArg struct {
	Text   string   `json:"t"`
	Part   string   `json:"p"`
	Words  []string `json:"w"`
	Calls  []string `json:"c"`
	Number float64  `json:"v"`
}

// readPython has the source read inside a sandbox. What comes back is the guest's word:
// it can add or leave out facts, and no more.
func (p *program) readPython(ctx context.Context, run RunPython) error {
	out, err := run(ctx, pythonProgram, p.source.Text)
	var why Unread
	if errors.As(err, &why) {
		p.unread = string(why)
		return nil
	}
	if err != nil {
		return err
	}
	answer, err := decodePython(out)
	if err != nil {
		p.unread = "its reader ended without an answer"
		return nil //nolint:nilerr // hostile source can do that to its reader; the report says it
	}
	if answer.Error != "" {
		p.unread = answer.Error
		return nil
	}
	p.full = p.full || answer.Cut
	for _, f := range answer.Facts {
		p.add(f.fact(len(p.lines)))
	}
	return nil
}

func decodePython(out []byte) (*pythonAnswer, error) {
	if len(out) > maxPythonAnswer {
		return nil, fmt.Errorf("%d bytes", len(out))
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	var a pythonAnswer
	if err := d.Decode(&a); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(out[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes too many", len(rest))
	}
	return &a, nil
}

var pythonKinds = map[string]kind{
	"import": kindImport, "call": kindCall, "set": kindSet, "name": kindName, "text": kindText,
	"repeat": kindRepeat, "number": kindNumber, "endless": kindEndless, "hidden": kindHidden,
}

// fact takes over what is plausible.
func (f pythonFact) fact(lines int) fact {
	out := fact{kind: pythonKinds[f.Kind], name: f.Name}
	if f.Line >= 1 && f.Line <= lines {
		out.line, out.column = f.Line, min(max(f.Column, 0), MaxSource)
	}
	for _, a := range f.Args {
		out.args = append(out.args, arg(a))
	}
	if len(f.Words) > 0 {
		out.keywords = map[string]arg{}
	}
	for k, a := range f.Words {
		out.keywords[k] = arg(a)
	}
	out.grows = strings.Join(f.Flags, "") == "grows"
	return out
}
