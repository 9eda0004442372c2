package image

import (
	"net/netip"
	"slices"
	"strings"
)

// Name is a name that programs find in a sandbox.
type Name struct {
	Host string
	At   netip.Addr
}

// WithNames is the template of a sandbox in which names can be looked up: in /etc/hosts,
// and from a resolver at an address of its own loopback, who knows the same ones and sees
// which others are asked for.
func (t Template) WithNames(names []Name, resolver netip.Addr) Template {
	t.Files = slices.Clone(t.Files)
	for i, f := range t.Files {
		t.Files[i], _ = f.withNames(names, resolver)
	}
	return t
}

// NameFiles are the files of the template that WithNames changes, as it has them.
func (t Template) NameFiles(names []Name, resolver netip.Addr) (files []File) {
	for _, f := range t.Files {
		if f, ok := f.withNames(names, resolver); ok {
			files = append(files, f)
		}
	}
	return files
}

func (f File) withNames(names []Name, resolver netip.Addr) (with File, ok bool) {
	switch f.Path {
	case "/etc/hosts":
		content := slices.Clone(f.Content)
		for _, n := range names {
			content = append(content, n.At.String()+"\t"+n.Host+"\n"...)
		}
		f.Content = content
	case "/etc/resolv.conf":
		f.Content = []byte("# this resolver knows the declared names, and asks nobody\nnameserver " + resolver.String() + "\noptions timeout:2 attempts:1\n")
	case "/etc/nsswitch.conf":
		f.Content = []byte(strings.Replace(string(f.Content), "\nhosts: files\n", "\nhosts: files dns\n", 1))
	default:
		return f, false
	}
	return f, true
}
