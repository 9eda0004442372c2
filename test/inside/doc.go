// Package inside asks the tools that hosts have, inside sandboxes, how large the
// computer is that they run on, and compares what they say with the limits.
package inside
