package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// AddBusybox adds the host's statically linked busybox and a link for each of
// its commands.
func (i *Image) AddBusybox(ctx context.Context) error {
	const busybox = "/bin/busybox"
	if err := i.Copy("/usr/bin/busybox", busybox); err != nil {
		return err
	}
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	for s := bufio.NewScanner(bytes.NewReader(list)); s.Scan(); {
		if name := s.Text(); name != "busybox" && !strings.Contains(name, "/") {
			i.Link("/usr/bin/"+name, "busybox")
		}
	}
	return nil
}

// pythonSkips are parts of the standard library that small programs do not
// need: half of it, and all that has libraries of its own.
var pythonSkips = []string{"config-", "test", "lib2to3", "pydoc_data", "distutils", "idlelib", "ensurepip", "tkinter", "turtledemo", "dist-packages", "sitecustomize.py"}

// AddPython adds the system's Python 3 with the larger part of its standard
// library.
func (i *Image) AddPython() error {
	program, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		return err
	}
	name := filepath.Base(program) // python3.11
	if err := i.CopyProgram("/usr/bin/"+name, program); err != nil {
		return err
	}
	i.Link("/usr/bin/python3", name)
	lib := "/usr/lib/" + name
	ctypes, err := filepath.Glob(lib + "/lib-dynload/_ctypes.*.so") // with which parents of interpreters make system calls
	if err != nil || len(ctypes) == 0 {
		return fmt.Errorf("no ctypes in %s: %w", lib, err)
	}
	if err := i.CopyProgram(ctypes[0], ctypes[0]); err != nil {
		return err
	}
	return i.CopyTree(lib, lib, func(rel string) bool {
		for _, skip := range pythonSkips {
			if strings.HasPrefix(rel, skip) {
				return true
			}
		}
		return false
	})
}
