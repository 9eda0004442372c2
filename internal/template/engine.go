package template

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"pinfold/internal/image"
)

// EngineArchive writes what sandboxes of a template that is an image hold, as an archive
// that container engines load (docker load): the image's layers, and over them one with the
// sandbox's own directories and files. It is the same each time. The engine knows it by the
// name, which has a tag; labels are for whoever asks the engine. The template must be held.
func EngineArchive(ctx context.Context, w io.Writer, t image.Template, name string, labels map[string]string) error {
	out := &saving{tar: tar.NewWriter(w)}
	config := engineConfig{Architecture: runtime.GOARCH, OS: "linux"}
	config.Config.Labels = labels
	config.RootFS.Type = "layers"
	add := func(pack func(io.Writer) error) error {
		d, err := out.layer(pack)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d.Digest)
		return err
	}
	for _, dir := range slices.Backward(t.Layers.Dirs) {
		if err := add(func(w io.Writer) error { return pack(ctx, filepath.Join(t.Layers.Under, dir), w) }); err != nil {
			return failed("pack a layer", err)
		}
	}
	if err := add(func(w io.Writer) error { return packOwn(t, w) }); err != nil {
		return failed("pack the sandbox's own files", err)
	}
	c, err := out.document(config, "")
	if err != nil {
		return failed("write the configuration", err)
	}
	one := engineManifest{Config: blobName(c.Digest), RepoTags: []string{name}}
	for _, id := range config.RootFS.DiffIDs {
		one.Layers = append(one.Layers, blobName(id))
	}
	manifest, err := json.Marshal([]engineManifest{one})
	if err == nil {
		err = out.small("manifest.json", manifest)
	}
	if err == nil {
		err = out.tar.Close()
	}
	return failed("write the archive", err)
}

// engineConfig and engineManifest are what docker save writes (moby's image specification,
// version 1.2).
type engineConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Labels map[string]string `json:"Labels,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type engineManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// packOwn writes the layer that lies over an image's: the directories in which a sandbox has
// something of its own, whatever the image has there, and its own files.
func packOwn(t image.Template, w io.Writer) error {
	p := &packing{tar: tar.NewWriter(w)}
	for _, dir := range ownDirs(t) {
		if err := p.header(tar.TypeDir, strings.TrimPrefix(dir, "/")+"/", dirMode, 0, 0, ""); err != nil {
			return err
		}
	}
	for _, f := range t.Files {
		if err := p.header(tar.TypeReg, strings.TrimPrefix(f.Path, "/"), fileMode, int64(len(f.Content)), 0, ""); err != nil {
			return err
		}
		if _, err := p.tar.Write(f.Content); err != nil {
			return err
		}
	}
	return p.tar.Close()
}

// ownDirs are a template's, those above before those below.
func ownDirs(t image.Template) (dirs []string) {
	add := func(dir string) {
		for ; dir != "/"; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, d := range []string{"/dev", "/proc", "/sys"} {
		add(d)
	}
	for _, d := range t.Dirs {
		add(d.Path)
	}
	for _, w := range t.Writable {
		add(w.Path)
	}
	for _, f := range t.Files {
		add(path.Dir(f.Path))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
