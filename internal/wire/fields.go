package wire

// The fields of each message, in the order in which they travel. A field that
// is not named here does not travel; TestEveryFieldTravels finds it.

func (m *Hello) fields(c *codec) {
	c.int(&m.Version) // first for ever: it says what the rest means
	text(c, &m.Agent)
	c.int(&m.UID)
	c.int(&m.GID)
	c.bool(&m.SwitchUser)
	text(c, &m.Home)
}

func (m *Request) fields(c *codec) {
	text(c, &m.Op)
	optional(c, &m.Start)
	optional(c, &m.File)
	optional(c, &m.Put)
	optional(c, &m.Glob)
	optional(c, &m.List)
	optional(c, &m.Move)
	optional(c, &m.Watch)
	optional(c, &m.Dial)
	optional(c, &m.Restore)
	optional(c, &m.Doors)
	optional(c, &m.Accept)
}

func (m *StartRequest) fields(c *codec) {
	list(c, &m.Args, text)
	list(c, &m.Env, text)
	text(c, &m.Dir)
	c.int(&m.UID)
	c.int(&m.GID)
	c.bool(&m.Stdin)
	list(c, &m.Rlimits, part)
	c.bytes(&m.CPUs)
	optional(c, &m.Terminal)
}

func (m *Rlimit) fields(c *codec) {
	c.int(&m.Resource)
	c.uint64(&m.Value)
}

func (m *TerminalSize) fields(c *codec) {
	c.int(&m.Cols)
	c.int(&m.Rows)
}

func (m *FileRequest) fields(c *codec) {
	text(c, &m.Path)
	c.uint32(&m.Mode)
	c.int64(&m.Size)
	c.bool(&m.Part)
	c.int64(&m.Offset)
	c.uint64(&m.Inode)
}

func (m *PutRequest) fields(c *codec) { list(c, &m.Files, part) }

func (m *PutFile) fields(c *codec) {
	text(c, &m.Path)
	c.uint32(&m.Mode)
	c.bytes(&m.Content)
}

func (m *GlobRequest) fields(c *codec) {
	text(c, &m.Dir)
	list(c, &m.Patterns, text)
	c.int(&m.Max)
}

func (m *ListRequest) fields(c *codec) {
	text(c, &m.Dir)
	c.int(&m.Depth)
	c.int(&m.Max)
}

func (m *MoveRequest) fields(c *codec) {
	text(c, &m.From)
	text(c, &m.To)
}

func (m *WatchRequest) fields(c *codec) {
	text(c, &m.Dir)
	c.bool(&m.Recursive)
}

func (m *RestoreRequest) fields(c *codec) { list(c, &m.Places, part) }

func (m *RestorePlace) fields(c *codec) {
	text(c, &m.Name)
	text(c, &m.Path)
}

func (m *DialRequest) fields(c *codec) { c.int(&m.Port) }

func (m *DoorsRequest) fields(c *codec) {
	list(c, &m.At, part)
	m.Resolver.fields(c)
}

func (m *Address) fields(c *codec) {
	c.bytes(&m.IP)
	c.int(&m.Port)
}

func (m *AcceptRequest) fields(c *codec) { c.int(&m.Door) }

func (m *Packet) fields(c *codec) {
	m.Peer.fields(c)
	c.bytes(&m.Content)
}

func (m *Event) fields(c *codec) {
	text(c, &m.Kind)
	c.int(&m.PID)
	optional(c, &m.Exit)
	list(c, &m.Files, part)
	list(c, &m.Entries, part)
}

func (m *Exit) fields(c *codec) {
	c.int(&m.Code)
	c.int(&m.Signal)
	c.int64(&m.WallNS)
	c.int64(&m.CPUNS)
}

func (m *Control) fields(c *codec) {
	c.int(&m.Signal)
	c.bool(&m.Group)
	optional(c, &m.Resize)
	c.bytes(&m.CPUs)
}

func (m *Outcome) fields(c *codec) {
	optional(c, &m.Error)
	c.bool(&m.Held)
	c.int64(&m.Size)
	optional(c, &m.Stat)
	c.bool(&m.More)
	c.int(&m.Unprintable)
}

func (m *Fault) fields(c *codec) {
	text(c, &m.Code)
	text(c, &m.Message)
	text(c, &m.Step)
	c.int(&m.Errno)
}

func (m *Stat) fields(c *codec) {
	text(c, &m.Type)
	c.int64(&m.Size)
	c.uint32(&m.Mode)
	c.int64(&m.MtimeNS)
	c.int(&m.UID)
	c.int(&m.GID)
	text(c, &m.Target)
	c.uint64(&m.Inode)
}

func (m *FileEntry) fields(c *codec) {
	text(c, &m.Path)
	text(c, &m.Type)
	c.int64(&m.Size)
	c.int64(&m.MtimeNS)
}

func (m *Entry) fields(c *codec) {
	text(c, &m.Path)
	text(c, &m.Type)
	c.int64(&m.Size)
	c.uint32(&m.Mode)
	c.int64(&m.MtimeNS)
	c.int(&m.UID)
	c.int(&m.GID)
	text(c, &m.Target)
}

func (m *WatchEvent) fields(c *codec) {
	text(c, &m.Kind)
	text(c, &m.Path)
	c.bool(&m.Dir)
}
