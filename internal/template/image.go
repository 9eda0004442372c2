package template

import (
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Image is what is known of an image that is kept.
type Image struct {
	// ID is a hash of all that follows.
	ID           ID      `json:"id"`
	Architecture string  `json:"architecture"` // as Go names it: "amd64"
	Config       Config  `json:"config"`
	Layers       []Layer `json:"layers"` // the bottom first
}

// Config is what an image says about the programs in it, as far as it is heeded.
type Config struct {
	Env        []string    `json:"env,omitempty"` // K=V
	User       string      `json:"user,omitempty"`
	WorkingDir string      `json:"working_dir,omitempty"`
	Start      image.Start `json:"start,omitzero"`
	// Places are directories that are empty and writable in sandboxes of the image, which
	// only one that is being built has.
	Places []string `json:"places,omitempty"`
	Lent   string   `json:"lent,omitempty"` // of one that exists for a build only: nobody else has it
}

// Layer is one layer of an image.
type Layer struct {
	ID      ID    `json:"id"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"` // of its files
}

// Bytes is how large the image's files are together.
func (i Image) Bytes() (n int64) {
	for _, l := range i.Layers {
		n += l.Bytes
	}
	return n
}

// identify sets the image's ID.
func (i *Image) identify() error {
	i.ID = ""
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	i.ID = hashOf(text)
	return nil
}

// Template is an image under a name.
type Template struct {
	Name  string    `json:"name"`
	Image Image     `json:"image"`
	From  Origin    `json:"from"`
	Added time.Time `json:"added"`
}

// Origin says where an image came from.
type Origin struct {
	Kind      string `json:"kind"` // "archive", "root", "registry", "build"
	Reference string `json:"reference,omitempty"`
	Digest    string `json:"digest,omitempty"` // of the manifest
	// Packages are those of indexes that a build has put into it, or into what it begins with.
	Packages sandbox.Packages `json:"packages,omitzero"`
}

// maxName bounds a template's name, in bytes. It becomes the name of a file.
const maxName = 128

// CheckName says whether a template can have the name. It may look like the reference
// of an image: "python", "docker.io/library/python:3.13-slim".
func CheckName(name string) error {
	bad := func(why string) error {
		return &sandbox.Error{
			Code: sandbox.CodeSpecInvalid, Field: "template", Message: fmt.Sprintf("\"%s\" is no name for a template: %s", sandbox.SafeText(name, 60), why),
			Hint: "use small letters, digits and . _ - / : @ such as python or python:3.13",
		}
	}
	switch {
	case name == sandbox.TemplateHost:
		return bad("that is the host's own")
	case name == "" || len(name) > maxName:
		return bad(fmt.Sprintf("it must have 1 to %d bytes", maxName))
	case strings.HasPrefix(name, hashPrefix):
		return bad("that is how an image's hash begins")
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@") != "":
		return bad("it has other characters")
	case strings.ContainsRune("._-/:@", rune(name[0])) || strings.Contains(name, "//") || strings.HasSuffix(name, "/"):
		return bad("it must begin with a letter or a digit, and each part of it must have something in it")
	}
	return nil
}

// ociConfig is the part of an OCI image configuration that is read.
type ociConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env        []string `json:"Env,omitempty"`
		User       string   `json:"User,omitempty"`
		WorkingDir string   `json:"WorkingDir,omitempty"`
		Labels     labels   `json:"Labels,omitzero"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type,omitempty"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

const (
	maxEnvEntries = 512
	maxEnvBytes   = 64 << 10
)

// readConfig reads an image's configuration.
func readConfig(text []byte, layers int) (ociConfig, error) {
	var c ociConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return c, invalid("has a configuration that cannot be read: %w", err)
	}
	if c.OS != "" && c.OS != "linux" {
		return c, invalid("is for %s, not for linux", sandbox.SafeText(c.OS, 40))
	}
	if len(c.RootFS.DiffIDs) != layers {
		return c, invalid("has %d layers, and its configuration names %d", layers, len(c.RootFS.DiffIDs))
	}
	for _, d := range c.RootFS.DiffIDs {
		if _, ok := parseID(d); !ok {
			return c, invalid("names a layer \"%s\", which is no SHA-256 digest", sandbox.SafeText(d, 80))
		}
	}
	return c, c.check()
}

// check refuses what could not be carried out as it is written.
func (c ociConfig) check() error {
	if c.Architecture != "" && c.Architecture != runtime.GOARCH {
		e := invalid("is for %s, and this machine is %s", sandbox.SafeText(c.Architecture, 40), runtime.GOARCH)
		e.Hint = "nothing of it was kept; take the image for linux/" + runtime.GOARCH
		return e
	}
	total := 0
	for _, kv := range c.Config.Env {
		total += len(kv)
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return invalid("has an environment variable without a name or a value, \"%s\"", sandbox.SafeText(kv, 60))
		}
	}
	if len(c.Config.Env) > maxEnvEntries || total > maxEnvBytes {
		return tooMuch("has more environment variables than are accepted, %d with %d bytes", len(c.Config.Env), total)
	}
	if d := c.Config.WorkingDir; d != "" && (!path.IsAbs(d) || len(d) > maxPath || strings.ContainsRune(d, 0)) {
		return invalid("has a working directory that is no absolute path, \"%s\"", sandbox.SafeText(d, 60))
	}
	if err := CheckStart(c.Config.Labels.start()); err != nil {
		return invalid("has labels %s, %s and %s that cannot be carried out: %w", labelStart, labelReady, labelWithin, err)
	}
	if u := c.Config.User; len(u) > 256 || strings.ContainsRune(u, 0) {
		return invalid("has a user whose name is too long")
	}
	return nil
}

// heeded is what of the configuration is kept.
func (c ociConfig) heeded() Config {
	return Config{Env: c.Config.Env, User: c.Config.User, WorkingDir: c.Config.WorkingDir, Start: c.Config.Labels.start()}
}
