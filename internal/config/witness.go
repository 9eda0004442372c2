package config

import (
	"fmt"

	"pinfold/internal/audit"
	"pinfold/sandbox"
)

// WatchedLog is a log of another server.
type WatchedLog struct {
	Name string `yaml:"name"` // as its checkpoints have it
	Key  string `yaml:"key"`  // public, as "pinfold audit key" prints it there
}

// Keys are those of the logs that are watched. The configuration must be valid.
func (a Audit) Keys() ([]audit.Key, error) {
	var all []audit.Key
	for _, w := range a.WitnessFor {
		key, err := audit.ParseKey(w.Key)
		if err != nil {
			return nil, err
		}
		all = append(all, key)
	}
	return all, nil
}

// maxWatched bounds how many logs are watched.
const maxWatched = 64

func (c *Config) checkWatched() error {
	all := c.Audit.WitnessFor
	if len(all) > maxWatched {
		return c.at("audit.witness_for", "there are more than %d", maxWatched)
	}
	known := map[string]bool{}
	for i, w := range all {
		at := fmt.Sprintf("audit.witness_for[%d]", i)
		key, err := audit.ParseKey(w.Key)
		switch {
		case err != nil:
			return c.at(at+".key", "this is not the public key of an audit log").WithHint("\"pinfold audit key\" prints it on the machine of that log: one line, NAME+HASH+KEY")
		case key.Name() != w.Name:
			return c.at(at+".name", "the key is of the log \"%s\"", sandbox.SafeText(key.Name(), 80)).WithHint("name: " + sandbox.SafeText(key.Name(), 80))
		case known[key.String()]:
			return c.at(at+".key", "this log is there twice").WithHint("leave one of both out")
		}
		known[key.String()] = true
	}
	return nil
}
