package container

// HowToGetRunsc installs gVisor's runtime as root's own, the version that the tests use, of
// gVisor's branch for Go's tools. Debian's is years old, and one that was built with cgo does
// not start.
const HowToGetRunsc = `sudo env CGO_ENABLED=0 GOBIN=/usr/local/bin "$(command -v go)" install gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237`
