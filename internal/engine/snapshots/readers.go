package snapshots

// A content that was removed takes its bytes on the disk until nobody reads it any more, and
// who makes a sandbox of it may wait in a queue before. So they count until then: otherwise
// a tenant that removes what it has others wait for fills the disk, beyond every bound.

// readers are those of one content.
type readers struct {
	n       int
	tenant  string // whose it was, if it was removed
	removed int64  // then: bytes to be given back by the last one
}

// hold counts a reader of a content, and may count one who is not let: it is called before
// the content is looked for, so that none is removed in between.
func (k *Keeper) hold(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reading[id] == nil {
		k.reading[id] = &readers{}
	}
	k.reading[id].n++
}

// release ends that.
func (k *Keeper) release(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.reading[id]
	if r.n--; r.n > 0 {
		return
	}
	delete(k.reading, id)
	if r.removed > 0 {
		k.count(r.tenant, -r.removed, 0)
	}
}

// removed gives back what a content took, or leaves that to its last reader.
func (k *Keeper) removed(tenant, id string, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.reading[id]; r != nil {
		r.tenant, r.removed, bytes = tenant, bytes, 0
	}
	k.count(tenant, -bytes, -1)
}
