package kernels

import (
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/test/kernels/vm"
)

// TestDebian13ARM64 is the same system on the other architecture, with fewer suites: as an
// ordinary user only what the kernel tells about a sandbox is compared.
func TestDebian13ARM64(t *testing.T) {
	onRequest(t, true)
	need(t, vm.Missing())
	need(t, vm.MissingForDebian())
	need(t, vm.MissingFor("arm64"))
	tree := trixie
	tree.Arch = "arm64"
	guest{arch: "arm64", debian: &tree, memory: 3072, suites: arm64Suites}.run(t)
}

// arm64Suites leave out what installs packages (this tree's are only unpacked),
// and what makes calls by the other architecture's numbers. Long are those whose
// subject is the kernel, which is the same on both architectures.
var arm64Suites = []suite{
	{name: "machine code", pkg: "pinfold/internal/linux/walker", beside: "internal/zygote/inside"},
	{name: "init stub", pkg: "pinfold/internal/linux/initstub"},
	{name: "system calls", pkg: "pinfold/internal/linux/seccomp", args: []string{"-test.run=^Test(Probe|Refused|NoNamespaceByClone|SocketFamilies|EveryRefusedCall|ConstantsAreTheKernels|CloseEndsServe)$"}},
	{name: "warm and cold", pkg: attacksPkg, args: []string{"-test.run=^TestPythonOfThisRoot$"}, programs: attackPrograms, env: []string{"PINFOLD_TEST_PYTHON=3.13", "PINFOLD_TEST_FOREVER=1", "PINFOLD_TEST_NUMPY=1"}, delegate: true},
	{name: "installed", pkg: installedPkg, args: []string{"-test.run=^TestInstalled$/^(root|reload|crash|stop)$"}, env: []string{"PINFOLD_TEST_CHECKOUT=" + checkoutDir}},
	{name: "native as root", pkg: nativePkg, args: []string{"-test.run=^Test(Posture|OOMScore|Fork|InitStub|InitStubBecomesAgent)$"}, programs: nativePrograms, delegate: true},
	{name: "forked posture", pkg: nativePkg, args: []string{"-test.run=^TestForkedPosture$"}, programs: nativePrograms, delegate: true},
	{name: "posture as user", pkg: nativePkg, args: []string{"-test.run=^TestPosture$"}, programs: nativePrograms, user: true, delegate: true},
	{name: "conformance as root", pkg: nativePkg, args: []string{"-test.run=^TestConformance$", "-test.skip=" + tooMuch}, programs: nativePrograms, delegate: true, long: true},
	{name: "causes as root", pkg: e2ePkg, args: []string{"-test.run=^TestCauses$", "-test.skip=/(forbidden.*|" + slowCauses[2:]}, programs: []string{"pinfold/cmd/pinfold", agenttest.Agent}, delegate: true, long: true},
	{name: "attacks", pkg: attacksPkg, args: []string{"-test.run=" + kernelCases}, programs: attackPrograms, delegate: true, long: true},
	{name: "memory marks", pkg: attacksPkg, args: []string{"-test.run=^TestMemoryPeakOfShortRuns$"}, programs: attackPrograms, delegate: true, long: true},
}
