package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Media types of answers.
const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
	typeBytes  = "application/octet-stream"
)

// choose picks the media type of an answer. Events are given only to who names
// them; everything else takes the first offer.
func choose(r *http.Request, offers []string) (string, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" || len(offers) == 0 {
		return first(offers), nil
	}
	best := ""
	for part := range strings.SplitSeq(accept, ",") {
		pattern, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		pattern = strings.ToLower(strings.TrimSpace(pattern))
		if refused(parameters) {
			continue
		}
		for _, offer := range offers {
			if pattern == typeEvents && offer == typeEvents {
				return typeEvents, nil
			}
			if best == "" && matchesType(pattern, offer) {
				best = offer
			}
		}
	}
	if best == "" {
		return "", withStatus(http.StatusNotAcceptable, "", "no acceptable media type", "this route answers with "+strings.Join(distinct(offers), " or "))
	}
	return best, nil
}

// distinct is the list without what stands in it already.
func distinct(offers []string) []string {
	var all []string
	for _, o := range offers {
		if !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

func first(offers []string) string {
	if len(offers) == 0 {
		return ""
	}
	return offers[0]
}

// refused says whether the parameters hold q=0.
func refused(parameters string) bool {
	for p := range strings.SplitSeq(parameters, ";") {
		if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "q="); ok {
			v, err := strconv.ParseFloat(q, 64)
			return err == nil && v == 0
		}
	}
	return false
}

func matchesType(pattern, offer string) bool {
	if pattern == "*/*" || pattern == offer {
		return true
	}
	major, ok := strings.CutSuffix(pattern, "/*")
	return ok && strings.HasPrefix(offer, major+"/")
}
