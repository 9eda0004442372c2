package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"pinfold/sandbox"
)

// maxInputs bounds the files beside a declaration together, in bytes.
const maxInputs = 4 << 30

// input is a file that a build takes in.
type input struct {
	field string // of the declaration
	path  string // in the template; of a package, its file name
	exec  bool
	size  int64
	sum   string // of its content, SHA-256 in hexadecimal
	open  func() (io.ReadCloser, error)
}

// inputs are all of a declaration.
type inputs struct {
	root                     *os.Root // of the declaration's directory; nil: there is none
	files, debs, wheels, npm []input
	bytes                    int64
}

// gather looks at every file that a declaration names. dir is where it lies; empty: it
// may name none. Every byte is read, for its hash. The caller closes what is returned.
func gather(d *Declaration, dir string) (*inputs, error) {
	in := &inputs{}
	if dir != "" {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: "cannot open the declaration's directory: " + err.Error(), Err: err}
		}
		in.root = root
	}
	if err := in.all(d); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (in *inputs) close() {
	if in.root != nil {
		_ = in.root.Close()
	}
}

func (in *inputs) all(d *Declaration) error {
	for _, kind := range []struct {
		field string
		names []string
		file  string
		into  *[]input
	}{
		{"packages.debian", d.Packages.Debian, debianFile, &in.debs}, {"packages.python", d.Packages.Python, pythonFile, &in.wheels}, {"packages.npm", d.Packages.Npm, npmFile, &in.npm},
	} {
		for i, name := range kind.names {
			if !strings.HasSuffix(name, kind.file) {
				continue // a package of an index
			}
			field := fmt.Sprintf("%s[%d]", kind.field, i)
			one, err := in.local(field, name)
			if err != nil {
				return err
			}
			one.path = path.Base(name)
			*kind.into = append(*kind.into, one)
		}
	}
	for i, f := range d.Files {
		if err := in.file(fmt.Sprintf("files[%d]", i), f); err != nil {
			return err
		}
	}
	slices.SortFunc(in.files, func(a, b input) int { return strings.Compare(a.path, b.path) })
	for i := 1; i < len(in.files); i++ {
		if a, b := in.files[i-1], in.files[i]; within(b.path, a.path) {
			return invalid(b.field, fmt.Sprintf("\"%s\" is or lies below \"%s\", which %s is already", sandbox.SafeText(b.path, 100), sandbox.SafeText(a.path, 100), a.field))
		}
	}
	return nil
}

// file takes in what a file of the declaration is: one file, or a directory's.
func (in *inputs) file(field string, f PlacedFile) error {
	if f.From == "" {
		content := f.ContentBase64
		if f.Content != nil {
			content = []byte(*f.Content)
		}
		sum := sha256.Sum256(content)
		in.files = append(in.files, input{
			field: field, path: f.Path, exec: f.Mode == "0755", size: int64(len(content)), sum: hex.EncodeToString(sum[:]),
			open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		})
		return nil
	}
	if in.root == nil {
		return noDirectory(field + ".from")
	}
	info, err := in.root.Stat(f.From)
	if err != nil {
		return missing(field+".from", f.From, err)
	}
	if info.IsDir() {
		return in.directory(field, f)
	}
	one, err := in.local(field+".from", f.From)
	if err != nil {
		return err
	}
	one.path = f.Path
	if f.Mode != "" {
		one.exec = f.Mode == "0755"
	}
	in.files = append(in.files, one)
	return nil
}

// directory takes in the regular files of a directory. Links and the like are refused: a
// template that lacks something of what was named would be a surprise.
func (in *inputs) directory(field string, f PlacedFile) error {
	if f.Mode != "" {
		return invalid(field+".mode", "is a file's, and \""+sandbox.SafeText(f.From, 100)+"\" is a directory").WithHint("leave it out: files in it that are programs stay programs")
	}
	return fs.WalkDir(in.root.FS(), f.From, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return missing(field+".from", name, err)
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return invalid(field+".from", fmt.Sprintf("\"%s\" is neither a file nor a directory", sandbox.SafeText(name, 100))).WithHint("put a file in its place, or make links with run:")
		case len(in.files) >= maxFiles:
			return invalid(field+".from", fmt.Sprintf("there are more than %d files", maxFiles))
		}
		one, err := in.local(field+".from", name)
		if err != nil {
			return err
		}
		below := name
		if f.From != "." { // below which all names are as they are, also those that begin with a point
			below = strings.TrimPrefix(name, f.From+"/")
		}
		if one.path = path.Join(f.Path, below); !canStand(one.path) {
			return invalid(field+".from", fmt.Sprintf("\"%s\" is a name that no file of a layer can have", sandbox.SafeText(name, 100))).WithHint("rename it")
		}
		in.files = append(in.files, one)
		return nil
	})
}

// canStand says whether a layer can have a file of that name. One that begins with .wh. would
// hide another file instead, and what is no text has no hash of its own (key.go).
func canStand(name string) bool {
	return !strings.Contains("/"+name, "/.wh.") && utf8.ValidString(name)
}

// local looks at one file.
func (in *inputs) local(field, name string) (input, error) {
	if in.root == nil {
		return input{}, noDirectory(field)
	}
	one := input{field: field, open: func() (io.ReadCloser, error) { return openRegular(in.root, name) }}
	f, err := openRegular(in.root, name)
	if err != nil {
		return one, missing(field, name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return one, missing(field, name, err)
	}
	if in.bytes += info.Size(); in.bytes > maxInputs {
		return one, (&sandbox.Error{Code: sandbox.CodeTooLarge, Field: field, Message: "the files of the declaration are too large together"}).WithHint("make a template of the larger part first, and take it as the base")
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, info.Size()+1))
	if err == nil && n != info.Size() {
		err = errors.New("it changes while it is read")
	}
	if err != nil {
		return one, missing(field, name, err)
	}
	one.size, one.sum, one.exec = n, hex.EncodeToString(h.Sum(nil)), info.Mode().Perm()&0o100 != 0
	return one, nil
}

// openRegular opens a regular file, and does not wait for the other end of a pipe. No
// link leads out of the directory.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// send copies an input's content, which is what it was when it was looked at.
func (i input) send(to io.Writer) error {
	r, err := i.open()
	if err != nil {
		return missing(i.field, i.path, err)
	}
	defer r.Close() //nolint:errcheck // only read
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(to, h), r, i.size); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != i.sum {
		return missing(i.field, i.path, errors.New("it was changed while the template was built"))
	}
	return nil
}

func missing(field, name string, err error) error {
	why := err.Error()
	if e := new(fs.PathError); errors.As(err, &e) {
		why = e.Err.Error()
	}
	return (&sandbox.Error{
		Code: sandbox.CodeFileNotFound, Field: field, Err: err, Message: fmt.Sprintf("cannot read \"%s\": %s", sandbox.SafeText(name, 100), sandbox.SafeText(why, 200)),
	}).WithHint("paths are relative to the declaration's directory and stay in it")
}

func noDirectory(field string) error {
	return invalid(field, "names a file beside the declaration, and there is nothing beside it").
		WithHint("a declaration in a file has neighbours; one that is read from stdin or sent to a server has content or content_base64 only")
}
