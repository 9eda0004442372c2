// Package nearest finds the word that somebody probably meant to type. It is
// for suggestions in error messages only; nothing is ever decided by it.
package nearest

// Word returns the candidate closest to word, or "" when none is close enough
// to be a likely slip: at most a third of the word's letters may differ, and
// two adjacent letters that changed places count as one difference.
func Word(word string, candidates []string) string {
	const longest = 64 // longer words are not slips, and cost quadratic time
	if len(word) == 0 || len(word) > longest {
		return ""
	}
	best, bestAt := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if len(c) > longest {
			continue
		}
		if d := distance(word, c); d < bestAt {
			best, bestAt = c, d
		}
	}
	return best
}

// distance is the optimal string alignment distance, in bytes.
func distance(a, b string) int {
	before, previous := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
