package initramfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kernelDir makes a directory of modules.
func kernelDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func names(modules []Module) (all []string) {
	for _, m := range modules {
		all = append(all, m.Name)
	}
	return all
}

// Each comes once, after what it needs, and what is built in does not come at all.
func TestModules(t *testing.T) {
	dir := kernelDir(t, map[string]string{
		"modules.builtin": "kernel/fs/overlay.ko\n",
		"modules.dep": "kernel/a/virtio-ring.ko.xz:\nkernel/a/virtio.ko.xz: kernel/a/virtio-ring.ko.xz\n" +
			"kernel/a/virtio_pci.ko.xz: kernel/b/pci_lib.ko.xz kernel/a/virtio.ko.xz\n/abs/pci_lib.ko.xz:\nkernel/b/unused.ko:\n",
	})
	got, err := Modules(dir, "virtio-pci", "virtio", "overlay")
	if err != nil {
		t.Fatal(err)
	}
	want := []Module{
		{"pci_lib", "/abs/pci_lib.ko.xz"},
		{"virtio_ring", dir + "/kernel/a/virtio-ring.ko.xz"},
		{"virtio", dir + "/kernel/a/virtio.ko.xz"},
		{"virtio_pci", dir + "/kernel/a/virtio_pci.ko.xz"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestModulesRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"a circle":               {map[string]string{"modules.dep": "a.ko: b.ko\nb.ko: a.ko\n"}, "needs itself"},
		"a module without file":  {map[string]string{"modules.dep": "a.ko: b.ko\n"}, "no such module"},
		"no modules at all":      {nil, "no such file"},
		"no ELF":                 {map[string]string{"kernel/a.ko": strings.Repeat("text", 100)}, "bad magic"},
		"compressed, no listing": {map[string]string{"kernel/a.ko.xz": "text"}, "run depmod"},
	} {
		if _, err := Modules(kernelDir(t, c.files), "a"); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Modules(kernelDir(t, map[string]string{"modules.dep": "x.ko:\n"}), "a"); !errors.Is(err, ErrNoModule) {
		t.Errorf("a kernel without the module: %v", err)
	}
}

// Modules say by themselves what they need, where nobody has listed it.
func TestModulesOfAnUnpackedPackage(t *testing.T) {
	objcopy, err := exec.LookPath("objcopy")
	if err != nil {
		t.Skip("objcopy makes the modules: apt-get install binutils")
	}
	dir := kernelDir(t, map[string]string{"modules.order": "", "kernel/x": ""})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, info := range map[string]string{"top": "license=GPL\x00depends=low-er,other\x00", "low-er": "depends=\x00", "other": "depends=low_er\x00"} {
		text := filepath.Join(t.TempDir(), "info")
		if err := os.WriteFile(text, []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), objcopy, "--add-section", ".modinfo="+text, "-S", self, filepath.Join(dir, "kernel", name+".ko")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	got, err := Modules(dir, "top")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"low_er", "other", "top"}, names(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestWrite(t *testing.T) {
	dir := kernelDir(t, map[string]string{"modules.dep": "k/b.ko: k/a.ko.xz\nk/a.ko.xz:\n", "k/a.ko.xz": "first", "k/b.ko": "second"})
	modules, err := Modules(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	tree := Tree{Modules: modules, Programs: map[string][]byte{InitFile: []byte("program")}}
	if err := tree.Write(&got); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, part := range []string{"modules\x00", "init\x00", "program", "modules/00-a.ko.xz\x00", "first", "modules/01-b.ko\x00", "second", "TRAILER!!!"} {
		i := strings.Index(got.String()[at:], part)
		if i < 0 {
			t.Fatalf("no %q after byte %d", part, at)
		}
		at += i
	}
	tree.Modules[0].File = dir
	if err := tree.Write(&got); err == nil {
		t.Error("a directory was taken for a module")
	}
}
