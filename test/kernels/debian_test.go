package kernels

import (
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/kernels/vm"
)

var trixie = vm.Debian{Suite: "trixie", Arch: "amd64", Boots: true, Packages: []string{"python3", "python3-numpy", "nodejs"}}

const (
	installedPkg = "pinfold/test/kernels/installed"
	attacksPkg   = "pinfold/test/attacks"
	e2ePkg       = "pinfold/test/e2e"
)

var attackPrograms = []string{agenttest.Agent, "pinfold/test/attacks/hostile"}

// TestDebian13 is a whole Debian 13 as people have it: systemd, cgroup version
// 2, its own kernel, Python and Node.
func TestDebian13(t *testing.T) {
	onRequest(t, true)
	need(t, vm.Missing())
	need(t, vm.MissingForDebian())
	guest{arch: "amd64", debian: &trixie, memory: 3072, suites: debianSuites}.run(t)
}

// Left out is what judges a rate or a time that an emulated machine does not have
// (floods of forks, filling a table of processes or of files, ending many in time),
// what wants a compiler, what becomes an ordinary user by means of the build machine's,
// and of what is slow what an ordinary user shows for root, too.
const (
	slowCauses  = "/(forbidden_call_in_Go|file_size|eight_busy_threads|fork_bomb.*|threads|a_million_files|as_user)$"
	deepTree    = "|^TestConformance$/^snapshot$/^a_tree_deeper_than_any_path$"
	kernelCases = "^TestAttacks$/^(FS-1[256]|KE-(05|07|10|11|12|14)|PR-0[5679]|RE-(04|05|10|11)|TE-01)"
)

var debianSuites = []suite{
	{name: "installed", pkg: installedPkg, env: []string{"PINFOLD_TEST_CHECKOUT=" + checkoutDir}},
	{name: "native as root", pkg: nativePkg, args: []string{"-test.run=^Test(Conformance|Posture|OOMScore|Fork|ForkedPosture|InitStub|InitStubBecomesAgent)$", "-test.skip=" + tooMuch + deepTree}, programs: nativePrograms, delegate: true},
	{name: "native as user", pkg: nativePkg, args: []string{"-test.run=^Test(Conformance|Posture)$", "-test.skip=" + tooMuch}, programs: nativePrograms, user: true, delegate: true},
	{name: "causes as root", pkg: e2ePkg, args: []string{"-test.run=^TestCauses$", "-test.skip=" + slowCauses}, programs: []string{"pinfold/cmd/pinfold", agenttest.Agent}, delegate: true},
	{name: "attacks", pkg: attacksPkg, args: []string{"-test.run=" + kernelCases}, programs: attackPrograms, delegate: true},
	{name: "memory marks", pkg: attacksPkg, args: []string{"-test.run=^TestMemoryPeakOfShortRuns$"}, programs: attackPrograms, delegate: true},
	{name: "warm and cold", pkg: attacksPkg, args: []string{"-test.run=^TestPythonOfThisRoot$"}, programs: attackPrograms, env: []string{"PINFOLD_TEST_PYTHON=3.13", "PINFOLD_TEST_FOREVER=1", "PINFOLD_TEST_NUMPY=1"}, delegate: true},
	{name: "cgroup as root", pkg: cgroupPkg, args: []string{"-test.run=^Test(New|Memory|Pids|CPU|Stats|PeakSince|Set|Kill$|Remove|Sweep)"}, delegate: true},
}
