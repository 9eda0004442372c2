// Package audit keeps the record that nobody can rewrite: an append-only log of what ran,
// for whom, behind which wall, and how it ended.
//
// The log is a Merkle tree as in Certificate Transparency (RFC 6962), made with
// golang.org/x/mod/sumdb/tlog; its heads are signed notes. An entry has digests only,
// each keyed with the entry's salt, so that a content that could be guessed is not given
// away; texts, where the operator keeps them, and salts lie beside the leaves and can be
// deleted without breaking a proof.
//
// The directory of a log:
//
//	entries      one line for each: the leaf (JSON), a tab, its salt in hexadecimal or dashes
//	hashes       the tree's, 32 bytes each, in tlog's order; made again from entries where it lacks some
//	checkpoints  signed heads, at most one a second, the oldest first
//	texts/N      JSON lines with the contents of entries from N on, where they are kept
//	key, key.pub what the log signs with (mode 0600), and what others check it with
//	lock         held by the one process that writes
//	torn-N       what a crash had cut off before entry N
//
// An entry that somebody was told of is on the disk. The heads in receipts are signed
// only after that.
package audit
