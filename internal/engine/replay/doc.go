// Package replay says how the results of two runs of one request differ. It is pure, knows
// no engine, and takes every byte of both for hostile.
package replay
