package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"pinfold/sandbox"
)

const (
	// MaxFile is the size in bytes of the largest file that is read.
	MaxFile  = 1 << 20
	maxDepth = 16
)

// position is a place in a file, both counted from 1.
type position struct{ line, column int }

// Load reads a file over the defaults. It does not call Validate: the command
// line may still change what the file says. Errors have code config_invalid
// and name the file, the line and the column. They are joined; what could be read
// comes with those about keys and values.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// read reads at most MaxFile bytes of a regular file. It does not wait for
// what is not one: a pipe could keep it forever.
func read(path string) ([]byte, error) {
	name := sandbox.SafeText(path, maxShown)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		e := invalid("", "cannot read the configuration: %s: %s", name, reason(err))
		e.Err = err
		if errors.Is(err, os.ErrNotExist) {
			e.Hint = "name a file that is there"
		}
		return nil, e
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, invalid("", "cannot read the configuration: %s: %s", name, reason(err))
	case !info.Mode().IsRegular():
		return nil, invalid("", "the configuration is not a file: %s", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, invalid("", "cannot read the configuration: %s: %s", name, reason(err))
	}
	if len(data) > MaxFile {
		return nil, invalid("", "the configuration is larger than %s: %s", sandbox.FormatSize(MaxFile), name)
	}
	return data, nil
}

// reason is the system's word for an error, without the path that the message
// has already.
func reason(err error) string {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return sandbox.SafeText(err.Error(), maxShown)
}

// Parse is Load for a text that was read already. The name is for messages.
func Parse(name string, data []byte) (*Config, error) {
	d := &decoder{name: sandbox.SafeText(name, maxShown), where: map[string]position{}}
	c := Default()
	root, err := d.document(data)
	if err != nil {
		return nil, err
	}
	c.where, c.name = d.where, d.name
	if root == nil {
		return c, nil
	}
	return c, d.root(root, c)
}

// document returns the root of the one document in the text, nil when there is
// nothing but comments.
func (d *decoder) document(data []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, invalid("", "%s: %s", d.name, sandbox.SafeText(err.Error(), maxShown))
	}
	var first, second yaml.Node
	if err := loader.Load(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, d.syntax(err)
	}
	if err := loader.Load(&second); err == nil {
		return nil, d.errorAt(&second, "", "a second document begins here; only one is read")
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntax(err)
	}
	if first.Kind != yaml.DocumentNode || len(first.Content) != 1 {
		return nil, nil
	}
	return first.Content[0], nil
}

func (d *decoder) syntax(err error) error {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		return invalid("", "%s: is not YAML: %s", d.name, sandbox.SafeText(err.Error(), maxShown))
	}
	where := d.name
	if at.Mark.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", d.name, at.Mark.Line, max(1, at.Mark.Column))
	}
	message := sandbox.SafeText(at.Message, maxShown)
	e := invalid("", "%s: is not YAML: %s", where, message)
	if strings.Contains(message, "cannot start any token") {
		e.Hint = "indent with spaces, not with tabs; quote a text that begins with @, * or another sign: \"@NAME\""
	}
	return e
}

const maxShown = 200 // runes of foreign text in a message

// invalid is an error about a configuration.
func invalid(field, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}
