package cli

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"pinfold/client"
	"pinfold/sandbox"
)

// remotePath is a path in a sandbox as the command line names it.
type remotePath struct{ id, path string }

// splitRemote splits SANDBOX:PATH. An empty path is the home directory.
func splitRemote(text string) (remotePath, bool) {
	id, name, ok := strings.Cut(text, ":")
	letters, isSandbox := strings.CutPrefix(id, "sbx_")
	if !ok || !isSandbox || letters == "" || strings.Trim(letters, idLetters) != "" {
		return remotePath{}, false
	}
	return remotePath{id, path.Clean(name)}, true
}

// listedPath is what ls was asked for: a path in a sandbox, or its home.
func (a *app) listedPath(text string) (remotePath, error) {
	at, ok := splitRemote(text)
	switch {
	case !ok && strings.HasPrefix(text, "sbx_"):
		at = remotePath{text, "."}
	case !ok:
		return at, usageError("\"%s\" is not SANDBOX:PATH", sandbox.SafeText(text, 80)).WithHint("pinfold ls SANDBOX:/tmp; pinfold ls alone lists the sandboxes")
	}
	return at, a.checkIDs("sbx", at.id)
}

// entriesAt lists a directory, or shows what else is at the path.
func entriesAt(ctx context.Context, box *client.Sandbox, name string, depth int) (sandbox.Listing[sandbox.FileInfo], error) {
	list, err := box.List(ctx, name, depth, sandbox.MaxFiles)
	if err == nil {
		return list, nil
	}
	switch sandbox.AsError(err).Code {
	case sandbox.CodePathInvalid, sandbox.CodeNotRegularFile: // it may be a file, or a link
		info, statErr := box.Stat(ctx, name)
		if statErr == nil && info.Type != sandbox.FileDir {
			return sandbox.Listing[sandbox.FileInfo]{Items: []sandbox.FileInfo{info}}, nil
		}
	}
	return list, err
}

func (a *app) listFiles(ctx context.Context, c *client.Client, at remotePath, f *lsFlags) error {
	list, err := entriesAt(ctx, c.Sandbox(at.id), at.path, f.depth)
	if err != nil {
		return err
	}
	if f.json {
		return a.writeJSON(struct {
			Files       []sandbox.FileInfo `json:"files"`
			More        bool               `json:"more"`
			Unprintable int                `json:"unprintable"`
		}{append([]sandbox.FileInfo{}, list.Items...), list.More, list.Unprintable})
	}
	t := newTable("PATH", "MODE", "SIZE", "CHANGED", "LINK")
	for _, i := range list.Items {
		t.row(i.Path, fileMode(i), fmt.Sprint(i.Size), i.MTime.Local().Format(time.DateTime), i.Target)
	}
	if err := a.writeTable(t, f.quiet); err != nil {
		return err
	}
	switch n := list.Unprintable; {
	case n == 1:
		a.say("1 file has a name that cannot be printed and was left out")
	case n > 1:
		a.say("%d files have names that cannot be printed and were left out", n)
	}
	if list.More {
		a.say("there are more files than the server lists at once; look into the directories below")
	}
	return nil
}

// fileMode is the mode as ls(1) writes it.
func fileMode(i sandbox.FileInfo) string {
	mode := fs.FileMode(i.Mode & 0o777)
	switch i.Type {
	case sandbox.FileDir:
		mode |= fs.ModeDir
	case sandbox.FileSymlink:
		mode |= fs.ModeSymlink
	case sandbox.FileOther:
		mode |= fs.ModeIrregular
	}
	return mode.String()
}
