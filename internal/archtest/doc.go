// Package archtest holds the rules that the code keeps about itself, as tests:
// which package may import which, what may stand in a file, and that the
// documents speak of tests that exist. Each rule carries its reason, because a
// rule without one is obeyed too long or dropped too soon.
//
// It contains no code for the product. A rule that stands in the way is
// changed here, in the commit that breaks it, with the new reason.
package archtest
