package execution

import (
	"bytes"
	"context"
	"io"
	"slices"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// WriteFile writes a file into the machine.
func (s *Session) WriteFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	g, err := s.Agent(ctx)
	if err != nil {
		return err
	}
	return s.RoomError(g.WriteFile(ctx, path, mode, size, r))
}

// Restore makes the files of a snapshot in the machine, in which nothing runs yet.
func (s *Session) Restore(ctx context.Context, files io.Reader) error {
	g, err := s.Agent(ctx)
	if err != nil {
		return err
	}
	var places []wire.RestorePlace
	for _, p := range s.Plan.Writable() {
		places = append(places, wire.RestorePlace(p))
	}
	_, err = g.Restore(ctx, places, files)
	return s.RoomError(err)
}

// Lacks says that a directory holds nothing but what is known, where the host
// can see that by itself.
func (s *Session) Lacks(dir string, known func(name string) bool) bool {
	looker := s.Machine.Abilities().Looker
	if looker == nil {
		return false
	}
	names, ok := looker.Look(dir)
	return ok && !slices.ContainsFunc(names, func(name string) bool { return !known(name) })
}

// Parcel gathers small files and sends them together: each journey to the agent
// and back costs more than they do.
type Parcel struct {
	session *Session
	files   []wire.PutFile
	fields  []string // of the request, for errors
	size    int
}

// Parcel returns an empty one for the session.
func (s *Session) Parcel() *Parcel { return &Parcel{session: s} }

// Add adds a file; field is that of the request, for errors. A large one goes by itself, after those before it.
func (p *Parcel) Add(ctx context.Context, field, name string, mode uint32, content []byte) error {
	if p.size+len(content) > wire.MaxPut || len(p.files) == maxParcel {
		if err := p.Send(ctx); err != nil {
			return err
		}
	}
	if len(content) > wire.MaxPut/4 {
		return inField(p.session.put(ctx, name, mode, content), field)
	}
	p.files = append(p.files, wire.PutFile{Path: name, Mode: mode, Content: content})
	p.fields = append(p.fields, field)
	p.size += len(content)
	return nil
}

// maxParcel bounds the files of a parcel, and so the size of their names.
const maxParcel = 256

// Send sends what was gathered.
func (p *Parcel) Send(ctx context.Context) error {
	if len(p.files) == 0 {
		return nil
	}
	g, err := p.session.Agent(ctx)
	if err != nil {
		return err
	}
	failed, err := g.Put(ctx, p.files)
	err = p.session.RoomError(err)
	if err != nil && failed >= 0 {
		err = inField(err, p.fields[failed])
	}
	p.files, p.fields, p.size = nil, nil, 0
	return err
}

func inField(err error, field string) error {
	if err == nil || field == "" {
		return err
	}
	return sandbox.AsError(err).WithField(field)
}

func (s *Session) put(ctx context.Context, path string, mode uint32, content []byte) error {
	return s.WriteFile(ctx, path, mode, int64(len(content)), bytes.NewReader(content))
}

// Mkdir makes a directory and the missing ones above it.
func (s *Session) Mkdir(ctx context.Context, path string, mode uint32) error {
	g, err := s.Agent(ctx)
	if err != nil {
		return err
	}
	return g.Mkdir(ctx, path, mode)
}
