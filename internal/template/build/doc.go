// Package build makes templates from declarations: a base, packages of indexes and of files,
// files, an environment, and commands.
//
// # What runs where
//
// Nothing of a declaration runs with the host's rights. Files are laid down by the store,
// as a layer of a tar is. Packages are installed, and commands are run, in a sandbox of
// the image that there is so far, under limits, without a network, as the image's usual
// user. The image is read-only in it as in any sandbox, but for a few directories that
// are the sandbox's own and begin as the image has them (Declaration.Places: /usr/local,
// /opt, /srv and those that the declaration names). What changed in them comes out as a
// tar, which is as hostile as any, is compared with the image (changes.go) and goes
// through the store's own way of unpacking. So a build is: a base, a layer of files, a
// layer of what the sandbox changed.
//
// Packages of indexes are fetched before all that, as for runs (indexed.go): what fetches them
// is no step, and reaches the operator's indexes.
//
// A base that is made of Debian's packages is the exception: mmdebstrap needs a network,
// and runs the packages' own scripts. See debian.go for what holds it.
//
// # The same each time
//
// The image is kept by its content, and the same declaration over the same inputs gives
// the same. What would differ is made the same: times of files, the order of names, owners;
// logs, caches and compiled files of Python that carry a time are left out. A command that
// writes the time or random numbers into a file makes an image of its own each time.
//
// What a build is made from has a hash, too (key.go). While the image that came of it is
// here, a second build takes it and runs nothing.
//
// # Nothing half-kept
//
// The image gets its name last. A build that fails, is cancelled or is killed leaves no
// image; a base that came whole is kept for the next try, as layers of a pull are, until
// templates are collected.
package build
