package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

const cpLong = `Copy a file or a directory into a sandbox or out of it. One side is
SANDBOX:PATH, where PATH is absolute or relative to /home/user. - is stdin or
stdout. Into a directory that exists a copy goes under its own name, as cp -r
does it.

Only regular files and directories are copied. Links, devices, pipes, sockets and
names that cannot be printed are left out and counted, in both directions. One
exception: a link to a file inside the directory that is copied in arrives as
that file.`

const cpExamples = `  pinfold cp data.csv $box:
  pinfold cp src $box:work/src
  pinfold cp $box:report.pdf .
  tar c . | pinfold cp - $box:all.tar
  pinfold cp $box:/home/user/log.txt - | less`

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cp [flags] SRC DST",
		Short:   "Copy files into a sandbox or out of it",
		Long:    cpLong,
		Example: cpExamples,
		Args:    needArgs(2, 2, "a source and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, out := splitRemote(args[0])
			to, in := splitRemote(args[1])
			switch {
			case in && out:
				return usageError("only one of the two may be SANDBOX:PATH").WithHint("copy it by way of this machine: " + copyTwice(from, to))
			case in == out:
				return usageError("one of the two must be SANDBOX:PATH").WithHint(copyHint(args))
			case in:
				if err := a.checkIDs("sbx", to.id); err != nil {
					return err
				}
				return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
					box := c.Sandbox(to.id)
					size, err := a.copyIn(ctx, box, args[0], to.path, endsInDir(args[1]))
					return a.roomInSandbox(ctx, box, err, size)
				})
			}
			if err := a.checkIDs("sbx", from.id); err != nil {
				return err
			}
			defer catchBrokenPipe()()
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.copyOut(ctx, c.Sandbox(from.id), from.path, args[1])
			})
		},
	}
}

// copyHint is the command as it may have been meant: an id lacks its colon.
func copyHint(args []string) string {
	const general = "pinfold cp data.csv SANDBOX:data.csv"
	from, to := isID(args[0]), isID(args[1])
	switch {
	case from == to:
		return general
	case to:
		return pasteable(general, []string{"pinfold", "cp", args[0], args[1] + ":"})
	}
	return "pinfold cp " + args[0] + ":FILE DESTINATION"
}

// copyTwice copies a path of a sandbox to another, by way of a file here.
func copyTwice(from, to remotePath) string {
	const general = "pinfold cp SANDBOX:FILE FILE && pinfold cp FILE SANDBOX:FILE"
	name := path.Base(from.path)
	if name == "." || name == "/" {
		return general
	}
	first := pasteable("", []string{"pinfold", "cp", from.id + ":" + from.path, name})
	second := pasteable("", []string{"pinfold", "cp", name, to.id + ":" + to.path})
	if first == "" || second == "" {
		return general
	}
	return first + " && " + second
}

// endsInDir says that a destination was written as a directory.
func endsInDir(text string) bool { return strings.HasSuffix(text, "/") || strings.HasSuffix(text, ":") }

// copyIn copies into a sandbox, and says how large what it was to copy is, below zero
// where that is not known.
func (a *app) copyIn(ctx context.Context, box *client.Sandbox, from, to string, toDir bool) (size int64, err error) {
	size = -1
	if from == fromStdin {
		if toDir {
			return size, usageError("stdin needs a name inside").WithHint("pinfold cp - SANDBOX:data.bin")
		}
		return size, box.WriteFile(ctx, to, 0, -1, untilDone(ctx, a.Stdin))
	}
	info, err := os.Stat(from)
	if err != nil {
		return size, hostfiles.OpenError(from, err)
	}
	target, err := targetIn(ctx, box, filepath.Base(from), to, toDir)
	if err != nil {
		return size, err
	}
	if info.IsDir() {
		left, err := uploadTree(ctx, box, from, target)
		if err == nil {
			a.sayLeft(left)
		}
		return size, err
	}
	f, err := hostfiles.Open(from)
	if err != nil {
		return size, err
	}
	defer f.Close() //nolint:errcheck // only read
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return size, box.WriteFile(ctx, target, uint32(info.Mode().Perm()), size, f)
}

// untilDone is r until ctx ends: nobody can end a Read that waits for a terminal or a pipe.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err) // never fails
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	return out
}

// targetIn is the path that a copy gets inside: below a directory that is there.
func targetIn(ctx context.Context, box *client.Sandbox, name, to string, toDir bool) (string, error) {
	info, err := box.Stat(ctx, to)
	switch {
	case err == nil && info.Type == sandbox.FileDir, toDir:
	case err != nil && sandbox.AsError(err).Code != sandbox.CodeFileNotFound && sandbox.AsError(err).Code != sandbox.CodeNotFound:
		return "", err
	default:
		return to, nil
	}
	if name == ".." || name == "." || name == "/" {
		return to, nil
	}
	return path.Join(to, name), nil
}

