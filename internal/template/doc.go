// Package template keeps images on disk: what is inside a sandbox when it starts, where
// that is not the host's own programs (package image). An image comes as an OCI image
// or as the tar of a root file system, is unpacked layer by layer, and is shared
// read-only by every sandbox that is made from it.
//
// # What is kept
//
// A store is a directory that belongs to one user. In it are
//
//	layers/HASH/root   a layer's files, as an overlay shows them
//	layers/HASH/layer  what is known of it; it is there when the layer is whole
//	diffs/HASH         which layer a tar of that hash became
//	images/HASH        an image: its configuration and its layers
//	names/NAME         which image a name stands for
//	builds/HASH        which image a declaration of that hash became (package build)
//	tmp/               what is not whole yet
//
// A layer's hash is that of what was unpacked (see digest), an image's that of its
// layers and of its configuration, so the same content has the same hash whichever way
// it came, and is kept once. What is in layers/ never changes.
//
// # Several processes
//
// A store is safe for concurrent use by goroutines and by processes. Nothing appears
// under its name before it is whole, so a process that dies at any moment leaves only
// something in tmp/, which the next one removes. Who adds holds a shared lock of the
// store; Collect needs it alone. Who uses an image holds a shared lock of that image's
// record until Close, and the kernel drops it with the process.
//
// # Every archive is hostile
//
// Whoever built an image chose its bytes. Names that go up are refused, and so is every
// entry whose way leads through a symbolic link: links are kept as they are and are
// never followed here. Devices, pipes and sockets are left out, and so are /dev, /proc
// and /sys with all that is in them: a sandbox mounts its own there, and an image that
// has a link in such a place must not decide where. Owners, set-user-id
// bits, access control lists and attributes are not taken over; of the permissions only
// that a file is executable: what its owner may read and execute in the image, everybody
// may inside. Sizes, counts, depths and the ratio of compression are bounded, and each
// is checked before what it bounds is read. Digests and lengths are checked before a
// layer is whole.
package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"pinfold/sandbox"
)

// Limits bound one image. A zero field has the default.
type Limits struct {
	Bytes   int64 // of all files of all layers, unpacked; default 32 GiB
	Entries int64 // of all layers; default 2,000,000
	Layers  int   // default 128: an overlay takes no more by one page of options
	Ratio   int64 // unpacked bytes for each byte that came; default 300
}

const (
	defaultBytes   = 32 << 30
	defaultEntries = 2_000_000
	defaultLayers  = 128
	defaultRatio   = 300

	ratioFree   = 64 << 20 // bytes of a layer before its ratio is looked at
	headerRoom  = 2 << 10  // bytes of headers and padding for each entry
	headerExtra = 16 << 20 // and for all together

	maxDepth = 128  // of directories
	maxPath  = 4095 // bytes of an entry's name
	maxLink  = 4095 // bytes of what a symbolic link says
)

// MaxDocument bounds a manifest, an index and a configuration, in bytes.
const MaxDocument = 4 << 20

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	if l.Layers <= 0 {
		l.Layers = defaultLayers
	}
	if l.Ratio <= 0 {
		l.Ratio = defaultRatio
	}
	return l
}

// refuse is the error for an entry that breaks a rule.
func refuse(name, why string) error {
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Message: fmt.Sprintf("entry \"%s\" of the image %s", sandbox.SafeText(name, 200), why),
		Hint: "nothing of the image was kept; build it without such an entry",
	}
}

// tooMuch is the error for an image that goes beyond a limit.
func tooMuch(format string, args ...any) error {
	return &sandbox.Error{Code: sandbox.CodeTooLarge, Message: "the image " + fmt.Sprintf(format, args...), Hint: "nothing of it was kept; make it smaller"}
}

// invalid is the error for what is no image, or not the one that it says.
func invalid(format string, args ...any) *sandbox.Error {
	err := fmt.Errorf(format, args...)
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Message: "the image " + err.Error(), Err: errors.Unwrap(err),
		Hint: "nothing of it was kept; make or fetch it again",
	}
}

// known returns an error that says all already, or nil.
func known(err error) error {
	if e := new(sandbox.Error); errors.As(err, &e) {
		return e
	}
	return nil
}

// failed is the error of our own doing: the disk, the store.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if known := known(err); known != nil {
		return known
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &sandbox.Error{
			Code: sandbox.CodeInsufficient, Message: "the disk is full: cannot " + doing, Err: err,
			Hint: "make room, or remove templates that are not needed: pinfold template remove NAME",
		}
	}
	return &sandbox.Error{Code: sandbox.CodeInternal, Message: fmt.Sprintf("cannot %s: %v", doing, err), Err: err}
}

// ended makes an unexpected end of a stream readable.
func ended(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "it ends too early"
	}
	return err.Error()
}
