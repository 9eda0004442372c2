package sandbox

// BuiltTemplate is what became of a template's declaration.
type BuiltTemplate struct {
	Name  string `json:"name"`
	Image string `json:"image"` // the hash of its content
	Bytes int64  `json:"bytes"` // of all its files
	// Packages are those of indexes that are in it, with versions and digests.
	Packages Packages `json:"packages,omitzero"`

	Cached bool  `json:"cached"` // an earlier build's image is taken
	WallMS int64 `json:"wall_ms"`
}

// BuildEvent says how far the build of a template is.
type BuildEvent struct {
	Step   string `json:"step"`   // the field of the declaration that it carries out, "run[0]"; "base" and "layer" besides
	Number int    `json:"number"` // of so many steps, from 1
	Of     int    `json:"of"`
	Says   string `json:"says,omitempty"`   // what begins, for people; empty: it goes on as before
	Output string `json:"output,omitempty"` // what the step printed
	Bytes  int64  `json:"bytes,omitempty"`  // of a layer that is being kept, so far
}
