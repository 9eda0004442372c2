package packages

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pinfold/sandbox"
)

// readLock reads what an installer says that it installed: hostile text of bounded size.
// It is held against what was asked for.
func readLock(kind string, text []byte, asked []string) ([]string, error) {
	read := readReport
	if kind == sandbox.PackagesNPM {
		read = readNPMLock
	}
	all, err := read(text)
	if err != nil {
		return nil, err
	}
	for _, text := range asked {
		want, err := sandbox.ParsePackage(kind, text)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(p sandbox.Package) bool { return satisfies(kind, p, want) }) {
			return nil, fmt.Errorf("what was installed is not %s", text)
		}
	}
	var lock []string
	for _, p := range all {
		lock = append(lock, p.Text(kind))
	}
	slices.Sort(lock)
	return slices.Compact(lock), nil
}

// satisfies says whether a package that was installed is one that was asked for. What a
// version of Python's equals, pip decides: 13.9 is 13.9.0.
func satisfies(kind string, got, want sandbox.Package) bool {
	if got.Name != want.Name || kind == sandbox.PackagesNPM && got.Version != want.Version {
		return false
	}
	return len(want.Digests) == 0 || slices.ContainsFunc(got.Digests, func(d string) bool { return slices.Contains(want.Digests, d) })
}

// errLock is the error for what is no such text.
var errLock = errors.New("what the installer says of what it installed cannot be read")

// readReport reads pip's installation report.
func readReport(text []byte) (all []sandbox.Package, err error) {
	var r struct {
		Install []struct {
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
			Download struct {
				Archive struct {
					Hash   string            `json:"hash"`
					Hashes map[string]string `json:"hashes"`
				} `json:"archive_info"`
			} `json:"download_info"`
		} `json:"install"`
	}
	if json.Unmarshal(text, &r) != nil {
		return nil, errLock
	}
	for _, i := range r.Install {
		digest := i.Download.Archive.Hashes["sha256"]
		if digest == "" {
			digest, _ = strings.CutPrefix(i.Download.Archive.Hash, "sha256=")
		}
		p, err := sandbox.ParsePackage(sandbox.PackagesPython, i.Metadata.Name+"=="+i.Metadata.Version+" --hash=sha256:"+digest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errLock, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// readNPMLock reads the lock file that npm keeps of what it has installed.
func readNPMLock(text []byte) (all []sandbox.Package, err error) {
	var r struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			Bundled   bool   `json:"inBundle"` // in another package, whose digest it has
			Link      bool   `json:"link"`
			Name      string `json:"name"`
		} `json:"packages"`
	}
	if json.Unmarshal(text, &r) != nil {
		return nil, errLock
	}
	for at, i := range r.Packages {
		_, name, ok := cutLast(at, "node_modules/")
		if at == "" {
			continue
		}
		if i.Name != "" {
			name = i.Name // it is there under another
		}
		said := name + "@" + i.Version
		if !i.Bundled {
			said += " " + i.Integrity
		}
		p, err := sandbox.ParsePackage(sandbox.PackagesNPM, said)
		if !ok || i.Link || err != nil {
			return nil, fmt.Errorf("%w: %s has no version and no SHA-512 of its index", errLock, sandbox.SafeText(said, 100))
		}
		if !i.Bundled && len(p.Digests) == 0 {
			return nil, fmt.Errorf("the index gives no SHA-512 of %s", p.Text(sandbox.PackagesNPM))
		}
		all = append(all, p)
	}
	return all, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}
