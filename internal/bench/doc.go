// Package bench measures Pinfold beside what a user could pick instead, on the
// user's own machine and in one run, and says what it found as tables, JSON,
// Markdown and charts.
//
// Contenders take turns, round by round, so that noise meets all alike: the
// ratios mean something where the milliseconds do not. What is not installed is
// named and left out. Numbers never fail a benchmark; a sandbox that fails or a
// trace that is left behind does.
//
// It makes sandboxes only through the program, a server and the driver that it
// is handed, as users do, and writes no file outside its temporary directory.
package bench