func (a *app) copyOut(ctx context.Context, box *client.Sandbox, from, to string) error {
	info, err := box.Stat(ctx, from)
	if err != nil {
		return err
	}
	switch info.Type {
	case sandbox.FileRegular:
	case sandbox.FileDir:
		if to == fromStdin {
			left, err := box.Download(ctx, from, client.FormatTar, a.Stdout)
			a.sayLeft(left)
			return a.passOn(err)
		}
		return a.copyTreeOut(ctx, box, from, info, to)
	default:
		return hostfiles.PathError(sandbox.CodeNotRegularFile, from, "is neither a file nor a directory").WithHint("name the file itself; links are not followed")
	}
	if to == fromStdin {
		_, err := box.ReadFile(ctx, from, 0, -1, forReader(a.Stdout, true))
		return a.passOn(err)
	}
	dir, name := filepath.Split(to)
	if local, err := os.Stat(to); err == nil && local.IsDir() {
		dir, name = to, ""
	}
	name = cmp.Or(name, path.Base(path.Clean(from))) // as we were told, not as the sandbox answers
	if err := sandbox.CheckGuestPath("", name); err != nil {
		return err
	}
	there, err := hostfiles.OpenDestination(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if there.Special != nil {
		_, err := box.ReadFile(ctx, from, 0, -1, there.Special)
		return errors.Join(a.passOn(err), there.Special.Close())
	}
	sink, err := hostfiles.OpenSink(filepath.Dir(there.Path))
	if err != nil {
		return err
	}
	defer sink.Close()
	sink.Mode = there.Mode
	return downloadFile(ctx, box, from, info, sink, filepath.Base(there.Path))
}

// downloadFile takes one file: all of it, or nothing stays.
func downloadFile(ctx context.Context, box *client.Sandbox, from string, info sandbox.FileInfo, sink *hostfiles.Sink, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	defer r.Close() //nolint:errcheck // never fails
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, failed = box.ReadFile(ctx, from, 0, -1, w)
		_ = w.CloseWithError(failed) // never fails
	}()
	err := sink.Store(sandbox.Artifact{Path: name, Size: info.Size}, r)
	_ = r.Close() // never fails
	cancel()
	<-done
	if failed != nil && err != nil && ctx.Err() == nil {
		return failed
	}
	if err != nil {
		return err
	}
	return sink.KeepExecutable(name, info.Mode)
}

// passOn tells a reader of ours that is gone from a failure.
func (a *app) passOn(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return &brokenPipeError{}
	}
	return err
}

// sayLeft says how much of a directory is not in the copy.
func (a *app) sayLeft(n int) {
	if n > 0 {
		a.say("left out: %d in all: links, things that are neither files nor directories, names that cannot be printed", n)
	}
}

// copyTreeOut unpacks a directory. to is made when it is not there, and
// otherwise the directory goes below it under its own name.
func (a *app) copyTreeOut(ctx context.Context, box *client.Sandbox, from string, info sandbox.FileInfo, to string) error {
	if local, err := os.Stat(to); err == nil && local.IsDir() {
		name := path.Base(info.Path)
		if name == "/" || name == "." {
			name = "root"
		}
		if err := sandbox.CheckGuestPath("", name); err != nil {
			return err
		}
		to = filepath.Join(to, name)
	} else if err == nil {
		return hostfiles.OpenError(to, fs.ErrExist)
	}
	if err := os.Mkdir(to, 0o755); err != nil && !os.IsExist(err) {
		return hostfiles.OpenError(to, err)
	}
	sink, err := hostfiles.OpenSink(to)
	if err != nil {
		return err
	}
	defer sink.Close()
	left, err := downloadTree(ctx, box, from, sink)
	skipped := sink.Skipped()
	a.sayLeft(left)
	for i, s := range skipped {
		if i == maxNotes {
			a.say("and %d more files stayed inside", len(skipped)-maxNotes)
			break
		}
		a.say("%s stayed inside: %s", sandbox.SafeText(s.Path, 120), sandbox.SafeText(s.Reason, 200))
	}
	if err == nil && len(skipped) > 0 {
		a.exit = exitPinfold
	}
	return err
}

// uploadTree sends a directory as an archive. left counts what is not in it.
func uploadTree(ctx context.Context, box *client.Sandbox, from, to string) (left int, err error) {
	return piped(func(w io.Writer) (int, error) { return hostfiles.Pack(from, w) }, func(r io.Reader) error {
		_, err := box.Upload(ctx, to, client.FormatTar, r)
		return err
	})
}

// downloadTree unpacks a directory of a sandbox. left counts what the server did not
// put into the archive.
func downloadTree(ctx context.Context, box *client.Sandbox, from string, sink *hostfiles.Sink) (left int, err error) {
	return piped(func(w io.Writer) (int, error) { return box.Download(ctx, from, client.FormatTar, w) },
		func(r io.Reader) error { return hostfiles.Unpack(r, sink) })
}

// piped lets one side read what the other writes meanwhile. left is what the writer says.
// What went wrong with the writer is why the reader could not go on.
func piped(write func(io.Writer) (int, error), read func(io.Reader) error) (left int, err error) {
	r, w := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		n, err := write(w)
		left = n // read after the channel
		failed <- err
		_ = w.CloseWithError(err) // never fails
	}()
	err = read(r)
	_ = r.CloseWithError(io.ErrClosedPipe) // never fails
	if wErr := <-failed; wErr != nil && !errors.Is(wErr, io.ErrClosedPipe) {
		err = wErr
	}
	return left, err
}
