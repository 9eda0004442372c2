package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// detectV1 uses every controller whose hierarchy we may write to. Controllers
// that are mounted together ("cpu,cpuacct") share a tree.
func (h host) detectV1(mounts []mountPoint) *Hierarchy {
	found := &Hierarchy{version: 1, support: map[Controller]Support{}}
	for _, c := range Controllers() {
		if c == Swap {
			continue // is decided below, from where memory is
		}
		m, ok := pick(mounts, kernelName(c))
		if !ok {
			found.support[c] = h.no(c, notMounted, "no "+kernelName(c)+" controller is mounted")
			continue
		}
		if dir, err := h.placeV1(m.dir); err != nil {
			found.support[c] = h.deniedV1(c, m.dir, dir, err)
			continue
		}
		found.support[c] = Support{Answer: Yes, Because: m.dir + " is writable"}
		found.addTree(m.dir, c)
	}
	found.support[Swap] = h.swapV1(found)
	if m, ok := pick(mounts, freezerV1); ok {
		found.freezer.root = m.dir
	}
	return found
}

func (h *Hierarchy) addTree(root string, c Controller) {
	i := slices.IndexFunc(h.trees, func(t tree) bool { return t.root == root })
	if i < 0 {
		i = len(h.trees)
		h.trees = append(h.trees, tree{root: root})
	}
	h.trees[i].controllers = append(h.trees[i].controllers, c)
}

// placeV1 checks the directory in which the next mkdir will happen. An
// administrator may have made "pinfold" for an ordinary user; another process
// of ours may remove it at any moment.
func (h host) placeV1(mountDir string) (string, error) {
	groups := path.Join(mountDir, groupsDir)
	if err := h.writable(groups); !errors.Is(err, fs.ErrNotExist) {
		return groups, err
	}
	return mountDir, h.writable(mountDir)
}

// deniedV1 differs from version 2: there systemd delegates groups to ordinary
// users; a version 1 hierarchy has to be shared by hand, and until the next boot.
func (h host) deniedV1(c Controller, mountDir, dir string, err error) Support {
	s := h.denied(c, dir, err)
	if !h.root && errors.Is(err, fs.ErrPermission) {
		groups := path.Join(mountDir, groupsDir)
		s.Because += " (on cgroup version 1 only root makes groups, unless root shares a directory)"
		s.Command, s.Fix = true, fmt.Sprintf(`sudo mkdir -p %s && sudo chown "$USER" %s`, groups, groups)
	}
	return s
}

func (h host) swapV1(found *Hierarchy) Support {
	memory := found.support[Memory]
	if memory.Answer != Yes {
		return memory
	}
	for _, t := range found.trees {
		if slices.Contains(t.controllers, Memory) && exists(path.Join(t.root, swapFileV1)) {
			found.swapFile = true
			return Support{Answer: Yes, Because: swapFileV1 + " is there"}
		}
	}
	return h.swapByHost(swapFileV1)
}
