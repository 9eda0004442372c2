package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Fingerprint is a hash that changes when anything changes that the template
// shows of the host: of each file below its binds it covers the name, kind, size
// and the times of its last change, but not the content, which would take
// minutes. No program can set the time of the last change (ctime) back.
//
// It looks at every file, which takes about a second for a /usr of 200,000. The
// error is ctx's, or the template's own.
func (t Template) Fingerprint(ctx context.Context, root fs.FS) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(t); err != nil {
		return sum, err
	}
	for _, b := range t.Binds {
		err := fs.WalkDir(root, strings.TrimPrefix(b.Source, "/"), func(name string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if d == nil || err != nil { // what cannot be read here cannot be read inside
				_, _ = fmt.Fprintf(h, "%q unreadable\n", name)
				return nil //nolint:nilerr // as the comment says
			}
			info, err := d.Info()
			describe(h, name, info, err)
			return nil
		})
		if err != nil {
			return sum, err
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// packages are where package managers write down what they have done. They
// touch one of these with every installation, upgrade and removal.
var packages = []string{
	"/etc/ld.so.cache",
	"/var/lib/dpkg/status",
	"/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite",
	"/lib/apk/db/installed",
	"/var/lib/pacman/local",
}

// Stamp is a quick look at what usually changes with a toolchain: the programs,
// which are absolute paths in the sandbox (other words are passed over), and the host's package managers. It costs a
// few microseconds.
func (t Template) Stamp(root fs.FS, programs []string) string {
	var b strings.Builder
	v := newView(root)
	for _, p := range programs { // host paths are shown under their own names
		if !path.IsAbs(p) {
			continue
		}
		if end, info, ok := v.resolve(p); ok && below(end, t.sources()) {
			describe(&b, end, info, nil)
		}
	}
	for _, p := range packages {
		if info, err := v.lstat(p); err == nil {
			describe(&b, p, info, nil)
		}
	}
	return b.String()
}

// describe writes a line about a file.
func describe(w io.Writer, name string, info fs.FileInfo, err error) {
	if err != nil {
		_, _ = fmt.Fprintf(w, "%q gone\n", name)
		return
	}
	inode, changed := identity(info)
	_, _ = fmt.Fprintf(w, "%q %v %d %d %d %d\n", name, info.Mode(), info.Size(), info.ModTime().UnixNano(), inode, changed)
}
